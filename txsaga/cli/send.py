"""`txsaga send`: one plain message."""

from __future__ import annotations

import os
import sys
from datetime import datetime, timedelta
from typing import Annotated

import typer

from txsaga.cli.home import dispatch, opened
from txsaga.cli.options import moment_of, options_of, span_of
from txsaga.cli.printing import document, say

GROUP = "txsaga-cli"


def send(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    body: Annotated[str, typer.Argument(help="The body; - reads it from standard input.")] = "-",
    key: Annotated[str | None, typer.Option(help="Key; the same key goes to the same queue.")] = None,
    tag: Annotated[str | None, typer.Option(help="Tag, for readers that choose by it.")] = None,
    header: Annotated[list[str] | None, typer.Option(help="Header as name=value; may be repeated.")] = None,
    ordering_key: Annotated[str | None, typer.Option(help="Messages of one ordering key stay in order.")] = None,
    group: Annotated[str, typer.Option(help="Producer group.")] = GROUP,
    delay: Annotated[
        timedelta | None,
        typer.Option(parser=span_of, metavar="TIME", help="Deliver so much later: 90s, 15m, 12h, 30d."),
    ] = None,
    deliver_at: Annotated[
        datetime | None, typer.Option(parser=moment_of, metavar="TIME", help="Deliver at a time with its zone.")
    ] = None,
) -> None:
    """Send a plain message; it is durable when this returns."""
    from txsaga.core.message import Message

    options = options_of(context)
    headers = dict(_pair(text) for text in header or ())
    content = _standard_input() if body == "-" else os.fsencode(body)
    message = Message(topic, content, key, tag, headers or None, ordering_key, deliver_at=deliver_at, delay=delay)
    with opened(options) as broker:
        receipt = broker.producer(group).send(message)
        dispatch(broker)
        id = broker.identity.transaction(receipt.txid)
    if options.json:
        document({"topic": topic, "txid": receipt.txid, "id": id, "bytes": len(content)})
    else:
        say(f"sent {len(content)} bytes to {topic} as {id}{', for later' if message.scheduled else ''}")


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"{text!r} is no header; write name=value", param_hint="--header")
    return name, value


def _standard_input() -> bytes:
    if sys.stdin is None:
        raise typer.BadParameter("there is no standard input; give the body as an argument", param_hint="BODY")
    return sys.stdin.buffer.read()
