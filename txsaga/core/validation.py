"""
Checks of what users pass: messages, columns of messages, keys. They run before anything is stored.

The error names what is wrong and the number that is too big. If a wrong value got past here, the database would refuse
it, and the whole batch, with its own message, or a reader would fail on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from txsaga.core.arguments import check_kind, check_text, kind_of, name_of
from txsaga.core.identity import LAST
from txsaga.core.message import MAX_BODY, MAX_DELAY, MAX_HEADERS, MAX_KEY, MAX_TAG, Message
from txsaga.core.records import Receipt
from txsaga.core.stored_json import is_text
from txsaga.errors import ConfigError, InvalidMessage

MAX_TOKEN = 64


def validate(message: Message) -> None:
    """Raise `InvalidMessage` unless the message can be stored."""
    if not isinstance(message.topic, str):
        raise InvalidMessage(f"the topic is {kind_of(message.topic)}; give the name of a topic")
    if not message.topic:
        raise InvalidMessage("the topic is empty; name one")
    validate_body(message.body)
    if message.key is not None:
        _text("the key", message.key, MAX_KEY)
    if message.tag is not None:
        _text("the tag", message.tag, MAX_TAG)
    if message.ordering_key is not None:
        _text("the ordering key", message.ordering_key, MAX_KEY)
    if message.unique_key is not None:
        _text("the unique key", message.unique_key, MAX_KEY)
    if message.headers is not None:
        _headers(message.headers)
    if not isinstance(message.persistent, bool):
        raise InvalidMessage(f"persistent is {message.persistent!r}; give True or False")
    if message.scheduled:
        _schedule(message)


def validate_body(body: object) -> None:
    """Raise `InvalidMessage` unless this can be the body of a message."""
    if not isinstance(body, bytes):
        raise InvalidMessage(f"the body is {kind_of(body)}, not bytes; use text=, json= or encode it")
    _at_most("the body", len(body), MAX_BODY)


def validate_columns(bodies: Sequence[bytes], keys: Sequence[str] | None, tags: Sequence[str] | None) -> int:
    """Raise `InvalidMessage` unless these messages of one topic can be stored; return their bytes."""
    _list("the bodies", bodies)
    for kind in set(map(type, bodies)):
        if not issubclass(kind, bytes):
            raise InvalidMessage(f"a body is {name_of(kind)}, not bytes; encode it first")
    _at_most("a body", max(map(len, bodies), default=0), MAX_BODY)
    size = sum(map(len, bodies))
    for what, column, most in (("key", keys, MAX_KEY), ("tag", tags, MAX_TAG)):
        if column is not None:
            _list(f"the {what}s", column)
            if len(column) != len(bodies):
                raise InvalidMessage(f"{len(bodies)} bodies came with {len(column)} {what}s; give one each")
            size += _texts(f"a {what}", column, most)
    return size


def validate_sizes(body: int, key: int, tag: int) -> None:
    """Raise `InvalidMessage` unless messages whose longest parts are these can be stored."""
    for what, size, most in (("a body", body, MAX_BODY), ("a key", key, MAX_KEY), ("a tag", tag, MAX_TAG)):
        _at_most(what, size, most)


def validate_key(key: object) -> None:
    """Raise `InvalidMessage` unless a transaction may have this key."""
    _text("the key", key, MAX_KEY)
    if not key:
        raise InvalidMessage("the key is empty; give one or leave key= out")
    _no_nul("the key", str(key))


def validate_life(key: object, run: object) -> None:
    """Raise unless a transaction may have this key, or none, and belong to this run, or to none."""
    if key is not None:
        validate_key(key)
    if run is not None:
        check_text(run, "run", "give the name of the run that it belongs to, or leave it out")


def validate_receipt(receipt: object) -> None:
    """Raise `InvalidMessage` unless this can name a half message: others in its batch would fail too."""
    if not isinstance(receipt, Receipt):
        raise InvalidMessage(f"this is {kind_of(receipt)}, not a receipt; give one that a producer returned")
    numbers = all(type(each) is int and abs(each) <= LAST for each in (receipt.txid, receipt.group))
    if not numbers or not isinstance(receipt.token, bytes) or len(receipt.token) > MAX_TOKEN:
        raise InvalidMessage("this receipt has an invalid number or token; give one that a producer returned")


def validate_wanted_tag(tag: object) -> None:
    """Raise `ConfigError` unless a reader may filter by this tag: one tag, not an expression."""
    if tag is not None:
        check_kind(tag, str, "tag", "give the tag that is read, or leave it out")
        if not is_text(str(tag)) or "||" in str(tag) or len(str(tag)) > MAX_TAG:
            raise ConfigError(f"tag {str(tag)[:MAX_TAG]!r} is not a tag of a message; give one tag, as it was sent")


def validate_late(shape: Message) -> None:
    """Raise `InvalidMessage` unless the texts of a late message can be stored in a row until its body is known."""
    texts = {"the key": shape.key, "the tag": shape.tag, "the ordering key": shape.ordering_key}
    for name, value in (shape.headers or {}).items():
        texts |= {f"header {name!r}": name + value}
    for what, text in texts.items():
        _no_nul(what, text or "")


def _no_nul(what: str, text: str) -> None:
    if "\0" in text:
        raise InvalidMessage(f"{what} contains a NUL, which the database can't store in text; leave it out")


def _list(what: str, column: object) -> None:
    if isinstance(column, str | bytes) or not isinstance(column, Sequence):
        raise InvalidMessage(f"{what} are {kind_of(column)}; give a list")


def _texts(what: str, column: Sequence[str], most: int) -> int:
    for kind in set(map(type, column)):
        if not issubclass(kind, str):
            raise InvalidMessage(f"{what} is {name_of(kind)}, not str")
    size = _size(what, "".join(column))
    if max(map(len, column), default=0) * 4 > most:  # a character has at most four bytes
        _at_most(what, max(len(text.encode()) for text in column), most)
    return size


def _text(what: str, text: object, most: int) -> None:
    if not isinstance(text, str):
        raise InvalidMessage(f"{what} is {kind_of(text)}, not str")
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
    if not isinstance(headers, Mapping):
        raise InvalidMessage(f"the headers are {kind_of(headers)}; give a mapping of str to str")
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidMessage(f"header {name!r} is not text; headers map str to str")
    size = sum(_size(f"header {k!r}", k) + _size(f"header {k!r}", v) for k, v in headers.items())
    _at_most("the block of headers", size, MAX_HEADERS)


def _schedule(message: Message) -> None:
    delay, moment = message.delay, message.deliver_at
    if delay is not None and moment is not None:
        raise InvalidMessage("delay and deliver_at are both given; give one")
    if moment is not None:
        if not isinstance(moment, datetime):
            raise InvalidMessage(f"deliver_at is {moment!r}; give a datetime with a time zone")
        if moment.tzinfo is None:
            raise InvalidMessage(f"deliver_at {moment} has no time zone; use pendulum or an aware datetime")
        if not _is_shown(moment):
            raise InvalidMessage(f"deliver_at {moment} can't be represented everywhere; give a year between 2 and 9998")
    if delay is not None:
        if not isinstance(delay, timedelta):
            raise InvalidMessage(f"delay is {delay!r}; give a timedelta")
        if not timedelta(0) < delay <= MAX_DELAY:
            raise InvalidMessage(f"delay is {delay}; it must be between 0 and {MAX_DELAY.days} days")


def _is_shown(moment: datetime) -> bool:
    """Return whether the moment has a year in every time zone: otherwise a list that shows it can't be read at all."""
    with suppress(OverflowError):
        return 1 < moment.astimezone(UTC).year < 9999
    return False
