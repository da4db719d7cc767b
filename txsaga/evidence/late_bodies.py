"""
Late bodies of one block: places kept before local work, filled in it, on its own connection.

A body lies beside the evidence in the same commit, so whoever finds the evidence finds the body. Nothing may be
filled anywhere else: a body on another connection would be gone, or there, without the work it speaks of. If a
body is missing behind the local commit, nobody can commit the transaction any more (R16).
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
    """A place for a body that is known only in the local transaction."""

    def __init__(self, late: LateBodies, number: int) -> None:
        self._late, self._number = late, number

    def fill(self, connection: Connection, body: bytes) -> None:
        """Store the body beside the evidence, in the local transaction."""
        self._late.fill(connection, self._number, body)


@dataclass(frozen=True, slots=True)
class Filling:
    """The local transaction that may fill places now."""

    evidence: Evidence
    transaction: str
    connection: Connection


class LateBodies:
    """The places of one block, and what was filled in."""

    def __init__(self) -> None:
        self.bodies: dict[int, bytes] = {}
        self._kept = 0
        self._filling: Filling | None = None

    def keep(self, txid: int, qid: int, shape: Message) -> tuple[LateSlot, Slot]:
        """Number a place for a message without its body: what is stored of it, and what the user fills."""
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
        """Let places be filled while local work runs, and let it end only when all of them are."""
        self._filling, process = filling, this_process()
        try:
            yield
            if this_process() == process:  # a forked child asks nothing on its parent's session
                self._require_filled(filling)
        finally:
            self._filling = None

    def fill(self, connection: Connection, number: int, body: bytes) -> None:
        """Fill a place, once."""
        validate_body(body)
        filling = self._filling
        if filling is None or connection is not filling.connection:
            raise TransactionError("a late slot is filled inside tx.local(…), with its connection")
        if number in self.bodies and number in filling.evidence.filled(connection, filling.transaction):
            raise TransactionError(f"late slot {number} is filled already; keep a slot for each message")
        filling.evidence.fill(connection, filling.transaction, number, body)
        self.bodies[number] = body

    def _require_filled(self, filling: Filling) -> None:
        filled = frozenset(self.bodies)
        if filled and filling.connection.in_transaction():
            # The rows are asked: a savepoint that was rolled back took its bodies along.
            filled = filling.evidence.filled(filling.connection, filling.transaction)
        if missing := sorted(set(range(1, self._kept + 1)) - filled):
            raise TransactionError(f"late slots {missing} were kept and not filled; nothing was done")


LATE_PART = 2
"""Late bodies are a contribution of their own, behind the block's."""
FIRST_CHUNK = 1_000_000
"""Late chunks stand behind all that was sent before."""


def lay_out(slot: LateSlot, body: bytes) -> Row:
    """Lay out a late body as a chunk of its own."""
    columns = lay_out_columns(
        [body], key=[slot.key], tag=[slot.tag], headers=[slot.headers], ordering_key=[slot.ordering_key]
    )
    return Row(slot.qid, FIRST_CHUNK + slot.slot, 1, columns)
