"""`txsaga cut`: topics, tables and home rows of one moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from txsaga.cli.home import opened
from txsaga.cli.options import options_of, os_user, span_of
from txsaga.cli.printing import document, fields, listing, result, tables

if TYPE_CHECKING:
    from txsaga.catalog.cuts import KeptCuts
    from txsaga.catalog.moments import KeptMoment

COLUMNS = ("cut", "tick", "tables", "topics", "kept at", "by", "expires")
app = typer.Typer(help="See topics and tables of one moment, and keep that moment under a name.")
Name = Annotated[str, typer.Argument(help="Name of the cut.")]


@contextmanager
def _kept(context: typer.Context) -> Iterator[KeptCuts]:
    from txsaga.catalog.cuts import KeptCuts

    with opened(options_of(context)) as broker:
        yield KeptCuts(broker)


@app.command()
def show(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="A cut that is kept. Default: one of this moment.")] = None,
    named: Annotated[
        list[str] | None, typer.Option("--table", metavar="NAME", help="Table, such as bank.ledger; may be repeated.")
    ] = None,
    topics: Annotated[
        list[str] | None, typer.Option("--topic", metavar="NAME", help="Topic; may be repeated. Default: all topics.")
    ] = None,
) -> None:
    """Show the heads of topics and the snapshots of tables."""
    if name is not None:
        if named or topics:
            raise typer.BadParameter("a cut that is kept is shown whole; leave out --table and --topic")
        with _kept(context) as kept:
            return _show_kept(context, kept.moments.find(name))
    with opened(options_of(context)) as broker, broker.cut(tables=named or (), topics=topics) as cut:
        found = {name: {"snapshot": cut.snapshot(name), "metadata": at} for name, at in cut.tables.items()}
    _show(context, {"tick": cut.tick}, cut.heads, found)


@app.command()
def keep(
    context: typer.Context,
    name: Name,
    patterns: Annotated[
        list[str] | None,
        typer.Option("--table", metavar="NAME", help="Table or pattern, such as 'sales.*'; may be repeated."),
    ] = None,
    lease: Annotated[
        timedelta | None, typer.Option(parser=span_of, metavar="TIME", help="Time after which engines may expire it.")
    ] = None,
) -> None:
    """Keep this moment under a name: the heads of all topics, and the tables by a tag in each."""
    with _kept(context) as kept:
        _show_kept(context, kept.keep(name, patterns or (), lease=lease, who=os_user()))


@app.command("list")
def list_all(context: typer.Context) -> None:
    """List the cuts that are kept."""
    with _kept(context) as kept:
        found = kept.moments.all()
    rows = [
        (each.name, each.tick, len(each.tables), len(each.heads), each.at, each.who, each.expires) for each in found
    ]
    documents = [{**each._asdict(), "tables": [*map(str, each.tables)]} for each in found]
    listing(options_of(context), documents, COLUMNS, rows)


@app.command()
def release(context: typer.Context, name: Name) -> None:
    """Remove a cut that is kept: engines may expire its snapshots again."""
    with _kept(context) as kept:
        count = kept.release(name, os_user())
    result(options_of(context), {"cut": name, "tables": count}, f"released cut {name} of {count} tables")


def _show_kept(context: typer.Context, cut: KeptMoment) -> None:
    about = {"name": cut.name, "kept at": cut.at, "by": cut.who, "expires": cut.expires, "tick": cut.tick}
    _show(context, about, cut.heads, {str(name): {"snapshot": then.snapshot} for name, then in cut.tables.items()})


def _show(
    context: typer.Context,
    about: Mapping[str, object],
    heads: Mapping[str, Sequence[int]],
    found: Mapping[str, Mapping[str, object]],
) -> None:
    if options_of(context).json:
        document({**{key.replace(" ", "_"): value for key, value in about.items()}, "topics": heads, "tables": found})
        return
    fields(about)
    ends = [{"topic": name, "messages": sum(at), "heads": ", ".join(map(str, at))} for name, at in heads.items()]
    tables(ends, [{"table": name, **each} for name, each in found.items()])
