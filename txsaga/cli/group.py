"""`txsaga group`: consumer groups, what they do with messages that fail, and where they stand."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from txsaga.cli.home import opened
from txsaga.cli.options import LONGEST, options_of
from txsaga.cli.printing import document, fields, say, table
from txsaga.cli.progress import progress
from txsaga.cli.tail import start_of
from txsaga.errors import UnknownGroup

if TYPE_CHECKING:
    from txsaga.model.claim import ConsumerGroup
    from txsaga.model.overview import Reading

app = typer.Typer(help="Create, alter, list and show consumer groups.")
Name = Annotated[str, typer.Argument(help="Name of the group.")]
Attempts = Annotated[int | None, typer.Option(min=0, help="Deliveries of one message; 0 for no end.")]
Backout = Annotated[str | None, typer.Option(help="Topic for messages that fail to the end; '' for none.")]
Letters = Annotated[bool | None, typer.Option("--dead-letters/--no-dead-letters", help="Keep what fails to the end.")]
FirstRetry = Annotated[float | None, typer.Option(min=0, max=86_400, help="Seconds before the second delivery.")]
LongestRetry = Annotated[float | None, typer.Option(min=0, max=86_400, help="Seconds that it rests at most.")]
Expires = Annotated[
    float | None,
    typer.Option(min=0, max=LONGEST, help="Seconds without a member behind which it is forgotten; 0: never."),
]
GROUP = ("group", "topic", "lag", "held", "resting", "members")


@app.command()
def create(
    context: typer.Context,
    name: Name,
    ordered: Annotated[bool, typer.Option("--ordered", help="Keep the order of each key; it never changes.")] = False,
    max_attempts: Attempts = None,
    backout: Backout = None,
    dead_letters: Letters = None,
    first_retry: FirstRetry = None,
    longest_retry: LongestRetry = None,
    expires: Expires = None,
) -> None:
    """Create a group whose members work messages off one by one; one that exists stays as it is."""
    changes = _changes(max_attempts, backout, dead_letters, first_retry, longest_retry, expires)
    options = options_of(context)
    with opened(options) as broker:
        group = broker.create_group(name, ordered=ordered, **changes)  # type: ignore[arg-type]
    _show(group, as_json=options.json)


@app.command()
def alter(
    context: typer.Context,
    name: Name,
    max_attempts: Attempts = None,
    backout: Backout = None,
    dead_letters: Letters = None,
    first_retry: FirstRetry = None,
    longest_retry: LongestRetry = None,
    expires: Expires = None,
) -> None:
    """Change what a group does with messages that fail, or when it expires; its members follow within seconds."""
    changes = _changes(max_attempts, backout, dead_letters, first_retry, longest_retry, expires)
    options = options_of(context)
    with opened(options) as broker:
        group = broker.alter_group(name, **changes)
    _show(group, as_json=options.json)


@app.command("list")
def list_groups(context: typer.Context) -> None:
    """List the groups, where they stand in each topic, and their dead letters."""
    options = options_of(context)
    with opened(options) as broker:
        store = broker.kernel.store
        groups, readings, dead = store.groups.all(), store.overview.readings(), store.overview.dead_letters()
    if options.json:
        document([{**_document(group), "dead_letters": dead.get(group.name, 0)} for group in groups])
        return
    table(("group", "style", "dead letters"), [(g.name, g.style, dead.get(g.name, 0)) for g in groups])
    if readings:
        say()
        table(GROUP, [group_row(reading) for reading in readings])


@app.command()
def show(context: typer.Context, name: Name) -> None:
    """Show one group, and where it stands in each queue."""
    options = options_of(context)
    with opened(options) as broker:
        store = broker.kernel.store
        group = store.groups.find(name)
        if group is None:
            raise UnknownGroup(name)
        readings = [reading for reading in store.overview.readings() if reading.group == name]
    if options.json:
        document({**_document(group), "topics": [group_document(reading) for reading in readings]})
        return
    fields(_document(group))
    say()
    rows = [
        (reading.topic, p.queue, p.head, p.offset, p.lowest, p.held, p.resting)
        for reading in readings
        for p in reading.positions
    ]
    table(("topic", "queue", "head", "offset", "lowest", "held", "resting"), rows)


@app.command()
def reset(
    context: typer.Context,
    name: Name,
    to: Annotated[str, typer.Option(help="earliest, latest, a time with its zone, or an offset.")],
    topic: Annotated[str | None, typer.Option(help="Only in this topic.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without it nothing is changed.")] = False,
) -> None:
    """Put a group that nobody reads elsewhere; first without --yes, to see what would move."""
    options, start = options_of(context), start_of(to, "--to")
    with opened(options) as broker, progress(f"looking at the queues of {name}", quiet=options.json):
        moves = broker.reset_group(name, start, topic=topic, dry_run=not yes)
    if options.json:
        document({"group": name, "done": yes, "moves": [move._asdict() for move in moves]})
        return
    table(("topic", "queue", "before", "after"), moves)
    say(f"\n{name} was moved" if yes else "\nnothing was changed; say --yes to do it")


@app.command()
def leave(
    context: typer.Context,
    name: Name,
    topic: Annotated[str, typer.Option(help="Topic that the group reads no more.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without it nothing is changed.")] = False,
) -> None:
    """Take a group that nobody reads out of a topic; first without --yes, to see what it would miss."""
    options = options_of(context)
    with opened(options) as broker:
        positions = broker.leave_topic(name, topic, dry_run=not yes)
    if options.json:
        queues = [{**asdict(position), "lag": position.lag} for position in positions]
        document({"group": name, "topic": topic, "done": yes, "queues": queues})
        return
    table(
        ("queue", "offset", "lag", "held", "resting"),
        [(p.queue, p.offset, p.lag, p.held, p.resting) for p in positions],
    )
    say(f"\n{name} left {topic}" if yes else "\nnothing was changed; say --yes to do it")


def group_row(reading: Reading) -> tuple[object, ...]:
    """Write where a group stands in a topic for people."""
    return reading.group, reading.topic, reading.lag, reading.held, reading.resting, reading.members


def group_document(reading: Reading) -> dict[str, object]:
    """Write where a group stands in a topic for programs."""
    queues = [{**asdict(position), "lag": position.lag} for position in reading.positions]
    return {**dict(zip(GROUP, group_row(reading), strict=True)), "queues": queues}


def _document(group: ConsumerGroup) -> dict[str, object]:
    return {"group": group.name, "style": group.style, **asdict(group.policy)}


def _show(group: ConsumerGroup, *, as_json: bool) -> None:
    (document if as_json else fields)(_document(group))


def _changes(
    max_attempts: int | None,
    backout: str | None,
    dead_letters: bool | None,
    first_retry: float | None,
    longest_retry: float | None,
    expires: float | None,
) -> dict[str, object]:
    given = {
        "max_attempts": max_attempts,
        "backout": backout,
        "dead_letters": dead_letters,
        "first_retry": None if first_retry is None else timedelta(seconds=first_retry),
        "longest_retry": None if longest_retry is None else timedelta(seconds=longest_retry),
        "expires": None if expires is None else timedelta(seconds=expires),
    }
    changes: dict[str, object] = {name: value for name, value in given.items() if value is not None}
    # On a command line nothing can be said by None.
    none = {"max_attempts": 0, "backout": "", "expires": timedelta()}
    return {name: None if name in none and value == none[name] else value for name, value in changes.items()}
