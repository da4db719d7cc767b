"""`txsaga group`: consumer groups, what they do with messages that fail, and how far they have read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from txsaga.cli.home import opened, reading
from txsaga.cli.options import Options, Yes, options_of, span_of, start_of, takes, whole
from txsaga.cli.printing import document, fields, progress, result, say, table
from txsaga.consume.claim import MOST_ATTEMPTS, ConsumerGroup
from txsaga.errors import UnknownGroup
from txsaga.inspect.documents import position_document, reading_document

if TYPE_CHECKING:
    from txsaga.inspect.overview import Reading
    from txsaga.store.store import Store


def _span(told: str) -> Any:  # as typer has it
    return typer.Option(parser=span_of, metavar="TIME", help=told)


OPTIONS: dict[str, Any] = {
    "max_attempts": Annotated[
        int | None,
        typer.Option(parser=whole(0, MOST_ATTEMPTS), metavar="NUMBER", help="Maximum deliveries; 0 for no limit."),
    ],
    "backout": Annotated[str | None, typer.Option(help="Topic for messages that fail too often; '' for none.")],
    "dead_letters": Annotated[
        bool | None, typer.Option("--dead-letters/--no-dead-letters", help="Keep messages that fail too often.")
    ],
    "first_retry": Annotated[timedelta | None, _span("Delay before the second delivery: 1s.")],
    "longest_retry": Annotated[timedelta | None, _span("Longest delay between two deliveries: 5m.")],
    "expires": Annotated[timedelta | None, _span("Delete the group after this time without members; 0 for never.")],
}
NONE: dict[str, object] = {"max_attempts": 0, "backout": "", "expires": timedelta(0)}
"""The values that mean None on a command line."""


def _meant(changes: dict[str, object]) -> dict[str, Any]:
    return {name: None if name in NONE and value == NONE[name] else value for name, value in changes.items()}


app = typer.Typer(help="Create, alter, list, show, pause, move and delete consumer groups.")
Name = Annotated[str, typer.Argument(help="Name of the group.")]
GROUP = ("group", "topic", "lag", "held", "retrying", "members", "oldest")


@app.command()
@takes(OPTIONS)
def create(
    context: typer.Context,
    name: Name,
    ordered: Annotated[bool, typer.Option("--ordered", help="Keep the order per key; can't be changed later.")] = False,
    **changes: object,
) -> None:
    """Create a group whose members process messages one by one. A group that exists is not changed."""
    options = options_of(context)
    with opened(options) as broker:
        group = broker.create_group(name, ordered=ordered, **_meant(changes))
    _show(group, as_json=options.json)


@app.command()
@takes(OPTIONS)
def alter(context: typer.Context, name: Name, **changes: object) -> None:
    """Change how a group handles failed messages, or when it expires. Members apply it within seconds."""
    options = options_of(context)
    with opened(options) as broker:
        group = broker.alter_group(name, **_meant(changes))
    _show(group, as_json=options.json)


@app.command()
def delete(context: typer.Context, name: Name, yes: Yes = False) -> None:
    """Delete a group without members; its dead letters stay. Without --yes it only shows what it would miss."""
    options = options_of(context)
    with opened(options) as broker:
        _, readings = _found(broker.kernel.store, name)
        if yes:
            broker.delete_group(name)
    plan = {"group": name, "done": yes, "topics": [*map(reading_document, readings)]}
    _planned(options, plan, GROUP, map(group_row, readings), f"{name} was deleted")


@app.command()
def pause(context: typer.Context, name: Name) -> None:
    """Let the members of a group take no more messages. They apply it within seconds; what they hold they finish."""
    _set_paused(context, name, paused=True)


@app.command()
def resume(context: typer.Context, name: Name) -> None:
    """Let the members of a paused group take messages again."""
    _set_paused(context, name, paused=False)


def _set_paused(context: typer.Context, name: str, *, paused: bool) -> None:
    options = options_of(context)
    with opened(options) as broker:
        broker.alter_group(name, paused=paused)
    told = "takes no more messages" if paused else "takes messages again"
    result(options, {"group": name, "paused": paused}, f"group {name} {told}")


@app.command("list")
def list_groups(context: typer.Context) -> None:
    """List groups, their position in each topic, and their dead letters."""
    options = options_of(context)
    with reading(options) as store:
        groups, readings, dead = store.groups.all(), store.overview.readings(), store.overview.dead_letters()
    if options.json:
        document([{**_document(group), "dead_letters": dead.get(group.name, 0)} for group in groups])
        return
    rows = [(g.name, g.style, g.policy.paused, dead.get(g.name, 0)) for g in groups]
    table(("group", "style", "paused", "dead letters"), rows)
    if readings:
        say()
        table(GROUP, [group_row(reading) for reading in readings])


@app.command()
def show(context: typer.Context, name: Name) -> None:
    """Show one group and its position in each queue."""
    options = options_of(context)
    with reading(options) as store:
        group, readings = _found(store, name)
    if options.json:
        document({**_document(group), "topics": [reading_document(reading) for reading in readings]})
        return
    fields(_document(group))
    say()
    rows = [(r.topic, p.queue, p.head, p.offset, p.lowest, p.held, p.retrying) for r in readings for p in r.positions]
    table(("topic", "queue", "head", "offset", "lowest", "held", "retrying"), rows)


@app.command()
def reset(
    context: typer.Context,
    name: Name,
    to: Annotated[str, typer.Option(help="New position: earliest, latest, a time with a time zone, or an offset.")],
    topic: Annotated[str | None, typer.Option(help="Only move the group in this topic.")] = None,
    yes: Yes = False,
) -> None:
    """Move a group without members to another offset. Without --yes it only shows what would move."""
    options, start = options_of(context), start_of(to, "--to")
    with opened(options) as broker, progress(f"reading the queues of {name}", quiet=options.json):
        moves = broker.reset_group(name, start, topic=topic, dry_run=not yes)
    plan = {"group": name, "done": yes, "moves": [move._asdict() for move in moves]}
    _planned(options, plan, ("topic", "queue", "before", "after"), moves, f"{name} was moved")


@app.command()
def leave(
    context: typer.Context,
    name: Name,
    topic: Annotated[str, typer.Option(help="Topic that the group no longer reads.")],
    yes: Yes = False,
) -> None:
    """Remove a group without members from a topic. Without --yes it only shows what it would miss."""
    options = options_of(context)
    with opened(options) as broker:
        positions = broker.leave_topic(name, topic, dry_run=not yes)
    plan = {"group": name, "topic": topic, "done": yes, "queues": [*map(position_document, positions)]}
    rows = [(p.queue, p.offset, p.lag, p.held, p.retrying) for p in positions]
    _planned(options, plan, ("queue", "offset", "lag", "held", "retrying"), rows, f"{name} left {topic}")


def _found(store: Store, name: str) -> tuple[ConsumerGroup, list[Reading]]:
    if (group := store.groups.find(name)) is None:
        raise UnknownGroup(name)
    return group, [reading for reading in store.overview.readings() if reading.group == name]


def _planned(options: Options, plan: dict[str, object], columns: Sequence[str], rows: Iterable[Any], done: str) -> None:
    if options.json:
        document(plan)
    else:
        table(columns, rows)
        say(f"\n{done if plan['done'] else 'nothing was changed; pass --yes to do it'}")


def group_row(reading: Reading) -> tuple[object, ...]:
    """Write how far a group has read a topic, for people."""
    return reading.group, reading.topic, reading.lag, reading.held, reading.retrying, reading.members, reading.oldest


def _document(group: ConsumerGroup) -> dict[str, object]:
    return {"group": group.name, "style": group.style, **asdict(group.policy)}


def _show(group: ConsumerGroup, *, as_json: bool) -> None:
    (document if as_json else fields)(_document(group))
