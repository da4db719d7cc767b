"""`txsaga dlq`: dead letters: what groups gave up, why, and what to do with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from txsaga.cli.home import opened
from txsaga.cli.options import Limit, options_of, whole
from txsaga.cli.printing import document, fields, line_of, listing, progress, result, say, table
from txsaga.consume.groups import DeadLetters
from txsaga.core.identity import LAST
from txsaga.errors import ChunkDamaged, UnknownGroup, UnknownLetter
from txsaga.inspect.documents import letter_document

if TYPE_CHECKING:
    from txsaga.broker import Broker
    from txsaga.consume.dead_letter import DeadLetter

app = typer.Typer(help="List, show, replay and purge dead letters.")
Ids = Annotated[
    list[int] | None,
    typer.Argument(
        parser=whole(0, LAST), metavar="IDS", help="Ids of dead letters, as `dlq list` shows them.", show_default=False
    ),
]
Group = Annotated[str | None, typer.Option(help="Only dead letters of this group.")]
All = Annotated[bool, typer.Option("--all", help="All dead letters of the group.")]


@app.command("list")
def list_letters(context: typer.Context, group: Group = None, limit: Limit = 50) -> None:
    """List dead letters, newest first."""
    options = options_of(context)
    with opened(options) as broker:
        letters = broker.dead_letters.list(group, limit)
    columns = ("id", "group", "topic", "queue", "offset", "at", "attempts", "cause")
    rows = [[getattr(letter, column) for column in columns] for letter in letters]
    listing(options, map(letter_document, letters), columns, rows)


@app.command()
def show(
    context: typer.Context,
    id: Annotated[int, typer.Argument(parser=whole(0, LAST), metavar="ID", help="Id of the dead letter.")],
) -> None:
    """Show one dead letter: its message, the cause, and all delivery attempts."""
    options = options_of(context)
    with opened(options) as broker:
        letter = broker.dead_letters.get(id)
    if letter is None:
        raise UnknownLetter(id)
    if options.json:
        document(letter_document(letter))
        return
    fields({name: getattr(letter, name) for name in ("id", "group", "at", "attempts", "cause")})
    say()
    say(_line_of(letter))
    say()
    table(("at", "attempts", "member", "cause"), [[e.get(c) for c in HISTORY] for e in letter.history])


@app.command()
def replay(context: typer.Context, ids: Ids = None, group: Group = None, all: All = False) -> None:
    """Redeliver dead letters to their group with a fresh attempt counter."""
    _each(context, REPLAYED, DeadLetters.replay, ids, group, all=all)


@app.command()
def purge(context: typer.Context, ids: Ids = None, group: Group = None, all: All = False) -> None:
    """Delete dead letters permanently."""
    _each(context, "purged", DeadLetters.purge, ids, group, all=all)


REPLAYED = "replayed"
HISTORY = ("at", "attempts", "member", "cause")


def _line_of(letter: DeadLetter) -> str:
    try:
        return line_of(letter.message)
    except ChunkDamaged as damage:
        place = f"{letter.topic}/{letter.queue}@{letter.offset}"
        return f"{place} can't be read: {damage}; {len(letter.copy.body)} bytes of it are kept"


def _pages(
    broker: Broker, ids: Sequence[int] | None, group: str | None, *, all: bool
) -> tuple[int, Iterable[Sequence[int]]]:
    """Return how many letters a command is about, and their numbers, page by page."""
    if all:
        if ids or group is None:
            raise typer.BadParameter("--all needs --group, and takes no ids", param_hint="--all")
        count = broker.kernel.store.overview.dead_letters().get(group, 0)
        if not count and broker.kernel.store.groups.find(group) is None:
            raise UnknownGroup(group)
        return count, broker.dead_letters.pages(group)
    if not ids:
        raise typer.BadParameter("name dead letters by their ids, or use --group with --all", param_hint="IDS")
    for id in ids:
        if (letter := broker.dead_letters.get(id)) is None:
            raise UnknownLetter(id)
        if group not in (None, letter.group):
            raise typer.BadParameter(f"dead letter {id} belongs to group {letter.group!r}", param_hint="--group")
    named = list(dict.fromkeys(ids))
    return len(named), [named]


def _each(
    context: typer.Context,
    what: str,
    work: Callable[[DeadLetters, Sequence[int]], int],
    ids: Sequence[int] | None,
    group: str | None,
    *,
    all: bool,
) -> None:
    """Apply a function to letters page by page, and print how many there were."""
    options, count, asked = options_of(context), 0, 0
    with opened(options) as broker:
        total, pages = _pages(broker, ids, group, all=all)
        with progress(what, total, quiet=options.json) as advance:
            for page in pages:
                count += work(broker.dead_letters, page)
                asked += len(page)
                advance(len(page))
    stayed = {"stayed": asked - count} if what == REPLAYED else {}
    told = f"{count} {what}"
    if stayed and count < asked:
        told += f"\n{asked - count} stayed: an earlier replay is still waiting, or the group no longer exists"
    result(options, {what: count, **stayed}, told)
