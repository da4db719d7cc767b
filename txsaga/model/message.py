"""
Messages: what a user sends and what a reader gets.

A message is checked when it is made, before anything is stored; the error holds the number that is too big.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from txsaga.errors import InvalidMessage
from txsaga.model.identity import HalfId
from txsaga.model.sending import TRANSACTION_ID

MAX_BODY = 4 * 1024 * 1024
MAX_KEY = 1024
MAX_TAG = 255
MAX_HEADERS = 32 * 1024
MAX_DELAY = timedelta(days=40)

Body = bytes | str


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
    def text(cls, topic: str, text: str, **options: object) -> Message:
        """Make a message from text, as UTF-8."""
        return cls(topic, text.encode(), **options)  # type: ignore[arg-type]  # checked by validate()

    @classmethod
    def json(cls, topic: str, value: object, **options: object) -> Message:
        """Make a message from a JSON value."""
        body = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
        return cls(topic, body, **options)  # type: ignore[arg-type]  # checked by validate()

    @property
    def scheduled(self) -> bool:
        """Tell whether it is to be delivered later."""
        return self.delay is not None or self.deliver_at is not None

    @property
    def tx_id(self) -> str | None:
        """The transaction id: the client's unique key, else the store's, once the half is stored."""
        return self.unique_key or (self.headers or {}).get(TRANSACTION_ID)

    def stored_in(self, transaction: str) -> Message:
        """Copy the store's id of its transaction, when there is one, to the user property."""
        if not transaction:
            return self
        return replace(self, headers={**(self.headers or {}), TRANSACTION_ID: transaction})

    def unscheduled(self) -> Message:
        """Drop the delay."""
        return replace(self, delay=None, deliver_at=None)


def validate(message: Message) -> None:
    """Raise `InvalidMessage` unless the message can be stored."""
    if not isinstance(message.topic, str):
        raise InvalidMessage(f"the topic is {type(message.topic).__name__}, not the name of one")
    if not message.topic:
        raise InvalidMessage("the topic is empty; name one")
    if not isinstance(message.body, bytes):
        raise InvalidMessage(f"the body is {type(message.body).__name__}, not bytes; use Message.text or Message.json")
    _at_most("the body", len(message.body), MAX_BODY)
    for what, text, most in (
        ("the key", message.key, MAX_KEY),
        ("the tag", message.tag, MAX_TAG),
        ("the ordering key", message.ordering_key, MAX_KEY),
        ("the unique key", message.unique_key, MAX_KEY),
    ):
        if text is not None:
            _text(what, text, most)
    if message.headers:
        _headers(message.headers)
    if message.scheduled:
        _schedule(message)


def _text(what: str, text: object, most: int) -> None:
    if not isinstance(text, str):
        raise InvalidMessage(f"{what} is {type(text).__name__}, not str")
    _at_most(what, _size(what, text), most)


def _size(what: str, text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidMessage(f"{what} can't be stored as UTF-8: {error.reason}") from None


def _at_most(what: str, size: int, most: int) -> None:
    if size > most:
        raise InvalidMessage(f"{what} has {size:,} bytes; at most {most:,} are stored")


def _headers(headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidMessage(f"header {name!r} is not text; headers map str to str")
    size = sum(_size(f"header {k!r}", k) + _size(f"header {k!r}", v) for k, v in headers.items())
    _at_most("the headers", size, MAX_HEADERS)


def _schedule(message: Message) -> None:
    if message.delay is not None and message.deliver_at is not None:
        raise InvalidMessage("delay and deliver_at are both given; give one")
    if message.deliver_at is not None and message.deliver_at.tzinfo is None:
        raise InvalidMessage(f"deliver_at {message.deliver_at} has no time zone; use pendulum or an aware datetime")
    if message.delay is not None and not timedelta(0) < message.delay <= MAX_DELAY:
        raise InvalidMessage(f"delay is {message.delay}; it lies between 0 and {MAX_DELAY.days} days")


@dataclass(frozen=True, slots=True)
class Delivered:
    """One message as its reader gets it: an ordinary message, rebuilt from its half."""

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
    half: HalfId  # the chunk it lies in
    index: int  # its place there

    @property
    def id(self) -> str:
        """The id that names the store and the half; it can be decoded."""
        return replace(self.half, index=self.index).encode()

    @property
    def tx_id(self) -> str:
        """The transaction id: the client's unique key, else the store's."""
        return self.unique_key or self.half.transaction

    @property
    def properties(self) -> Mapping[str, str]:
        """The headers, and the transaction id under the name that clients of half messages know."""
        return {**self.headers, TRANSACTION_ID: self.half.transaction}

    def text(self) -> str:
        """Read the body as UTF-8 text."""
        return self.body.decode()

    def json(self) -> object:
        """Read the body as JSON."""
        return json.loads(self.body)
