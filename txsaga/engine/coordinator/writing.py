"""
The write of a batch about branches: begins, owners' words and what became of branches, in one durable step.

If this never runs, a begin was never answered and is nothing; a word that was not written leaves its transaction to
check-back, which rolls it back; a note that was not written lets recovery ask the resource once more.
"""

from __future__ import annotations

from collections.abc import Sequence

from txsaga.engine.announce import Announcer
from txsaga.errors import TxSagaError
from txsaga.model import facts
from txsaga.model.facts import AFTER, Fact
from txsaga.model.records import Life
from txsaga.ports.branches import Answer, Begin, Branches, Call, Noted, Resolve


class BranchWriting:
    """Writes batches about branches."""

    def __init__(self, branches: Branches, announce: Announcer) -> None:
        self._branches, self._announce = branches, announce

    def __call__(self, batch: Sequence[Call]) -> Sequence[Answer | TxSagaError]:
        """Write a batch; each answer stands at the place of its call."""
        if not self._announce:
            return self._branches.write(batch)
        for kind, txids in _steps(batch).items():
            self._announce(kind(txids))
        answers = self._branches.write(batch)
        done = [call for call, answer in zip(batch, answers, strict=True) if not isinstance(answer, TxSagaError)]
        for kind, txids in _steps(done, tuple(each.txid for each in answers if isinstance(each, Life))).items():
            self._announce(AFTER[kind](txids))
        return answers


def _steps(batch: Sequence[Call], begun: tuple[int, ...] = ()) -> dict[type[Fact], tuple[int, ...]]:
    words = [call for call in batch if isinstance(call, Resolve)]
    numbers: dict[type[Fact], tuple[int, ...]] = {
        facts.Ending: tuple(word.life.txid for word in words if word.decision is None),
        facts.Deciding: tuple(word.life.txid for word in words if word.decision is not None),
        facts.Noting: tuple(dict.fromkeys(call.txid for call in batch if isinstance(call, Noted))),
    }
    steps = {kind: txids for kind, txids in numbers.items() if txids}
    return {facts.Naming: begun, **steps} if any(isinstance(call, Begin) for call in batch) else steps
