"""
SQL statements: as a step of a flow, or with one message in a task by itself.

The SQL text is used as written and never rendered; put values into parameters. Parameters are rendered and shown in
Airflow among the task's rendered fields: put no secrets in them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException

from txsaga.errors import AlreadyCommitted, ConfigError
from txsaga.provider.connections import AMBIENT, producer_of
from txsaga.provider.operators.messages import body_of
from txsaga.provider.operators.task import JoinedFlow, StepOperator, refused_for_good
from txsaga.provider.options import store_of
from txsaga.provider.planning.modes import DeclaredStep
from txsaga.provider.reference import TransactionLink, group_of, own_key_of
from txsaga.provider.resources import stored_name


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
        """Return this task as a declared step of the flow."""
        return DeclaredStep(
            name=self.task_id, resource=self.on, statements=self.statements, hold=self.hold, mode=self.mode
        )


def done_now(
    connection: Any, statements: Sequence[str], parameters: Mapping[str, object], rows: int | None
) -> list[dict[str, object]] | None:
    """Run statements one by one; return the rows of the last one."""
    from sqlalchemy import text

    found: list[dict[str, object]] | None = None
    for statement in statements:
        done = connection.execute(text(statement), dict(parameters))
        if rows is not None and not done.returns_rows and done.rowcount != rows:
            raise AirflowFailException(f"the statement changed {done.rowcount} rows, not {rows}: {statement}")
        found = [dict(each._mapping) for each in done] if done.returns_rows else None
    return found


class LocalTransaction(BaseOperator):
    """Send a message exactly if statements commit; its XCom names the transaction. No flow is needed.

    The statements' own commit carries an evidence row, so check-back can decide the message after a crash. A retry of a
    task that has committed does nothing.
    """

    template_fields: Collection[str] = ("body", "key", "parameters")
    ui_color = "#e8f1ea"
    operator_extra_links = (TransactionLink(),)

    def __init__(
        self,
        *,
        topic: str,
        body: object = "",
        key: str | None = None,
        connection: str,
        sql: str | Sequence[str],
        parameters: Mapping[str, object] | None = None,
        rows: int | None = None,
        store: str | None = None,
        group: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.topic, self.body, self.key = topic, body, key
        self.connection, self.sql, self.rows = connection, sql, rows
        self.parameters: Mapping[str, object] = parameters or {}
        self.store, self.group = store_of(store), group

    def execute(self, context: Context) -> dict[str, object]:
        """Do both, or neither."""
        with refused_for_good():
            ti = context["ti"]
            broker = AMBIENT.broker(self.store, [self.connection])
            producer = producer_of(broker, self.group or group_of(ti.dag_id))
            name = own_key_of(ti)
            statements = [self.sql] if isinstance(self.sql, str) else list(self.sql)
            try:
                with producer.transaction(key=name) as transaction:
                    transaction.send(self.topic, body_of(self.body), key=self.key)
                    with transaction.local(stored_name(self.connection)) as connection:
                        done_now(connection, statements, self.parameters, self.rows)
            except AlreadyCommitted as done:
                return {"txid": done.txid, "id": broker.identity.transaction(done.txid)}
            return {"txid": transaction.txid, "id": transaction.id}
