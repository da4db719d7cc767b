"""Messages as commands print them: a line for people, a document for programs."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from txsaga.cli.printing import printable

if TYPE_CHECKING:
    from txsaga.model.message import Delivered


def line_of(message: Delivered) -> str:
    """Write a message for people."""
    marks = {"key": message.key, "tag": message.tag, **message.headers}
    words = [f"{printable(name)}={printable(value)}" for name, value in marks.items() if value is not None]
    text, encoding = _readable(message.body)
    body = printable(text) if encoding == "utf-8" else f"base64:{text}"
    return " ".join([f"{message.topic}/{message.queue}@{message.offset}", *words, body])


def message_document(message: Delivered) -> dict[str, object]:
    """Write a message for programs."""
    text, encoding = _readable(message.body)
    return {
        "topic": message.topic,
        "queue": message.queue,
        "offset": message.offset,
        "id": message.id,
        "tx_id": message.tx_id,
        "key": message.key,
        "tag": message.tag,
        "headers": dict(message.headers),
        "ordering_key": message.ordering_key,
        "born": message.born,
        "body": text,
        "encoding": encoding,
    }


def _readable(body: bytes) -> tuple[str, str]:
    try:
        return body.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), "base64"
