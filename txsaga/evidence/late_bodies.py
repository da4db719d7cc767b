"""
Late bodies of one block: slots reserved before local work and filled during it, on its own connection.

A body is stored with the evidence in the same commit, so a reader of the evidence always finds the body. Slots must not
be filled on another connection: the body could be lost, or exist, without the work it describes. If a body is missing
after the local commit, the transaction can never be committed (R16).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from txsaga.core.forking import this_process
from txsaga.core.layout import lay_out_columns
from txsaga.core.message import Message
from txsaga.core.records import LateSlot, Row
from txsaga.core.validation import validate_body
from txsaga.errors import TransactionError
from txsaga.evidence.ports import Evidence

if TYPE_CHECKING:
    from sqlalchemy import Connection


class Slot:
    """A slot for a body that is known only in the local transaction."""

    def __init__(self, late: LateBodies, number: int) -> None:
        self._late, self._number = late, number

    def fill(self, connection: Connection, body: bytes) -> None:
        """Store the body with the evidence, in the local transaction."""
        self._late.fill(connection, self._number, body)


@dataclass(frozen=True, slots=True)
class Filling:
    """The local transaction that may fill slots now."""

    evidence: Evidence
    transaction: str
    connection: Connection


class LateBodies:
    """The slots of one block and the bodies filled in."""

    def __init__(self) -> None:
        self.bodies: dict[int, bytes] = {}
        self._kept = 0
        self._filling: Filling | None = None

    def keep(self, txid: int, qid: int, shape: Message) -> tuple[LateSlot, Slot]:
        """Reserve a numbered slot for a message without its body; return its stored form and the user's `Slot`."""
        self._kept += 1
        stored = LateSlot(
            txid=txid,
            slot=self._kept,
            qid=qid,
            key=shape.key,
            tag=shape.tag,
            headers=shape.headers,
            ordering_key=shape.ordering_key,
        )
        return stored, Slot(self, self._kept)

    @contextmanager
    def filled_in(self, filling: Filling) -> Iterator[None]:
        """Allow filling slots while local work runs; raise at the end unless all are filled."""
        self._filling, process = filling, this_process()
        try:
            yield
            if this_process() == process:  # a forked child must not use its parent's session
                self._require_filled(filling)
        finally:
            self._filling = None

    def fill(self, connection: Connection, number: int, body: bytes) -> None:
        """Fill a slot, once."""
        validate_body(body)
        filling = self._filling
        if filling is None or connection is not filling.connection:
            raise TransactionError("a late slot is filled inside tx.local(…), with its connection")
        if number in self.bodies and number in filling.evidence.filled(connection, filling.transaction):
            raise TransactionError(f"late slot {number} is filled already; reserve a slot for each message")
        filling.evidence.fill(connection, filling.transaction, number, body)
        self.bodies[number] = body

    def _require_filled(self, filling: Filling) -> None:
        filled = frozenset(self.bodies)
        if filled and filling.connection.in_transaction():
            # Read the rows: rolling back a savepoint also removed its bodies.
            filled = filling.evidence.filled(filling.connection, filling.transaction)
        if missing := sorted(set(range(1, self._kept + 1)) - filled):
            raise TransactionError(f"late slots {missing} were reserved but not filled; nothing was done")


LATE_PART = 2
"""Part number of late bodies: a contribution of their own, after the block's."""
FIRST_CHUNK = 1_000_000
"""Chunk numbers of late bodies come after those of all other messages."""


def lay_out(slot: LateSlot, body: bytes) -> Row:
    """Lay out a late body as a separate chunk."""
    columns = lay_out_columns(
        [body], key=[slot.key], tag=[slot.tag], headers=[slot.headers], ordering_key=[slot.ordering_key]
    )
    return Row(slot.qid, FIRST_CHUNK + slot.slot, 1, columns)
