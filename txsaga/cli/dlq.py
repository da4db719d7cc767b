"""`txsaga dlq`: dead letters: what groups gave up, why, and what to do with it."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Annotated

import typer

from txsaga.cli.home import opened
from txsaga.cli.message import line_of, message_document
from txsaga.cli.options import options_of
from txsaga.cli.printing import document, fields, say, table
from txsaga.errors import ChunkDamaged, UnknownLetter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from txsaga.engine.broker import Broker
    from txsaga.model.dead_letter import DeadLetter

app = typer.Typer(help="List, show, replay and purge dead letters.")
Ids = Annotated[list[int] | None, typer.Argument(help="Numbers of letters, as list shows them.", show_default=False)]
Group = Annotated[str | None, typer.Option(help="Letters of this group only.")]
All = Annotated[bool, typer.Option("--all", help="All letters of the group.")]
MOST = 10_000
"""Letters that one call replays or purges with --all."""


@app.command("list")
def list_letters(
    context: typer.Context,
    group: Group = None,
    limit: Annotated[int, typer.Option(min=1, max=MOST, help="How many, newest first.")] = 20,
) -> None:
    """List dead letters, newest first."""
    options = options_of(context)
    with opened(options) as broker:
        letters = broker.dead_letters.list(group, limit)
    if options.json:
        document([letter_document(letter) for letter in letters])
        return
    columns = ("id", "group", "topic", "queue", "offset", "at", "attempts", "cause")
    table(columns, [[getattr(letter, column) for column in columns] for letter in letters])


@app.command()
def show(context: typer.Context, id: Annotated[int, typer.Argument(help="Number of the letter.")]) -> None:
    """Show one letter: its message, why it is dead, and how it came to that."""
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
    """Let letters come to their group again, as messages that were never delivered."""
    options = options_of(context)
    with opened(options) as broker:
        chosen = _chosen(broker, ids, group, all=all)
        count = broker.dead_letters.replay(chosen)
    _told("replayed", count, as_json=options.json)


@app.command()
def purge(context: typer.Context, ids: Ids = None, group: Group = None, all: All = False) -> None:
    """Delete letters for good."""
    options = options_of(context)
    with opened(options) as broker:
        chosen = _chosen(broker, ids, group, all=all)
        count = broker.dead_letters.purge(chosen)
    _told("purged", count, as_json=options.json)


HISTORY = ("at", "attempts", "member", "cause")


def letter_document(letter: DeadLetter) -> dict[str, object]:
    """Write a letter for programs."""
    names = ("id", "group", "at", "attempts", "cause", "history")
    return {**{name: getattr(letter, name) for name in names}, "message": _message_of(letter)}


def _line_of(letter: DeadLetter) -> str:
    try:
        return line_of(letter.message)
    except ChunkDamaged as damage:
        place = f"{letter.topic}/{letter.queue}@{letter.offset}"
        return f"{place} can't be read: {damage}; {len(letter.copy.body)} bytes of it are kept"


def _message_of(letter: DeadLetter) -> dict[str, object]:
    try:
        return message_document(letter.message)
    except ChunkDamaged:
        names = {name: getattr(letter, name) for name in ("topic", "queue", "offset")}
        return {**names, "id": letter.copy.message, "stored": base64.b64encode(letter.copy.body).decode()}


def _chosen(broker: Broker, ids: Sequence[int] | None, group: str | None, *, all: bool) -> list[int]:
    letters = broker.dead_letters
    if all:
        if ids or group is None:
            raise typer.BadParameter("name the group whose letters are meant, and no numbers", param_hint="--all")
        return [letter.id for letter in letters.list(group, MOST)]
    if not ids:
        raise typer.BadParameter("name letters by their numbers, or a group with --all", param_hint="IDS")
    for id in ids:
        if letters.get(id) is None:
            raise UnknownLetter(id)
    return list(ids)


def _told(what: str, count: int, *, as_json: bool) -> None:
    if as_json:
        document({what: count})
    else:
        say(f"{count} {what}")
