"""
The final write: the op rows of plain halves, and what the store's answers mean there.

A flush or a standby in doubt counts as success here, because the decision stands and asking again would find
it; on the half the same answers lead to ROLLBACK. An error leaves the half pending and carries its code. If
this never runs, the half stays invisible until the check decides it.
"""

from __future__ import annotations

from collections.abc import Sequence

from txsaga.engine.announce import Announcer
from txsaga.errors import TxSagaError
from txsaga.model import facts
from txsaga.model.decision import NOT_SAFE, Code
from txsaga.model.records import End, Standing
from txsaga.ports.halves import HalfStore


class FinalWrite:
    """Writes the decisions of plain halves."""

    def __init__(self, halves: HalfStore, announce: Announcer) -> None:
        self._halves, self._announce = halves, announce

    def __call__(self, ends: Sequence[End]) -> Sequence[Standing | TxSagaError]:
        """Write decisions; each answer stands at the place of its end."""
        if not self._announce:
            answers = self._halves.decide(ends)
        else:
            with self._announce.around(facts.Deciding, facts.Decided, *(end.txid for end in ends)):
                answers = self._halves.decide(ends)
        return [_acknowledged(answer) for answer in answers]


def _acknowledged(answer: Standing | TxSagaError) -> Standing | TxSagaError:
    if isinstance(answer, Standing) and answer.code in NOT_SAFE:
        return answer._replace(code=Code.SUCCESS)
    return answer
