"""
The filter of the list of transactions, as it is written in the address of a page or of a request.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import Depends, Query, Request

from txsaga.core.records import LISTED, TxFilter
from txsaga.errors import ConfigError

NAMES = ("state", "group", "key", "topic", "table", "run", "problem", "since", "before")
PROBLEMS = {"heuristic": "heuristic branch", "stalled": "stalled saga"}
OTHERS = ("limit", "only")
States = Annotated[list[str], Query(description=", ".join(LISTED))]
Text = Annotated[str | None, Query()]
Place = Annotated[int, Query(ge=0, lt=2**31, description="how many come before")]


def read_filter(
    request: Request,
    state: States = [],  # noqa: B006  # FastAPI copies it
    group: Text = None,
    key: Text = None,
    topic: Text = None,
    table: Annotated[str | None, Query(description="SCHEMA.TABLE")] = None,
    run: Text = None,
    problem: Annotated[str | None, Query(description=", ".join(PROBLEMS))] = None,
    since: Annotated[str | None, Query(description="15m, 12h, 30d, or 2026-01-31T12:00:00Z")] = None,
    before: Text = None,
) -> TxFilter:
    """Read the filter of a request."""
    if unknown := [name for name in request.query_params if name not in (*NAMES, *OTHERS)]:
        raise ConfigError(f"there is no filter {unknown[0]!r}; filter by {', '.join(NAMES)}")
    if any("\0" in value for value in request.query_params.values()):
        raise ConfigError("a filter contains a zero byte")
    if wrong := set(state) - set(LISTED):
        raise ConfigError(f"state is {sorted(wrong)[0]!r}; it is one of {', '.join(LISTED)}")
    if problem and problem not in PROBLEMS:
        raise ConfigError(f"problem is {problem[:30]!r}; it is one of {', '.join(PROBLEMS)}")
    if before and not (before.isdecimal() and len(before) < 19):
        raise ConfigError(f"before is {before[:30]!r}; it is the number of a transaction")
    return TxFilter(
        states=frozenset(state) or None,
        group=group or None,
        key=key or None,
        topic=topic or None,
        since=_moment(since),
        table=table or None,
        run=run or None,
        problem=problem or None,
        before=int(before) if before else None,
    )


Filter = Annotated[TxFilter, Depends(read_filter)]


def read_for_page(request: Request) -> tuple[TxFilter, str | None]:
    """Read the filter of a page; with a moment that can't be read it goes without, and the page says so."""
    said: dict[str, str | None] = {name: request.query_params.get(name) for name in NAMES[1:]}
    wrong = None
    try:
        _moment(said["since"])
    except ConfigError as refused:
        said["since"], wrong = None, str(refused)
    return read_filter(request, request.query_params.getlist("state"), **said), wrong


def filter_of(query: str) -> TxFilter:
    """Return the filter that the address of a page holds behind its question mark."""
    only, wrong = read_for_page(Request({"type": "http", "query_string": query.encode()}))
    if wrong is not None:
        raise ConfigError(wrong)
    return only


PageFilter = Annotated[tuple[TxFilter, str | None], Depends(read_for_page)]


def _moment(text: str | None) -> datetime | None:
    if not text:
        return None
    units = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
    try:
        if text[-1] in units:
            return datetime.now(UTC) - timedelta(**{units[text[-1]]: float(text[:-1])})
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise ConfigError(f"since is {text!r}; write 15m, 12h, 30d, or 2026-01-31T12:00:00Z") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
