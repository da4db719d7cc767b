"""
Publishing to several brokers as one: a policy chooses, and all messages of the task are visible together or not at all.

Each broker is a store behind a connection of its own; the store of the task coordinates. A task that died is done
again from its start: what it had not committed is rolled back by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from airflow.sdk import BaseOperator, Context

from txsaga.errors import AlreadyCommitted, ConfigError
from txsaga.provider.ambient import AMBIENT
from txsaga.provider.operators.publish import body_of
from txsaga.provider.options import store_of
from txsaga.provider.reference import group_of, own_key_of
from txsaga.provider.refusing import refused_for_good
from txsaga.provider.results import find_result, keep_result

ANY = 0
"""What is kept belongs to the task, whatever its transaction was."""


class ClusterPublish(BaseOperator):
    """Publish messages to a cluster in one transaction; its XCom tells which brokers took part."""

    template_fields: Collection[str] = ("messages",)
    ui_color = "#e8f1ea"

    def __init__(
        self,
        *,
        topic: str,
        messages: Sequence[object],
        brokers: Mapping[str, str],
        policy: str = "round-robin",
        store: str | None = None,
        group: str | None = None,
        definition: Mapping[str, object] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.topic, self.messages, self.brokers = topic, messages, dict(brokers)
        self.policy, self.store, self.group = policy, store_of(store), group
        self.definition = {"brokers": list(brokers), "policy": policy, "xa": True, **(definition or {})}

    def execute(self, context: Context) -> object:
        """Publish them, unless an attempt before did."""
        with refused_for_good():
            known = find_result(context, ANY)
            if known is not None:
                return known
            if isinstance(self.messages, str):
                raise ConfigError("messages is a text; give a list, or set render_template_as_native_obj on the DAG")
            ti = context["ti"]
            key = own_key_of(ti)
            told = self._published(self.group or group_of(ti.dag_id), key)
            keep_result(context, ANY, told)
            return told

    def _published(self, group: str, key: str) -> dict[str, object]:
        import txsaga

        coordinator = AMBIENT.broker(self.store)
        open_ = {name: AMBIENT.broker(connection) for name, connection in self.brokers.items()}
        with txsaga.cluster(self.definition, open_, coordinator=coordinator) as cluster:
            try:
                with cluster.producer(group).transaction(key=key) as transaction:
                    for each in self.messages:
                        transaction.send(self.topic, body_of(each))
                    return {"id": transaction.id, "brokers": list(transaction.participants)}
            except AlreadyCommitted as done:
                return {"id": coordinator.identity.transaction(done.txid), "brokers": []}
