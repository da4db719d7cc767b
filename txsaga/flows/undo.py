"""
Undo the steps of a flow that was rolled back, as a saga's: in the process that ended it, else in the role (R6).

The compensation of each was written before it ran. If this process dies here, its lease runs out and the role goes on.
"""

from __future__ import annotations

import logging

from txsaga.core import facts
from txsaga.core.decision import Decision
from txsaga.core.kernel import Kernel
from txsaga.core.records import TxRecord
from txsaga.errors import CompensationFailed, NotCompensated, Superseded, TxSagaError
from txsaga.flows.calls import DecisionRequest, Settle
from txsaga.flows.saga_driver import SagaDriver
from txsaga.flows.saga_step import patience
from txsaga.flows.saga_values import ClaimedSaga

logger = logging.getLogger("txsaga")

LOOK = 0.2
"""Seconds between two polls whether another driver has finished."""


def undo(kernel: Kernel, life: TxRecord) -> None:
    """Undo completely a flow that this owner rolled back; `NotCompensated` if another process has to go on."""
    if not any(step.waits for step in kernel.store.steps.of(life.txid)):
        return
    word = DecisionRequest(life, Decision.ROLLBACK, f"owner {life.owner}", "")
    try:
        kernel.steps.call(Settle(word, kernel.member))
    except Superseded:
        wait_for(kernel, life.txid)
        return
    _drive(kernel, ClaimedSaga(life.txid, life.group, life.owner, Decision.ROLLBACK, life.key))


def undo_after(kernel: Kernel, life: TxRecord, error: BaseException) -> None:
    """Undo a flow, and add what is left of it as a note to an error that is raised anyway."""
    try:
        undo(kernel, life)
    except TxSagaError as left:
        error.add_note(str(left))
        logger.warning("flow %d is not undone to its end: %s", life.txid, left, extra={"txid": life.txid})


def wait_for(kernel: Kernel, txid: int) -> None:
    """Wait until a flow that was rolled back is undone, taking over if its driver is gone."""
    wait = patience()
    while True:
        with kernel.store.ledgers.open() as ledger:
            if not ledger.compensates(txid):
                return
        with kernel.announce.around(facts.Claiming, txid):
            taken = kernel.store.steps.claim(kernel.member, limit=1, txid=txid)
        for saga in taken:
            _drive(kernel, saga)
        if not taken:
            _require_driven(kernel, txid)
            if not wait(LOOK):
                raise NotCompensated(txid, "another process undoes it")


def _drive(kernel: Kernel, saga: ClaimedSaga) -> None:
    SagaDriver(kernel, saga, patience()).drive(kernel.store.steps.of(saga.txid))


def _require_driven(kernel: Kernel, txid: int) -> None:
    for view in kernel.store.steps.listed(txid=txid):
        if view.stalled:
            raise CompensationFailed(txid, f"{view.why}; resume or skip it with `txsaga saga`")
