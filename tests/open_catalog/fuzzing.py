"""Requests with anything in their paths, queries, headers and bodies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import httpx
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.open_catalog.route_table import PREFIXES, Served
from tests.open_catalog.test_any_table_metadata import JSON
from txsaga.catalog.routes import KEY, TOKEN

FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
LEVELS = TEXT | st.binary(min_size=1, max_size=4) | st.sampled_from(["bank", "a", *PREFIXES, "cut-", "..", "\x1f"])
QUERIES = st.dictionaries(
    st.sampled_from(["warehouse", "parent", "pageToken", "pageSize", "snapshots", "purgeRequested"]), TEXT, max_size=2
)
HEADERS = st.dictionaries(st.sampled_from([TOKEN, KEY, "if-none-match"]), TEXT.map(quote), max_size=1)


@st.composite
def any_request(draw: st.DrawFn, routes: Sequence[Served]) -> dict[str, Any]:
    """Give a request to one of these routes."""
    route = draw(st.sampled_from(routes))
    return {
        "method": route.method,
        "url": route.about(draw(LEVELS), draw(LEVELS), draw(LEVELS)),
        "params": draw(QUERIES),
        "headers": {**draw(HEADERS), "content-type": "application/json"},
        "content": json.dumps(draw(st.none() | JSON)),
    }


def assert_answers(answer: httpx.Response) -> None:
    """Check that a request is served or refused, and that a refusal has the form of the specification."""
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400 and answer.request.method != "HEAD":
        error = answer.json()["error"]
        assert isinstance(error, str) or error["code"] == answer.status_code  # OAuth2 has a form of its own
        assert "Traceback" not in answer.text
