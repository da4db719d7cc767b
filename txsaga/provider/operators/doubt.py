"""
Parked transactions as tasks for people: one required action each in Airflow's list.

An answer is recorded like any manual decision: with its reason, and never against what is known. Without an answer, the
transaction stays parked.
"""

from __future__ import annotations

from typing import Any

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import BaseOperator, Context, Param

from txsaga.core.decision import Decision
from txsaga.provider.ambient import AMBIENT
from txsaga.provider.options import store_of
from txsaga.provider.refusing import refused_for_good

COMMIT, ROLLBACK, AGAIN, LATER = "Commit", "Roll back", "Ask again", "Later"
DECISIONS = {COMMIT: Decision.COMMIT, ROLLBACK: Decision.ROLLBACK}
MOST = 50


class ListParked(BaseOperator):
    """List the transactions that need an operator, as arguments over which `SettleParked` is mapped."""

    ui_color = "#f3e3e0"

    def __init__(self, *, store: str | None = None, group: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.store, self.group = store_of(store), group

    def execute(self, context: Context) -> list[dict[str, str]]:
        """Return them, oldest first."""
        overview = AMBIENT.broker(self.store).kernel.store.overview
        doubts = overview.doubts(limit=MOST, parked=True, group=self.group)
        return [
            {
                "transaction": str(doubt.txid),
                "subject": f"Transaction {doubt.txid} of {doubt.group} needs a decision",
                "body": f"key: {doubt.key or 'none'}\n\nwhy it is parked: {doubt.checks.parked}\n\n"
                f"`txsaga tx show {doubt.txid} --evidence` tells all that is known.",
            }
            for doubt in doubts
        ]


class SettleParked(HITLOperator):
    """Ask a person how to settle a parked transaction, and do so."""

    template_fields = ("subject", "body", "transaction")

    def __init__(self, *, transaction: str, subject: str, store: str | None = None, **options: Any) -> None:
        reason = Param("", type="string", title="Reason", description="It is kept with the decision.")
        options.setdefault("params", {"reason": reason})
        super().__init__(subject=subject, options=[COMMIT, ROLLBACK, AGAIN, LATER], **options)
        self.transaction, self.store = transaction, store_of(store)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Settle the transaction as the person chose."""
        said = super().execute_complete(context, event)
        (choice,) = said["chosen_options"]
        by = said.get("responded_by_user") or {}
        who = f"{by.get('name') or by.get('id') or 'time-out'} by Airflow"
        reason = str((said.get("params_input") or {}).get("reason") or f"{choice}, by Airflow's required actions")
        with refused_for_good():
            self._settle(choice, who, reason)
        return {"transaction": self.transaction, "choice": choice, "who": who}

    def _settle(self, choice: str, who: str, reason: str) -> None:
        from txsaga.checkback.by_hand import ByHand
        from txsaga.provider.operators.roles import reached

        hand, txid = ByHand(reached(self.store).kernel), int(self.transaction)
        if choice in DECISIONS:
            hand.decide(txid, DECISIONS[choice], who=who, why=reason)
        elif choice == AGAIN:
            hand.resume(txid, who=who, why=reason)
