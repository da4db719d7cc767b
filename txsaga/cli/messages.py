"""`txsaga send`, `tail` and `consume`: send one plain message, print messages of a group or without leaving a trace."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from txsaga.cli.home import opened
from txsaga.cli.options import Options, moment_of, options_of, span_of, start_of, whole
from txsaga.cli.printing import line_of, message_json, result, say
from txsaga.consume.dispatcher import dispatch, may_dispatch
from txsaga.core.topic import check_name

if TYPE_CHECKING:
    from txsaga.broker import Broker
    from txsaga.consume.queue_reader import Start
    from txsaga.consume.stream import Stream
    from txsaga.core.kernel import Kernel
    from txsaga.core.layout import Batch
    from txsaga.core.message import Delivered


GROUP = "txsaga-cli"


def send(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    body: Annotated[str, typer.Argument(help="Body of the message; - reads it from standard input.")] = "-",
    key: Annotated[str | None, typer.Option(help="Key; messages with the same key go to the same queue.")] = None,
    tag: Annotated[str | None, typer.Option(help="Tag that readers can filter by.")] = None,
    header: Annotated[list[str] | None, typer.Option(help="Header as name=value; may be repeated.")] = None,
    ordering_key: Annotated[str | None, typer.Option(help="Messages with the same ordering key stay in order.")] = None,
    group: Annotated[str, typer.Option(help="Producer group.")] = GROUP,
    delay: Annotated[
        timedelta | None,
        typer.Option(parser=span_of, metavar="TIME", help="Deliver after this delay: 90s, 15m, 12h, 30d."),
    ] = None,
    deliver_at: Annotated[
        datetime | None, typer.Option(parser=moment_of, metavar="TIME", help="Deliver at a time with a zone.")
    ] = None,
) -> None:
    """Send a plain message. It is durable when the command returns."""
    from txsaga.core.message import Message

    options = options_of(context)
    headers = dict(_pair(text) for text in header or ())
    content = _standard_input() if body == "-" else os.fsencode(body)
    message = Message(topic, content, key, tag, headers or None, ordering_key, deliver_at=deliver_at, delay=delay)
    with opened(options) as broker:
        receipt = broker.producer(group).send(message)
        dispatch(broker.kernel)
        id = broker.identity.transaction(receipt.txid)
    told = f"sent {len(content)} bytes to {topic} as {id}{', for later' if message.scheduled else ''}"
    result(options, {"topic": topic, "txid": receipt.txid, "id": id, "bytes": len(content)}, told)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"{text!r} is not a header; write name=value", param_hint="--header")
    return name, value


def _standard_input() -> bytes:
    if sys.stdin is None:
        raise typer.BadParameter("there is no standard input; give the body as an argument", param_hint="BODY")
    return sys.stdin.buffer.read()


Count = Annotated[
    int | None, typer.Option(parser=whole(1, sys.maxsize), metavar="NUMBER", help="Stop after this many messages.")
]
QUIET = 1.0
"""Seconds without news after which a group has read all there is."""


def tail(
    context: typer.Context,
    topics: Annotated[list[str], typer.Argument(help="Names of topics.")],
    start: Annotated[
        str, typer.Option("--from", help="earliest, latest, a time with a zone, or an offset.")
    ] = "earliest",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing new messages.")] = False,
    group: Annotated[
        str | None, typer.Option(help="Read as a member of this consumer group and save its position.")
    ] = None,
    count: Count = None,
    tag: Annotated[str | None, typer.Option(help="Only print messages with this tag.")] = None,
) -> None:
    """Print messages. Without --group no position is saved."""
    options, begin = options_of(context), start_of(start)
    with opened(options, rest=time.sleep if follow else None) as broker, dispatching(broker, follow):
        if group is None:
            found = Tail(broker.kernel, topics, start=begin).messages(follow=follow)
            messages = islice((message for message in found if tag is None or message.tag == tag), count)
            show(messages, options, follow=follow, at_once=follow)
        else:
            with (
                closing(broker.stream(group, topics, start=begin)) as stream,
                closing(taken(stream, wait=None if follow else QUIET, tag=tag, count=count)) as delivered,
            ):
                show(delivered, options, follow=follow, at_once=True)


def consume(
    context: typer.Context,
    group: Annotated[str, typer.Argument(help="Name of the consumer group.")],
    topics: Annotated[list[str], typer.Argument(help="Names of topics.")],
    count: Count = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing new messages.")] = False,
    start: Annotated[str, typer.Option("--from", help="Where a new group starts, as in tail.")] = "earliest",
    tag: Annotated[str | None, typer.Option(help="Print only this tag; acknowledge the rest too.")] = None,
) -> None:
    """Print messages of a consumer group and acknowledge each one. --json prints one document per line."""
    options, begin = options_of(context), start_of(start)
    write = message_json if options.json else line_of
    with (
        opened(options, rest=time.sleep if follow else None) as broker,
        dispatching(broker, follow),
        broker.consumer(group, topics, start=begin, tag=tag, batch=min(count or 32, 32)) as consumer,
        closing(consumer.messages(wait=None if follow else QUIET)) as messages,
    ):
        for at, message in enumerate(messages, start=1):
            try:
                sys.stdout.write(f"{write(message.delivered)}\n")
                sys.stdout.flush()
            except OSError:
                message.give_back()  # not a failed attempt: a broken output only ends the command
                raise
            message.ack()
            if at == count:
                break


@contextmanager
def dispatching(broker: Broker, follow: bool) -> Iterator[None]:
    """Give offsets to what is decided: once, or all the while."""
    from txsaga.consume.dispatcher import Dispatcher
    from txsaga.core.role_loop import Loop

    dispatch(broker.kernel)
    with ExitStack() as leaving:
        if follow and may_dispatch(broker.kernel):
            loop = Loop([Dispatcher(broker.kernel)])
            loop.start()
            leaving.callback(loop.stop)
        yield


def show(messages: Iterator[Delivered], options: Options, *, follow: bool, at_once: bool) -> None:
    """Print messages as they come; as JSON one array, or with --follow one document per line.

    `at_once`: a message is written before the next one is requested, which moves the cursor of a group past it.
    """
    write = message_json if options.json else line_of
    in_array = options.json and not follow
    before, behind = ("[\n", "") if in_array else ("", "\n")
    for message in messages:
        sys.stdout.write(f"{before}{write(message)}{behind}")
        if at_once:
            sys.stdout.flush()
        before = ",\n" if in_array else ""
    if in_array:
        say("[]" if before == "[\n" else "\n]")


IDLE = 0.5
"""Seconds between two polls when no tick announces news."""


class Tail:
    """Reads topics from a start on, without a group."""

    def __init__(self, kernel: Kernel, topics: Sequence[str], *, start: Start = "earliest") -> None:
        from txsaga.consume.queue_reader import QueueReader, first_offset

        for name in topics:
            check_name(name)
        self._log = kernel.store.log
        places = kernel.topics.by_queue(list(dict.fromkeys(topics)))
        self._heads = {qid: bounds.head for qid, bounds in self._log.bounds(list(places)).items()}
        self._readers = {
            qid: QueueReader(
                self._log,
                qid,
                topic.name,
                index,
                kernel.store.registry.identity,
                first_offset(self._log, qid, start),
                past="txsaga tail '{topic}' --from {behind}",
            )
            for qid, (topic, index) in places.items()
        }

    def messages(self, *, follow: bool = False) -> Generator[Delivered]:
        """Yield what is there now, queue by queue in turns; with `follow`, go on with what comes."""
        while True:
            news = False
            for qid, reader in list(self._readers.items()):
                if (batch := reader.next()) is not None:
                    news = True
                    yield from self._wanted(batch, follow)
                elif not follow:
                    del self._readers[qid]
            if not self._readers:
                return
            if not news:
                self._log.wait(IDLE)

    def _wanted(self, batch: Batch, follow: bool) -> Iterator[Delivered]:
        head = self._heads[batch.qid]
        if not follow and batch.end >= head:
            self._readers.pop(batch.qid, None)
        return (message for message in batch.messages() if follow or message.offset < head)


def taken(
    stream: Stream, *, wait: float | None, tag: str | None = None, count: int | None = None
) -> Generator[Delivered]:
    """Yield a group's messages, at most `count`; each is committed when the next one is requested."""
    left = count
    for batch in stream.batches(wait=wait):
        done = batch.offset
        try:
            for message in batch.messages():
                if tag is None or message.tag == tag:
                    yield message
                    left = None if left is None else left - 1
                done = message.offset + 1
                if left == 0:
                    return
        finally:
            if done > batch.offset:
                stream.commit(batch, upto=done)
