"""`txsaga consume`: work a group's messages off by printing them."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from typing import Annotated

import typer

from txsaga.cli.home import opened
from txsaga.cli.options import options_of
from txsaga.cli.printing import line_of, message_document, one_line
from txsaga.cli.tail import Count, dispatching, start_of

QUIET = 1.0
"""Seconds without a message after which there are none."""


def consume(
    context: typer.Context,
    group: Annotated[str, typer.Argument(help="Name of the consumer group.")],
    topics: Annotated[list[str], typer.Argument(help="Names of topics.")],
    count: Count = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes.")] = False,
    start: Annotated[str, typer.Option("--from", help="Where a new group begins, as in tail.")] = "earliest",
    tag: Annotated[str | None, typer.Option(help="Print messages with this tag; others count as done.")] = None,
) -> None:
    """Print a group's messages, acknowledging each once it is printed; with --json one document per line."""
    options, begin = options_of(context), start_of(start)
    with (
        opened(options, rest=time.sleep if follow else None) as broker,
        dispatching(broker, follow),
        broker.consumer(group, topics, start=begin, tag=tag, batch=min(count or 32, 32)) as consumer,
        closing(consumer.messages(wait=None if follow else QUIET)) as messages,
    ):
        for at, message in enumerate(messages, start=1):
            text = one_line(message_document(message.delivered)) if options.json else line_of(message.delivered)
            try:
                sys.stdout.write(f"{text}\n")
                sys.stdout.flush()
            except OSError:
                message.give_back()  # nobody failed at it: an output that broke must end the command, and no more
                raise
            message.ack()
            if at == count:
                break
