"""
Messages: what a user sends and what a reader gets.

A message is a plain value; `validation` checks it when it is sent, before anything is stored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any, TypedDict, Unpack

from txsaga.core.arguments import kind_of
from txsaga.core.identity import HalfId
from txsaga.errors import InvalidMessage

TRANSACTION_ID = "__transactionId__"
MAX_BODY = 4 * 1024 * 1024
MAX_KEY = 1024
MAX_TAG = 255
MAX_HEADERS = 32 * 1024
MAX_DELAY = timedelta(days=40)


Column = Sequence[str] | None  # a value for each of many messages


class SlotOptions(TypedDict, total=False):
    """The options of a message whose body is not known yet."""

    key: str | None
    tag: str | None
    headers: Mapping[str, str] | None
    ordering_key: str | None


class MessageOptions(SlotOptions, total=False):
    """The options of a message, besides its topic and its body."""

    persistent: bool
    deliver_at: datetime | None
    delay: timedelta | None
    unique_key: str | None


class SendOptions(MessageOptions, total=False):
    """The options of a send: those of a message, and its body as text or as a JSON value."""

    text: str
    json: object


@dataclass(frozen=True, slots=True)
class Message:
    """One message to be sent."""

    topic: str
    body: bytes
    key: str | None = None
    tag: str | None = None
    headers: Mapping[str, str] | None = None
    ordering_key: str | None = None
    persistent: bool = True
    deliver_at: datetime | None = None
    delay: timedelta | None = None
    unique_key: str | None = None

    @classmethod
    def text(cls, topic: str, text: str, **options: Unpack[MessageOptions]) -> Message:
        """Make a message from text, as UTF-8."""
        if not isinstance(text, str):
            raise InvalidMessage(f"the text is {kind_of(text)}, not str; bytes are a body as they are")
        try:
            body = text.encode()
        except UnicodeEncodeError as reason:
            raise InvalidMessage(f"the text can't be stored as UTF-8: {reason.reason}") from None
        return made_of(topic, body, options)

    @classmethod
    def json(cls, topic: str, value: object, **options: Unpack[MessageOptions]) -> Message:
        """Make a message from a JSON value."""
        try:
            body = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, ValueError) as reason:
            raise InvalidMessage(f"the value can't be written as JSON: {reason}") from None
        return made_of(topic, body, options)

    @property
    def scheduled(self) -> bool:
        """Return whether it is to be delivered later."""
        return self.delay is not None or self.deliver_at is not None

    @property
    def tx_id(self) -> str | None:
        """The transaction id: the client's unique key, else the store's, once the half message is stored."""
        return self.unique_key or (self.headers or {}).get(TRANSACTION_ID)

    def stored_in(self, transaction: str) -> Message:
        """Return a copy with the store's id of its transaction, if it has one, as a user property."""
        if not transaction:
            return self
        return replace(self, headers={**(self.headers or {}), TRANSACTION_ID: transaction})

    def unscheduled(self) -> Message:
        """Return a copy without delay."""
        return replace(self, delay=None, deliver_at=None)


OPTIONS = tuple(field.name for field in fields(Message) if field.name not in ("topic", "body"))


def made_of(topic: str, body: bytes, options: Mapping[str, object]) -> Message:
    """Return a message with these options; raise `InvalidMessage` for an unknown one."""
    try:
        return Message(topic, body, **options)  # type: ignore[arg-type]  # checked by validate()
    except TypeError:
        unknown = ", ".join(map(repr, sorted(options.keys() - set(OPTIONS))))
        raise InvalidMessage(f"a message has no {unknown}; it takes text, json, {', '.join(OPTIONS)}") from None


def as_message(topic: object, body: bytes | None, options: Mapping[str, object]) -> Message:
    """Build a message from the arguments of a send; `Topics.admit` checks every field."""
    if isinstance(topic, Message):
        if body is not None or options:
            raise InvalidMessage("a Message has its own body and options; pass the Message alone")
        return topic
    if topic is None:
        raise InvalidMessage("the topic is None; give its name")
    if not isinstance(topic, str):
        raise InvalidMessage(
            f"send takes one message, not a {kind_of(topic)}; use send_many, or producer.transaction() for one decision"
        )
    if body is not None and not ("text" in options or "json" in options):
        return made_of(topic, body, options)
    rest = dict(options)
    given = [name for name in ("text", "json") if name in rest]
    if body is not None or len(given) != 1:
        raise InvalidMessage('a message has one body: give bytes, where b"" is an empty one, or text="…", or json=…')
    make: Any = getattr(Message, given[0])
    return make(topic, rest.pop(given[0]), **rest)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Delivered:
    """One message as its reader gets it: an ordinary message, rebuilt from its half message."""

    topic: str
    queue: int
    offset: int
    body: bytes
    key: str | None
    tag: str | None
    headers: Mapping[str, str]
    ordering_key: str | None
    persistent: bool
    unique_key: str | None
    born: datetime
    half: HalfId  # the chunk that holds it
    index: int  # its index in the chunk

    @property
    def id(self) -> str:
        """The id that names the store and the half message; it can be decoded."""
        return replace(self.half, index=self.index).encode()

    @property
    def tx_id(self) -> str:
        """The transaction id: the client's unique key, else the store's."""
        return self.unique_key or self.half.transaction

    @property
    def properties(self) -> Mapping[str, str]:
        """The headers, and the transaction id under the name that clients of half messages use."""
        return {**self.headers, TRANSACTION_ID: self.half.transaction}

    def text(self) -> str:
        """Read the body as UTF-8 text."""
        return self.body.decode()

    def json(self) -> object:
        """Read the body as JSON."""
        return json.loads(self.body)
