"""
Identity: which store, which incarnation of it, which half message.

Transaction numbers start again after a reset, in another namespace and after a restore. Every id that leaves the store
therefore names the store's uuid and its incarnation; otherwise a stale evidence row would mean COMMIT for another
transaction. A transaction keeps the incarnation in which it was created: under another one its own evidence would not
be found, and committed work would lose its messages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from uuid import UUID

from txsaga.core.arguments import check_kind, read_number
from txsaga.errors import UnknownTransaction

LAST = 2**63 - 1
"""The highest number that a store can assign to a transaction."""


def check_txid(txid: object, what: str = "txid", advice: str = "give the number of a transaction") -> None:
    """Raise `ConfigError` unless it is a number, and `UnknownTransaction` if no store could have assigned it."""
    check_kind(txid, int, what, advice)
    if abs(txid) > LAST:  # type: ignore[arg-type]  # it is a number
        raise UnknownTransaction(f"{what} is not a transaction of this store: numbers are between 1 and {LAST}")


@dataclass(frozen=True, slots=True)
class StoreId:
    """A store and its incarnation, which every `txsaga db adopt` raises."""

    uuid: UUID
    incarnation: int
    births: tuple[int, ...] = field(default=(), compare=False, repr=False)
    """The highest number assigned before each adoption, the latest adoption last."""

    def incarnation_of(self, txid: int) -> int:
        """Return the incarnation in which a transaction was created."""
        return self.incarnation - sum(txid <= birth for birth in self.births)

    def transaction(self, txid: int) -> str:
        """Return a transaction's id for use elsewhere."""
        return f"{self.uuid.hex}-{self.incarnation_of(txid):x}-{txid:x}"

    def own(self, transaction: str) -> int:
        """Return the number of a transaction, which must belong to this store."""
        uuid, incarnation, txid = _split(transaction, 3)
        number = int(txid, 16)
        check_txid(number, f"id {transaction[:99]!r}")
        if UUID(hex=uuid) != self.uuid or int(incarnation, 16) != self.incarnation_of(number):
            raise UnknownTransaction(f"transaction {transaction} belongs to another store; this one is {self}")
        return number

    def __str__(self) -> str:
        return f"{self.uuid.hex}-{self.incarnation:x}"


@dataclass(frozen=True, slots=True)
class HalfId:
    """One stored record: the store, its transaction, queue, chunk and index in the chunk."""

    store: StoreId
    txid: int
    part: int
    attempt: int
    qid: int
    chunk: int
    index: int

    @property
    def transaction(self) -> str:
        """The id of its transaction."""
        return self.store.transaction(self.txid)

    def encode(self) -> str:
        """Write it as text."""
        return f"{self.transaction}-{self.part:x}-{self.attempt:x}-{self.qid:x}-{self.chunk:x}-{self.index:x}"

    @classmethod
    def decode(cls, text: str) -> HalfId:
        """Parse it."""
        uuid, *numbers = _split(text, 8)
        incarnation, txid, part, attempt, qid, chunk, index = (int(number, 16) for number in numbers)
        return cls(StoreId(UUID(hex=uuid), incarnation), txid, part, attempt, qid, chunk, index)


def _split(text: str, parts: int) -> list[str]:
    if re.fullmatch(f"[0-9a-f]{{32}}(-[0-9a-f]+){{{parts - 1}}}", text) is None:
        raise UnknownTransaction(f"{text!r} is not an id of txsaga")
    return text.split("-")


def number_of(text: str, store: StoreId) -> int:
    """Read the number of a transaction of this store."""
    if (number := read_number(text)) is None:
        number = store.own(HalfId.decode(text).transaction if text.count("-") > 2 else text)
    if number > LAST:
        raise UnknownTransaction(f"transaction {text} is not in this store")
    return number
