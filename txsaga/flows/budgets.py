"""
Lock budgets of flows: locks that are held for longer than their budget are recorded and logged once.

Nothing is stopped: people judge whether a flow waits for a good reason. If this never runs, locks are held all the
same; the metrics of the store still count them.
"""

from __future__ import annotations

import logging

from txsaga.core import facts
from txsaga.core.kernel import Kernel
from txsaga.core.role_loop import Pace
from txsaga.flows.step_records import Overdue

logger = logging.getLogger("txsaga")

BUDGETS = "budgets"
OVER = "OVER BUDGET"
"""The audit row of a step that holds its locks for too long."""


class Budgets:
    """Reports locks that are held for too long."""

    name = BUDGETS
    pace = Pace(5.0, 15.0)

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def run_once(self) -> int:
        """Report each step that holds its locks for longer than its budget; return how many there are."""
        return sum(self._tell(each) for each in self._kernel.store.flows.overdue())

    def _tell(self, step: Overdue) -> bool:
        where = f"the lane of {step.resource!r}" if step.lane else repr(step.resource)
        held, budget = step.held.total_seconds(), step.budget.total_seconds()
        why = f"step {step.name!r} has held its locks in {where} for {held:.0f} s, its budget is {budget:g} s"
        with self._kernel.announce.around(facts.Alarming, step.txid, about=step.resource):
            with self._kernel.store.ledgers.open() as ledger:
                ledger.lock(step.txid)
                told = ledger.flows.alarm(step.txid, step.number, step.attempt)
                if told:
                    ledger.record(step.txid, OVER, who=BUDGETS, why=why)
        if told:
            logger.warning("flow %d: %s", step.txid, why, extra={"txid": step.txid})
        return told
