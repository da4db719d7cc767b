"""
Writes a batch: halves, plain messages and the decisions of plain halves, in one durable step.

Ends of plain halves are written here; a round of check-back writes many at once by `checkback/sql/doubt.sql`. If the
flush or the standby is in doubt, a decision still counts as successful, because it is final and a repeated request
would find it; for a half the same answers lead to ROLLBACK. An error leaves the half pending and carries its code. If
this never runs, no caller got an answer, and a half stays invisible until the check decides it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from txsaga.core import facts
from txsaga.core.announcer import Announcer
from txsaga.core.decision import NOT_SAFE, ReplyCode
from txsaga.core.records import DecisionOutcome, End, Half, HalvesWritten, Receipt
from txsaga.errors import TxSagaError

if TYPE_CHECKING:
    from txsaga.messages.halves_store import HalfStore


Write = Half | End
Answer = Receipt | DecisionOutcome


class HalvesWriter:
    """Writes batches of halves and ends."""

    def __init__(self, halves: HalfStore, announce: Announcer, wake: Callable[[], object]) -> None:
        self._halves, self._announce = halves, announce
        self._wake = wake  # called once something is decided

    def __call__(self, batch: Sequence[Write]) -> Sequence[Answer | TxSagaError]:
        """Write a batch; return the answers in the order of the items."""
        halves = [item for item in batch if isinstance(item, Half)]
        ends = [item for item in batch if isinstance(item, End)]
        write = self._announced if self._announce else self._halves.write
        receipts, standings = write(halves, ends)
        if ends or any(half.plain for half in halves):
            self._wake()
        stored, decided = iter(receipts), iter(standings)
        return [next(stored) if isinstance(item, Half) else _acknowledged(next(decided)) for item in batch]

    def decide(self, end: End) -> DecisionOutcome:
        """Write one decision, raising its error."""
        (answer,) = self([end])
        if isinstance(answer, TxSagaError):
            raise answer
        assert isinstance(answer, DecisionOutcome)
        return answer

    def _announced(self, halves: Sequence[Half], ends: Sequence[End]) -> HalvesWritten:
        kinds, decided = sorted({half.plain for half in halves}), tuple(end.txid for end in ends)
        for plain in kinds:
            self._announce(facts.Publishing() if plain else facts.Preparing())
        if ends:
            self._announce(facts.Deciding(decided))
        written = self._halves.write(halves, ends)
        for plain in kinds:
            pairs = zip(halves, written.receipts, strict=True)
            numbers = tuple(each.txid for half, each in pairs if isinstance(each, Receipt) and half.plain is plain)
            self._announce(facts.Published(numbers) if plain else facts.Prepared(numbers))
        if ends:
            self._announce(facts.Decided(decided))
        return written


def _acknowledged(answer: DecisionOutcome | TxSagaError) -> DecisionOutcome | TxSagaError:
    if isinstance(answer, DecisionOutcome) and answer.code in NOT_SAFE:
        return answer._replace(code=ReplyCode.SUCCESS)
    return answer
