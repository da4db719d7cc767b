"""
Spans and figures of flows, as Airflow is told to write them; without that they cost nothing.

A span lies in that of its task and names the transaction, so one search finds every task of a flow. Whatever goes wrong
in whoever writes them is theirs: no work here depends on it. If nothing is written, nothing but a picture is missing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.trace import Span

PREFIX = "txsaga"


@contextmanager
def traced(what: str, **about: str | int) -> Iterator[Span]:
    """Make a span of a block; what is known of it by then stands in its attributes."""
    from opentelemetry import trace

    with trace.get_tracer(PREFIX).start_as_current_span(f"{PREFIX}.{what}") as span:
        named(span, **about)
        yield span


def named(span: Span, **about: str | int) -> None:
    """Say more of a span."""
    span.set_attributes({f"{PREFIX}.{name}": value for name, value in about.items()})


@contextmanager
def timed(stat: str, **tags: str) -> Iterator[None]:
    """Tell how long a block took, however it ended."""
    from airflow.sdk.observability.stats import timing

    began = time.monotonic()
    try:
        yield
    finally:
        timing(f"{PREFIX}.{stat}", timedelta(seconds=time.monotonic() - began), tags=tags)


def counted(stat: str, number: int = 1, **tags: Any) -> None:
    """Count something."""
    from airflow.sdk.observability.stats import incr

    incr(f"{PREFIX}.{stat}", number, tags=tags)
