"""
A message and local work with one outcome, in one task: half message, SQL statements, decision.

The statements' own commit carries an evidence row, so check-back can decide the message after a crash. A retry of a
task that has committed does nothing. No flow is needed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from airflow.sdk import BaseOperator, Context

from txsaga.errors import AlreadyCommitted
from txsaga.provider.ambient import AMBIENT, producer_of
from txsaga.provider.operators.publish import body_of
from txsaga.provider.operators.sql import done_now
from txsaga.provider.options import store_of
from txsaga.provider.reference import TransactionLink, group_of, own_key_of
from txsaga.provider.refusing import refused_for_good
from txsaga.provider.resources import stored_name


class LocalTransaction(BaseOperator):
    """Send a message exactly if statements commit; its XCom names the transaction."""

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
