"""
Topics: what may be sent to which type, and which names are the system's.

A topic's type is fixed when it is created. If the table below were not asked before a send, a half could
lie under a topic whose readers expect order or delay, and nobody would notice until it is delivered.
"""

from dataclasses import dataclass
from enum import StrEnum
from zlib import crc32

from txsaga.errors import InvalidMessage, ReservedName, TopicTypeMismatch

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
PARKED_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
SYSTEM_TOPICS = frozenset({HALF_TOPIC, OP_TOPIC, PARKED_TOPIC, "SCHEDULE_TOPIC_XXXX", "OFFSET_MOVED_EVENT"})
MAX_NAME = 127


class TopicType(StrEnum):
    """What a topic is for."""

    NORMAL = "normal"
    FIFO = "fifo"
    DELAY = "delay"
    TRANSACTION = "transaction"


class Way(StrEnum):
    """How a message gets into the store."""

    PLAIN = "a plain send"
    HALF = "a transactional send"
    JOIN = "a send joined to your own transaction"


ALLOWED: dict[Way, frozenset[TopicType]] = {
    Way.PLAIN: frozenset({TopicType.NORMAL, TopicType.FIFO, TopicType.DELAY}),
    Way.HALF: frozenset({TopicType.TRANSACTION, TopicType.FIFO}),
    # The xid of a joined send is older than its commit, so order can't be promised on fifo.
    Way.JOIN: frozenset({TopicType.NORMAL, TopicType.TRANSACTION}),
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

    def check(self, way: Way) -> None:
        """Raise unless messages may come in this way."""
        if self.type not in ALLOWED[way]:
            fitting = ", ".join(sorted(ALLOWED[way]))
            raise TopicTypeMismatch(
                f"topic {self.name!r} is of type {self.type}; {way.value} needs a topic of type {fitting}"
            )

    def queue_for(self, key: str | None, turn: int) -> int:
        """Choose the queue: by key, always the same; without one, by turns."""
        if key is None:
            return self.qids[turn % len(self.qids)]
        return self.qids[crc32(key.encode()) % len(self.qids)]


def check_name(name: str, *, what: str = "topic") -> None:
    """Raise unless users may use this name."""
    if not name or len(name) > MAX_NAME:
        raise InvalidMessage(f"a {what} name has 1 to {MAX_NAME} characters, this one has {len(name)}")
    if not all(c.isalnum() or c in "_-.%|" for c in name):
        raise InvalidMessage(f"{what} name {name!r} may hold letters, digits and _ - . % | only")
    if name in SYSTEM_TOPICS or name.lower().startswith("rmq_sys"):
        raise ReservedName(name)
