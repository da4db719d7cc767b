"""
Topics: what may be sent to which type, and which names belong to the system.

Only an empty topic gets another type. Without the check of the table below before a send, a half message could be
stored in a topic whose readers expect order or delay, unnoticed until it is delivered.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from math import ceil
from zlib import crc32

from txsaga.core.arguments import kind_of
from txsaga.errors import ConfigError, InvalidMessage, ReservedName, TopicTypeMismatch

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
PARKED_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
SYSTEM_TOPICS = frozenset({HALF_TOPIC, OP_TOPIC, PARKED_TOPIC, "SCHEDULE_TOPIC_XXXX", "OFFSET_MOVED_EVENT"})
DELETED = "~"
"""In the stored name of a deleted topic, and in no other: its rows stay as long as its messages."""
MAX_NAME = 127
MAX_QUEUES = 1024
MAX_RETENTION = timedelta(days=36_500)
MAX_RETENTION_BYTES = 2**63 - 1


class TopicType(StrEnum):
    """The kind of messages that a topic accepts."""

    NORMAL = "normal"
    FIFO = "fifo"
    DELAY = "delay"
    TRANSACTION = "transaction"


class SendKind(StrEnum):
    """How a message gets into the store."""

    PLAIN = "a plain send"
    HALF = "a transactional send"
    JOIN = "a send joined to your own transaction"


ALLOWED: dict[SendKind, frozenset[TopicType]] = {
    SendKind.PLAIN: frozenset({TopicType.NORMAL, TopicType.FIFO, TopicType.DELAY}),
    SendKind.HALF: frozenset({TopicType.TRANSACTION, TopicType.FIFO}),
    # The xid of a joined send is older than its commit, so order can't be promised on fifo.
    SendKind.JOIN: frozenset({TopicType.NORMAL, TopicType.TRANSACTION}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic and its queues, in the order of their index."""

    id: int
    name: str
    type: TopicType
    qids: tuple[int, ...]
    retention_seconds: int | None = None
    retention_bytes: int | None = None

    def __str__(self) -> str:
        kept = [f"{self.retention_seconds} s"] if self.retention_seconds is not None else []
        kept += [f"{self.retention_bytes} bytes"] if self.retention_bytes is not None else []
        return f"{self.type} with {len(self.qids)} queues, retention {' and '.join(kept) or 'without end'}"

    def check(self, way: SendKind) -> None:
        """Raise unless the topic takes this kind of send."""
        if self.type not in ALLOWED[way]:
            fitting = ", ".join(sorted(ALLOWED[way]))
            raise TopicTypeMismatch(
                f"topic {self.name!r} is of type {self.type}; {way.value} needs a topic of type {fitting}; "
                "create one with `txsaga topic create NAME --type TYPE`"
            )

    def admit(self, way: SendKind, *, ordered: bool, scheduled: bool = False) -> None:
        """Raise unless a topic that takes this kind of send takes it with or without an ordering key and a delay."""
        if scheduled and not (self.type is TopicType.DELAY and way is SendKind.PLAIN):
            raise InvalidMessage(
                f"topic {self.name!r} is of type {self.type}; "
                "delay and deliver_at are for a plain send to one of type delay"
            )
        if self.type is TopicType.DELAY and not scheduled:
            raise InvalidMessage(
                f"topic {self.name!r} takes delayed messages only; give each message a delay or deliver_at with send(…)"
            )
        if self.type is TopicType.FIFO and not ordered:
            raise InvalidMessage(f"topic {self.name!r} is ordered; give each message an ordering_key with send(…)")

    def queue_for(self, key: str | None, turn: int) -> int:
        """Return the queue: always the same for a key; without a key, in turn."""
        if key is None:
            return self.qids[turn % len(self.qids)]
        return self.qids[crc32(key.encode()) % len(self.qids)]


class TopicChanges:
    """Counts the changes that this process made or met: a topic that was looked up before is looked up again."""

    count = 0


def check_name(name: object, *, what: str = "topic", known: Callable[[], bool] = lambda: True) -> None:
    """Raise unless users may use this name; one that is not `known` yet begins with a letter, a digit or _."""
    if not isinstance(name, str):
        raise InvalidMessage(f"a {what} name is {kind_of(name)}, not str")
    if not name or len(name) > MAX_NAME:
        raise InvalidMessage(f"a {what} name has 1 to {MAX_NAME} characters, this one has {len(name)}")
    if not all(c.isalnum() or c in "_-.%|" for c in name):
        raise InvalidMessage(f"{what} name {name!r} may hold letters, digits and _ - . % | only")
    if name[0] in "-.%|" and not known():  # a path, an option, or what clients of half messages use for retries
        raise InvalidMessage(f"{what} name {name!r} is refused: a name begins with a letter, a digit or _")
    if name in SYSTEM_TOPICS or name.lower().startswith("rmq_sys"):
        raise ReservedName(name)


def type_of(type: object) -> TopicType:
    """Return the topic type of this name."""
    try:
        return TopicType(type)  # type: ignore[arg-type]  # any other value raises
    except ValueError:
        raise ConfigError(f"topic type {type!r} is none of {', '.join(TopicType)}") from None


def check_queues(queues: object) -> None:
    """Raise unless a topic may have this many queues."""
    if type(queues) is not int or not 1 <= queues <= MAX_QUEUES:
        raise ConfigError(f"a topic has 1 to {MAX_QUEUES} queues, not {queues!r}")


def seconds_of(retention: object) -> int | None:
    """Return a retention in whole seconds, never less than requested."""
    if retention is None:
        return None
    if not isinstance(retention, timedelta):
        raise ConfigError(f"retention is {retention!r}; give a timedelta, like timedelta(days=7)")
    if not timedelta(0) <= retention <= MAX_RETENTION:
        raise ConfigError(f"retention is {retention}; it must be between 0 and {MAX_RETENTION.days:,} days")
    return ceil(retention.total_seconds())


def check_retention_bytes(bytes: object) -> None:
    """Raise unless this can be the number of bytes that a topic keeps."""
    if bytes is not None and (type(bytes) is not int or not 0 <= bytes <= MAX_RETENTION_BYTES):
        raise ConfigError(f"retention_bytes is {bytes!r}; give a number of bytes, from 0 to {MAX_RETENTION_BYTES}")
