"""Which messages a subscription wants: by tags, or by an SQL92 condition on their properties."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from txsaga.core.message import Delivered
from txsaga.gateway import wire
from txsaga.gateway.sql92 import condition
from txsaga.gateway.status import CallRefused, Code

SQL = wire.number("FilterType", "SQL")
Wanted = Callable[[Delivered], bool]


def filter_of(expression: Any) -> Wanted | None:
    """Return what an expression says of a message; None if all are wanted."""
    text = expression.expression.strip()
    try:
        return _by_sql(text) if expression.type == SQL else _by_tags(text)
    except ValueError as wrong:
        raise CallRefused(Code.ILLEGAL_FILTER_EXPRESSION, f"filter {text[:99]!r}: {wrong}") from None


def _by_tags(text: str) -> Wanted | None:
    if text in ("", "*"):
        return None
    tags = frozenset(each.strip() for each in text.split("||")) - {""}
    if not tags:
        raise ValueError("it has no tag; write TAG || TAG")
    return lambda message: message.tag in tags


def _by_sql(text: str) -> Wanted:
    true = condition(text)

    def wanted(message: Delivered) -> bool:
        tag = {} if message.tag is None else {"TAGS": message.tag}
        return true({**message.headers, **tag}) is True

    return wanted
