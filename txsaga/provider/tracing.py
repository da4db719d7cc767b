"""
Spans and metrics of flows, written as Airflow is configured; if it is not, they cost nothing.

A span is a child of its task's span and names the transaction, so one search finds all tasks of a flow. Errors of the
exporter stay there: no work here depends on it. If nothing is exported, only the traces are missing.
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
    """Open a span around a block, with what is known so far as attributes."""
    from opentelemetry import trace

    with trace.get_tracer(PREFIX).start_as_current_span(f"{PREFIX}.{what}") as span:
        named(span, **about)
        yield span


def named(span: Span, **about: str | int) -> None:
    """Add attributes to a span."""
    span.set_attributes({f"{PREFIX}.{name}": value for name, value in about.items()})


@contextmanager
def timed(stat: str, **tags: str) -> Iterator[None]:
    """Record how long a block took, however it ended."""
    from airflow.sdk.observability.stats import timing

    began = time.monotonic()
    try:
        yield
    finally:
        timing(f"{PREFIX}.{stat}", timedelta(seconds=time.monotonic() - began), tags=tags)


def counted(stat: str, number: int = 1, **tags: Any) -> None:
    """Increment a counter."""
    from airflow.sdk.observability.stats import incr

    incr(f"{PREFIX}.{stat}", number, tags=tags)
