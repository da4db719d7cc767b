"""
Vote in a ballot of the flow: a check, a quota, a gate. Without the votes it needs, the flow can only roll back.

Ballots are opened where the flow begins. The first vote of a voter is final, so a retry changes nothing. If this task
never runs, its vote is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from inspect import signature
from typing import Any

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException

from txsaga.provider.operators.flow_task import FlowOperator, JoinedFlow
from txsaga.provider.refusing import refused_for_good


class BallotVote(FlowOperator):
    """Vote yes or no, by a value or template, or by a function that checks something."""

    template_fields: Collection[str] = ("flow", "yes", "evidence")

    def __init__(
        self,
        *,
        ballot: str,
        voter: str | None = None,
        yes: bool | str = False,
        look: Callable[..., bool] | None = None,
        evidence: Mapping[str, object] | None = None,
        fail_on_no: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.ballot, self.voter, self.yes, self.evidence = ballot, voter or self.task_id, yes, evidence
        self.look = look  # not a template field: Airflow would call it when it renders
        self.fail_on_no = fail_on_no

    def work(self, context: Context, flow: JoinedFlow) -> bool:
        """Check and vote; a check that raises is a no with its error."""
        try:
            yes, evidence = self._looked(context), dict(self.evidence or {})
        except Exception as reason:  # noqa: BLE001  # any error is a no
            yes, evidence = False, {"error": f"{type(reason).__name__}: {reason}"}
        return voted(flow, self.ballot, self.voter, yes=yes, evidence=evidence, fail_on_no=self.fail_on_no)

    def _looked(self, context: Context) -> bool:
        if self.look is not None:
            given: Mapping[str, Any] = {**context}
            return bool(self.look(**{name: given[name] for name in signature(self.look).parameters if name in given}))
        if isinstance(self.yes, str):
            return self.yes.strip().lower() in ("yes", "true", "1")
        return bool(self.yes)


def voted(
    flow: JoinedFlow, ballot: str, voter: str, *, yes: bool, evidence: Mapping[str, object], fail_on_no: bool
) -> bool:
    """Cast a vote; a no fails the task, so that no task after it works in vain."""
    flow.flow.vote(ballot, voter, yes=yes, evidence=evidence)
    if not yes and fail_on_no:
        raise AirflowFailException(f"{voter!r} votes no in ballot {ballot!r}: {dict(evidence)}")
    return yes


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
        """Vote as the person answered."""
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
        return FlowOperator.joined(self, context)  # type: ignore[arg-type]  # it has what joining needs: `flow`

    def reference(self, context: Context) -> Any:
        """Return the reference that begin handed on."""
        return FlowOperator.reference(self, context)  # type: ignore[arg-type]
