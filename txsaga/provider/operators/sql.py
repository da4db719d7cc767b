"""
A step of SQL statements on a resource of the flow.

The SQL text is used as written and never rendered; put values into parameters. Parameters are rendered and shown in
Airflow among the task's rendered fields: put no secrets in them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException

from txsaga.errors import ConfigError
from txsaga.flows.declaration import DeclaredStep, Statement
from txsaga.provider.operators.flow_task import JoinedFlow
from txsaga.provider.operators.step import StepOperator


class SqlStep(StepOperator):
    """Run statements in one step; its XCom is the list of rows that the last one returns."""

    template_fields: Collection[str] = ("flow", "parameters", "input")
    template_fields_renderers = {"parameters": "json"}  # noqa: RUF012  # declared like this in the base class

    def __init__(
        self,
        *,
        on: str,
        sql: str | Sequence[str],
        parameters: Mapping[str, object] | None = None,
        rows: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(on=on, **options)
        self.sql, self.rows = sql, rows
        self.parameters: Mapping[str, object] = parameters or {}
        if not self.statements:
            raise ConfigError(f"step {self.task_id!r} has no statement; give sql=…")

    @property
    def statements(self) -> tuple[str, ...]:
        """The statements in order."""
        return (self.sql,) if isinstance(self.sql, str) else tuple(self.sql)

    def do(self, context: Context, flow: JoinedFlow, handle: Any) -> object:
        """Run the statements now, or write them into the journal."""
        if not hasattr(handle, "exec_driver_sql"):
            for statement in self.statements:
                handle.execute(statement, self.parameters, rows=self.rows)
            return None
        return done_now(handle, self.statements, self.parameters, self.rows)

    def undo_input(self) -> Mapping[str, object] | None:
        """Return the input of the compensation: the parameters, unless `input` is set."""
        return self.input if self.input is not None else self.parameters

    def declared(self) -> DeclaredStep | None:
        """Return this task as a step of the flow's plan."""
        texts = tuple(Statement(text=each) for each in self.statements)
        return DeclaredStep(name=self.task_id, resource=self.on, statements=texts, hold=self.hold, mode=self.mode)


def done_now(
    connection: Any,
    statements: Sequence[str],
    parameters: Mapping[str, object],
    rows: int | None,
) -> list[dict[str, object]] | None:
    """Run statements one by one, each with the parameters it names; return the rows of the last one."""
    from sqlalchemy import text

    found: list[dict[str, object]] | None = None
    for statement in statements:
        done = connection.execute(text(statement), dict(_asked(statement, parameters)))
        if rows is not None and not done.returns_rows and done.rowcount != rows:
            raise AirflowFailException(f"the statement changed {done.rowcount} rows, not {rows}: {statement}")
        found = [dict(each._mapping) for each in done] if done.returns_rows else None
    return found


def _asked(statement: str, parameters: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    return ((name, value) for name, value in parameters.items() if f":{name}" in statement)
