"""
What all parts of one store in memory share: its lock, its clock, its identity and its rows.

The lock is held for the whole of a ledger block, so everybody else waits for a block to end. The thread of
the block itself may look: it sees what was there before the block. It must not write beside its own block,
as its rows would be lost with the copy; on PostgreSQL the same mistake takes a second connection while it
holds the first, and stops for ever when the pool is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from hashlib import sha256
from itertools import count
from secrets import token_bytes
from threading import RLock
from uuid import uuid4

from tests.oracle.rows import Kept
from txsaga.core.identity import StoreId


class Home:
    """The place of the rows."""

    def __init__(self, clock: Callable[[], datetime], *, rejecting: bool) -> None:
        self.lock = RLock()
        self.identity = StoreId(uuid4(), 1)
        self.kept = Kept()
        self.rejecting = rejecting
        self._clock = clock
        self._secret = token_bytes(32)
        self._numbers, self._letters = count(1), count(1)
        self._drafting = False

    def now(self) -> datetime:
        """Tell the time."""
        return self._clock()

    def next_txid(self) -> int:
        """Give out a number; it is gone even if its block is undone."""
        return next(self._numbers)

    def next_letter(self) -> int:
        """Give out the number of a dead letter."""
        return next(self._letters)

    def token(self, group: int, txid: int) -> bytes:
        """Return what only the producer that stored a transaction can know."""
        said = f"{group}/{self.identity}/{txid}".encode()
        return sha256(self._secret + said).digest()

    @contextmanager
    def writing(self) -> Iterator[Kept]:
        """Hold the lock and change rows in place; the caller checks before it changes anything."""
        with self.lock:
            self.outside()
            decided = len(self.kept.order)
            yield self.kept
            self.kept.settle_order(decided)

    @contextmanager
    def block(self) -> Iterator[Kept]:
        """Hold the lock and work on a copy, which counts only when the block is left without an error."""
        with self.lock:
            self.outside()
            draft, decided = self.kept.copy(), len(self.kept.order)
            self._drafting = True
            try:
                yield draft
                draft.settle_order(decided)
                self.kept = draft
            finally:
                self._drafting = False

    def outside(self) -> None:
        """Refuse a write beside a ledger block of the same thread."""
        if self._drafting:
            raise RuntimeError("a ledger block is open in this thread; leave it before writing elsewhere")
