"""
Vote on a flow: a check, a person, or a gate. Without the votes it needs, the flow can only roll back.

Ballots are opened where the flow begins. The first vote of a voter is final, so a retry changes nothing. If this task
never runs, its vote is missing. A gate needs no ballot: its suite of expectations checks what the steps before it have
staged.

    GateStep(task_id="audit", table="bank.posting", gate=expect("postings"))
    GateStep(task_id="audit", on="reports", sql="SELECT * FROM report", gate=expect("reports"))
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from inspect import signature
from typing import Any

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException

from txsaga.errors import ConfigError, NotCarried
from txsaga.lake.gates import Gate
from txsaga.provider.operators.task import HOLD_IT, FlowOperator, JoinedFlow, StepOperator, joined, refused_for_good


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
        found = ", ".join(f"{name}: {value}" for name, value in evidence.items())
        raise AirflowFailException(f"{voter!r} votes no in ballot {ballot!r}: {found}")
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
                joined(context, self.flow),
                self.ballot,
                self.voter,
                yes=said["chosen_options"] == [APPROVE],
                evidence=evidence,
                fail_on_no=self.fail_on_no,
            )
        return evidence


class GateStep(StepOperator):
    """Let a gate check the staged rows of a table, or rows of a resource.

    It is a step: a flow does not commit without it. A no fails the task without retries, which would judge the same
    rows; the flow can then only roll back. The findings are kept with the decision.
    """

    template_fields: Collection[str] = ("flow", "table", "sql")

    def __init__(self, *, gate: Gate, table: str | None = None, sql: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.gate, self.table, self.sql = gate, table, sql
        if (table is None) == (sql is None) or (sql is None) != (self.on is None):
            raise ConfigError(f"gate {self.task_id!r} checks one thing: give table=…, or on=… and sql=…")

    def needs_held(self) -> str:
        """Return the reason: a gate votes about work that the flow can still roll back."""
        return f"gate {self.task_id!r} votes about held work, and {self.on!r} settles its own at once: {HOLD_IT}"

    def work(self, context: Context, flow: JoinedFlow) -> object:
        """Check the rows; fail without retries if the gate votes no."""
        try:
            return super().work(context, flow)
        except NotCarried as no:
            raise AirflowFailException(str(no)) from None

    def do(self, context: Context, flow: JoinedFlow, handle: Any) -> object:
        """Check the rows."""
        if self.table is not None:
            found = flow.flow.check_staged(self.table, self.gate)
        else:
            from sqlalchemy import text

            found = flow.flow.check(self.task_id, handle.execute(text(str(self.sql))).all(), self.gate)
        votes = {cast.voter: {"yes": cast.yes, "rows": cast.evidence.get("rows")} for cast in found.casts}
        return {"ballot": found.ballot.name, "votes": votes}
