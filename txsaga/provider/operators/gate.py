"""
A gate as a task: a suite of expectations checks what the steps before it have staged, and votes.

    GateStep(task_id="audit", table="bank.posting", gate=expect("postings"))
    GateStep(task_id="audit", on="reports", sql="SELECT * FROM report", gate=expect("reports"))

It is a step: a flow does not commit without it. A no fails the task without retries, which would judge the same rows;
the flow can then only roll back. The findings are kept with the decision.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException

from txsaga.errors import ConfigError, NotCarried
from txsaga.lake.gates import Judged
from txsaga.provider.operators.flow_task import JoinedFlow
from txsaga.provider.operators.step import HOLD_IT, StepOperator

if TYPE_CHECKING:
    from txsaga.lake.gates import Gate


class GateStep(StepOperator):
    """Let a gate check the staged rows of a table, or rows of a resource."""

    template_fields: Collection[str] = ("flow", "table", "sql")

    def __init__(self, *, gate: Gate, table: str | None = None, sql: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.gate, self.table, self.sql = gate, table, sql
        if (table is None) == (sql is None) or (sql is None) != (self.on is None):
            raise ConfigError(f"gate {self.task_id!r} looks at one thing: give table=…, or on=… and sql=…")

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
        return _told(found)


def _told(found: Judged) -> dict[str, object]:
    votes = {cast.voter: {"yes": cast.yes, "rows": cast.evidence.get("rows")} for cast in found.casts}
    return {"ballot": found.ballot.name, "votes": votes}
