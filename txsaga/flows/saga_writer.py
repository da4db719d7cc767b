"""
Write a batch of calls about sagas: begins, steps, their results and decisions, in one durable step.

If this never runs, no step that waits for it has run either; a decision that was not written leaves its saga to the
next driver, which rolls it back; after a mark that was not written the next driver asks the resource again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from txsaga.core import facts
from txsaga.core.announcer import Announcer
from txsaga.core.facts import AFTER, Fact
from txsaga.core.records import TxRecord
from txsaga.errors import TxSagaError
from txsaga.flows.calls import Answer, Mark, OpenSaga, RecordStep, ReleaseSaga, SagaCall, Settle

if TYPE_CHECKING:
    from txsaga.flows.steps_store import Steps


class SagaWriting:
    """Writes batches of calls about sagas."""

    def __init__(self, steps: Steps, announce: Announcer) -> None:
        self._steps, self._announce = steps, announce

    def __call__(self, batch: Sequence[SagaCall]) -> Sequence[Answer | TxSagaError]:
        """Write a batch; the answers are in the order of the calls."""
        if not self._announce:
            return self._steps.write(batch)
        for kind, txids in _facts(batch).items():
            self._announce(kind(txids))
        answers = self._steps.write(batch)
        done = [call for call, answer in zip(batch, answers, strict=True) if not isinstance(answer, TxSagaError)]
        for kind, txids in _facts(done, tuple(each.txid for each in answers if isinstance(each, TxRecord))).items():
            self._announce(AFTER[kind](txids))
        return answers


def _facts(batch: Sequence[SagaCall], begun: tuple[int, ...] = ()) -> dict[type[Fact], tuple[int, ...]]:
    found: dict[type[Fact], list[int]] = {}
    for call in batch:
        match call:
            case OpenSaga():
                found.setdefault(facts.Recording, []).extend(begun)
                begun = ()
            case RecordStep():
                found.setdefault(facts.Recording, []).append(call.life.txid)
            case Settle():
                found.setdefault(facts.Deciding, []).append(call.word.life.txid)
            case ReleaseSaga(stalled=True):
                found.setdefault(facts.Stalling, []).append(call.txid)
            case Mark() | _:
                found.setdefault(facts.Marking, []).append(call.txid)
    return {kind: tuple(dict.fromkeys(txids)) for kind, txids in found.items()}
