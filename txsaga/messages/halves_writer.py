"""
The write of a batch: halves, plain messages and the decisions of plain halves, in one durable step.

Whoever decides a plain half does it here, by request or by check. A flush or a standby in doubt counts as
success of a decision, because it stands and asking again would find it; on a half the same answers lead to
ROLLBACK. An error leaves the half pending and carries its code. If this never runs, nobody was answered, and
a half stays invisible until the check decides it.
"""

from __future__ import annotations

from collections.abc import Sequence

from txsaga.core import facts
from txsaga.core.announcer import Announcer
from txsaga.core.decision import NOT_SAFE, ReplyCode
from txsaga.core.records import DecisionOutcome, End, Half, Receipt
from txsaga.errors import TxSagaError
from txsaga.messages.ports import HalfStore, HalvesWritten

Write = Half | End
Answer = Receipt | DecisionOutcome


class HalvesWriter:
    """Writes batches of halves and ends."""

    def __init__(self, halves: HalfStore, announce: Announcer) -> None:
        self._halves, self._announce = halves, announce

    def __call__(self, batch: Sequence[Write]) -> Sequence[Answer | TxSagaError]:
        """Write a batch; each answer stands at the place of its item."""
        halves, ends = list[Half](), list[End]()
        for item in batch:
            if isinstance(item, Half):
                halves.append(item)
            else:
                ends.append(item)
        receipts, standings = self._write(halves, ends)
        if not ends:
            return receipts
        if not halves:
            return [_acknowledged(answer) for answer in standings]
        stored, decided = iter(receipts), (_acknowledged(answer) for answer in standings)
        return [next(stored) if isinstance(item, Half) else next(decided) for item in batch]

    def decide(self, end: End) -> DecisionOutcome:
        """Write one decision; raise its error."""
        (answer,) = self([end])
        if isinstance(answer, TxSagaError):
            raise answer
        assert isinstance(answer, DecisionOutcome)
        return answer

    def _write(self, halves: Sequence[Half], ends: Sequence[End]) -> HalvesWritten:
        if not self._announce:
            return self._halves.write(halves, ends)
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
