"""`txsaga topic`: create, alter, list, show, purge and delete topics."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from txsaga.cli.home import opened, reading
from txsaga.cli.options import Yes, options_of, span_of, whole
from txsaga.cli.printing import document, fields, listing, result, say, table
from txsaga.core.topic import MAX_RETENTION_BYTES, TopicType
from txsaga.inspect.documents import topic_document, topic_states

if TYPE_CHECKING:
    from txsaga.broker import Broker

app = typer.Typer(help="Create, alter, list, show, purge and delete topics.")
Name = Annotated[str, typer.Argument(help="Name of the topic.")]
Retention = Annotated[
    timedelta | None,
    typer.Option(parser=span_of, metavar="TIME", help="How long read messages are kept: 90s, 12h, 30d."),
]
RetentionBytes = Annotated[
    int | None,
    typer.Option(
        parser=whole(0, MAX_RETENTION_BYTES),
        metavar="NUMBER",
        help="Delete old messages once newer ones take this many bytes.",
    ),
]


@app.command()
def create(
    context: typer.Context,
    name: Name,
    type: Annotated[TopicType, typer.Option(help="Kind of its messages.")] = TopicType.NORMAL,
    queues: Annotated[
        int, typer.Option(parser=whole(1, 1024), metavar="NUMBER", help="Number of queues. It can't be changed later.")
    ] = 8,
    retention: Retention = None,
    retention_bytes: RetentionBytes = None,
) -> None:
    """Create a topic. Creating the same topic again is not an error."""
    options = options_of(context)
    with opened(options) as broker:
        topic = broker.create_topic(name, type, queues=queues, retention=retention, retention_bytes=retention_bytes)
    found = {"name": topic.name, "type": topic.type, "queues": len(topic.qids)}
    result(options, found, f"topic {topic.name} of type {topic.type} has {len(topic.qids)} queues")


@app.command()
def alter(
    context: typer.Context,
    name: Name,
    retention: Retention = None,
    retention_bytes: RetentionBytes = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep messages forever.")] = False,
    type: Annotated[TopicType | None, typer.Option(help="Kind of its messages; only for an empty topic.")] = None,
) -> None:
    """Change how long a topic keeps its messages, or its type. Options that are left out stay unchanged."""
    limited = retention is not None or retention_bytes is not None
    if (keep and limited) or not (keep or limited or type):
        raise typer.BadParameter("use --retention or --retention-bytes, or --keep, or --type", param_hint="--keep")
    options = options_of(context)
    with opened(options) as broker:
        before = broker.kernel.store.registry.topic(name)
        size = before.retention_bytes if retention_bytes is None else retention_bytes
        stood = None if before.retention_seconds is None else timedelta(seconds=before.retention_seconds)
        limits = (None, None) if keep else (stood if retention is None else retention, size)
        topic = broker.alter_topic(name, retention=limits[0], retention_bytes=limits[1], type=type)
    shown = {key: getattr(topic, key) for key in ("name", "type", "retention_seconds", "retention_bytes")}
    (document if options.json else fields)(shown)


@app.command()
def purge(context: typer.Context, name: Name, yes: Yes = False) -> None:
    """Drop the messages of a topic, also for its groups. Without --yes it only shows how many there are."""
    _drop(context, name, yes, lambda broker: broker.purge_topic(name), "messages dropped from {name}: {count}")


@app.command()
def delete(context: typer.Context, name: Name, yes: Yes = False) -> None:
    """Delete a topic that no group reads, with its messages. Without --yes it only shows how many there are."""
    _drop(context, name, yes, lambda broker: broker.delete_topic(name), "deleted {name}")


def _drop(context: typer.Context, name: str, yes: bool, drop: Callable[[Broker], int], done: str) -> None:
    options = options_of(context)
    with opened(options) as broker:
        count = drop(broker) if yes else topic_states(broker.kernel.store, name)[0].messages
    text = done if yes else "messages in {name}: {count}; nothing was changed; pass --yes to do it"
    result(options, {"name": name, "messages": count, "done": yes}, text.format(name=name, count=count))


@app.command("list")
def list_topics(context: typer.Context) -> None:
    """List all topics with their number of readable messages."""
    options = options_of(context)
    with reading(options) as store:
        topics = topic_states(store)
    rows = [(state.topic.name, state.topic.type, len(state.bounds), state.messages) for state in topics]
    listing(options, map(topic_document, topics), ("name", "type", "queues", "messages"), rows)


@app.command()
def show(context: typer.Context, name: Name) -> None:
    """Show one topic, and the first and last offset of each queue."""
    options = options_of(context)
    with reading(options) as store:
        (state,) = topic_states(store, name)
    shown = topic_document(state)
    if options.json:
        document(shown)
        return
    fields({key: shown[key] for key in ("name", "type", "messages", "retention_seconds", "retention_bytes")})
    say()
    table(("queue", "tail", "head"), [(at, *bounds) for at, bounds in enumerate(state.bounds)])
