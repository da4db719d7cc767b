"""`txsaga cut`: what topics and tables hold at one moment, as one decision after the other left them."""

from __future__ import annotations

from typing import Annotated

import typer

from txsaga.cli.home import opened
from txsaga.cli.options import options_of
from txsaga.cli.printing import document, say, table


def cut(
    context: typer.Context,
    tables: Annotated[
        list[str] | None,
        typer.Option("--table", metavar="NAME", help="A table, like bank.ledger; as often as need be."),
    ] = None,
    topics: Annotated[
        list[str] | None, typer.Option("--topic", metavar="NAME", help="A topic; without any, all topics.")
    ] = None,
) -> None:
    """Show the heads of topics and the snapshots of tables at one moment."""
    options = options_of(context)
    with opened(options) as broker, broker.cut(tables=tables or (), topics=topics) as found:
        snapshots = {name: found.snapshot(name) for name in found.tables}
    if options.json:
        named = {name: {"metadata": at, "snapshot": snapshots[name]} for name, at in found.tables.items()}
        document({"tick": found.tick, "topics": found.heads, "tables": named})
        return
    say(f"tick {found.tick}")
    if found.heads:
        say()
        table(
            ("topic", "messages", "heads"),
            [(name, sum(at), ", ".join(map(str, at))) for name, at in found.heads.items()],
        )
    if found.tables:
        say()
        table(("table", "snapshot", "metadata"), [(name, snapshots[name], at) for name, at in found.tables.items()])
