"""The request for a cut: tables and topics by name, each of which must exist."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from txsaga.core.arguments import list_of
from txsaga.core.kernel import Kernel
from txsaga.errors import UnknownTable, UnknownTopic
from txsaga.lake.cut import Cut
from txsaga.lake.table import TableName


def names_of(kernel: Kernel, tables: Iterable[str]) -> Sequence[TableName]:
    """Parse the names of tables."""
    given = list_of(tables, "tables", "give a list of names")
    return [kernel.tables.name(said) for said in given] if given else []


def chosen(kernel: Kernel, cut: Cut, tables: Sequence[TableName], topics: Iterable[str] | None) -> Cut:
    """Reduce a cut to the requested tables and topics; a missing one is an error, not a gap."""
    for name in tables:
        if name not in cut.pointers:
            raise UnknownTable(str(name))
    if tables:
        cut = replace(cut, reader=kernel.tables)
    if topics is None:
        return cut
    heads = {}
    for topic in list_of(topics, "topics", "give a list of names"):
        if topic not in cut.heads:
            raise UnknownTopic(topic)
        heads[topic] = cut.heads[topic]
    return replace(cut, heads=heads)
