"""
An approval: somebody says yes or no in Airflow's page of required actions, and that is a vote in a ballot of the flow.

The answer counts, not the state of the task: a task that is marked from outside has not voted. While it waits it holds
no worker and no connection. If nobody answers, the flow stays open as long as its lease, and its run, last.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import Context

from txsaga.provider.operators.ballot import voted
from txsaga.provider.operators.flow_task import FlowOperator, JoinedFlow
from txsaga.provider.refusing import refused_for_good

APPROVE, REJECT = "Approve", "Reject"


class Approval(HITLOperator):
    """Ask a person, and vote as answered."""

    template_fields = ("subject", "body", "flow")

    def __init__(
        self,
        *,
        subject: str,
        ballot: str,
        voter: str | None = None,
        flow: str | Mapping[str, object] | Any = "begin",
        fail_on_no: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(subject=subject, options=[APPROVE, REJECT], **options)
        self.ballot, self.voter, self.flow, self.fail_on_no = ballot, voter or self.task_id, flow, fail_on_no

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Vote as the person said."""
        said = super().execute_complete(context, event)
        by = said.get("responded_by_user") or {}
        evidence = {"by": str(by.get("name") or by.get("id") or "time-out"), "said": list(said["chosen_options"])}
        with refused_for_good():
            voted(
                self._joined(context),
                self.ballot,
                self.voter,
                yes=said["chosen_options"] == [APPROVE],
                evidence=evidence,
                fail_on_no=self.fail_on_no,
            )
        return evidence

    def _joined(self, context: Context) -> JoinedFlow:
        return FlowOperator.joined(self, context)  # type: ignore[arg-type]  # it has what joining needs: flow

    def reference(self, context: Context) -> Any:
        """Return what begin left."""
        return FlowOperator.reference(self, context)  # type: ignore[arg-type]
