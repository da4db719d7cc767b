"""
The role that takes over sagas whose driver is gone.

An undecided one is rolled back, as its owner would have done (R6): it was never closed, so no process may commit it
(R1). Then, or if it is decided already, it is driven to its end by the code that drives it in its owner's process. Any
number of copies may run: each saga is claimed by one. If this role never runs, the steps of dead processes stay as they
are, and their keys stay closed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import starmap

from txsaga.core import facts
from txsaga.core.decision import Decision
from txsaga.core.kernel import Kernel
from txsaga.core.lifecycle import TxState
from txsaga.core.records import TxRecord
from txsaga.core.role_loop import Pace
from txsaga.errors import EffectConflict, NotCompensated, TxSagaError
from txsaga.flows.ports import DecisionRequest, Settle
from txsaga.flows.saga_driver import SagaDriver
from txsaga.flows.saga_step import impatient
from txsaga.flows.saga_values import ClaimedSaga
from txsaga.flows.step import StepRecord
from txsaga.messages.decide import DecidedBy

logger = logging.getLogger("txsaga")

WHY = "the owner is gone, and never closed it"


class SagaRole:
    """Takes over sagas and drives them to their end."""

    name = "sagas"
    pace = Pace(0.1, 0.5)
    LIMIT, THREADS = 200, 8

    def __init__(self, kernel: Kernel, *, threads: int = THREADS) -> None:
        self._kernel, self._threads = kernel, threads

    def run_once(self) -> int:
        """Take over sagas without a driver; return how many reached their end."""
        with self._kernel.announce.around(facts.Claiming):
            taken = self._kernel.store.steps.claim(self._kernel.member, limit=self.LIMIT)
        if not taken:
            return 0
        left = [saga.txid for saga in taken if saga.decision is None]
        if left:
            logger.warning("%d sagas are rolled back, %s: %s", len(left), WHY, ", ".join(map(str, left)))
        steps = self._kernel.store.steps.of_all([saga.txid for saga in taken])
        todo = [(saga, steps.get(saga.txid, ())) for saga in taken]
        if len(taken) == 1 or self._threads == 1:
            return sum(starmap(self._driven, todo))
        with ThreadPoolExecutor(self._threads, thread_name_prefix="txsaga-sagas") as pool:
            return sum(pool.map(lambda each: self._driven(*each), todo))

    def _driven(self, saga: ClaimedSaga, steps: Sequence[StepRecord]) -> bool:
        try:
            decided = saga if saga.decision is not None else self._rolled_back(saga)
            SagaDriver(self._kernel, decided, impatient).drive(steps)
        except NotCompensated as left:
            logger.warning("%s", left, extra={"txid": saga.txid})
            return False
        except TxSagaError as failure:
            logger.warning("saga %d is left to its next driver: %s", saga.txid, failure, extra={"txid": saga.txid})
            return False
        return True

    def _rolled_back(self, saga: ClaimedSaga) -> ClaimedSaga:
        word = DecisionRequest(_life(saga), Decision.ROLLBACK, self.name, WHY)
        try:
            standing = self._kernel.steps.call(Settle(word, self._kernel.member))
        except EffectConflict:  # with bound effects the decider decides
            by = DecidedBy(who=self.name, why=WHY, owner=saga.owner)
            self._kernel.decider.decide(saga.txid, Decision.ROLLBACK, by)
            standing = self._kernel.steps.call(Settle(word, self._kernel.member))
        assert isinstance(standing, Decision)
        self._kernel.tell_decided()
        return saga._replace(decision=standing)


def _life(saga: ClaimedSaga) -> TxRecord:
    """Return as much of a transaction record as a decision request needs."""
    named = {"txid": saga.txid, "group": saga.group, "key": saga.key, "owner": saga.owner}
    return TxRecord(**named, token=b"", epoch=1, state=TxState.ACTIVE)  # type: ignore[arg-type]
