"""
Publish a message: with the flow, in its own transaction, or at once.

| mode            | visible                        | a retry                          |
|-----------------|--------------------------------|----------------------------------|
| `joined`        | exactly if the flow commits    | sends nothing twice              |
| `transactional` | when the task is done          | sends nothing twice              |
| `plain`         | at once                        | may send it again                |

Only `joined` needs a flow. If the task dies, what it did not finish stays invisible, except a plain message.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from airflow.sdk import BaseOperator, Context

from txsaga.core.message import MessageOptions
from txsaga.errors import AlreadyCommitted, ConfigError
from txsaga.flows.declaration import Output, TransactionMode
from txsaga.provider.ambient import AMBIENT, producer_of
from txsaga.provider.operators.flow_task import JoinedFlow
from txsaga.provider.operators.step import StepOperator
from txsaga.provider.options import moment_of, require_zone, store_of
from txsaga.provider.reference import group_of, own_key_of
from txsaga.provider.refusing import refused_for_good
from txsaga.provider.results import find_result, keep_result

PLAIN = "-plain"
"""Plain messages have their own group: a group either answers for transactions or never has one."""


class PublishMode(StrEnum):
    """When a message becomes visible."""

    JOINED = "joined"
    TRANSACTIONAL = "transactional"
    PLAIN = "plain"


class Publish(StepOperator):
    """Publish a message."""

    template_fields: Collection[str] = ("flow", "body", "key", "headers", "deliver_at")

    def __init__(
        self,
        *,
        topic: str,
        body: object = "",
        key: str | None = None,
        tag: str | None = None,
        headers: Mapping[str, str] | None = None,
        deliver_at: datetime | str | None = None,
        delay: timedelta | None = None,
        mode: PublishMode | str = PublishMode.JOINED,
        store: str | None = None,
        group: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.topic, self.body, self.key, self.tag, self.headers = topic, body, key, tag, headers
        self.publish_mode = PublishMode(mode)
        self.store, self.group = store_of(store), group
        self.deliver_at, self.delay = deliver_at, delay
        if (deliver_at or delay) and self.publish_mode is not PublishMode.PLAIN:
            raise ConfigError(
                f"task {self.task_id!r} publishes with a transaction, and what is decided can't come later: "
                'say mode="plain", or leave deliver_at= and delay= out'
            )
        require_zone(deliver_at, self._moment)

    def execute(self, context: Context) -> object:
        """Publish the message."""
        if self.publish_mode is PublishMode.JOINED:
            return super().execute(context)
        with refused_for_good():
            ti = context["ti"]
            broker, group = AMBIENT.broker(self.store), self.group or group_of(ti.dag_id)
            if self.publish_mode is PublishMode.PLAIN:
                plain = broker.producer(group + PLAIN)
                return plain.send(self.topic, body_of(self.body), **self._options()).txid
            key = own_key_of(ti)
            try:
                with producer_of(broker, group).transaction(key=key) as transaction:
                    transaction.send(self.topic, body_of(self.body), **self._options())
            except AlreadyCommitted as done:
                return done.txid
            return transaction.txid

    def needs_held(self) -> str:
        """Return the reason: a message of the flow can't be part of what a resource commits by itself."""
        return f"task {self.task_id!r} publishes with the flow, and {self.on!r} settles its own work: leave on= out"

    def do(self, context: Context, flow: JoinedFlow, handle: Any) -> object:
        """Add the message to the step; it is stored when the step is done."""
        flow.flow.send(self.topic, body_of(self.body), **self._options())
        return None

    def sends(self) -> Output:
        """Return what this task sends, for the flow's plan."""
        joins = self.publish_mode is PublishMode.JOINED
        transaction = TransactionMode.AUTOMATIC if joins else TransactionMode.NO
        return Output(name=self.task_id, topic=self.topic, transaction=transaction)

    @property
    def _moment(self) -> str:
        return f"deliver_at of task {self.task_id!r}"

    def _options(self) -> MessageOptions:
        later = moment_of(self.deliver_at, self._moment)
        return {"key": self.key, "tag": self.tag, "headers": self.headers, "deliver_at": later, "delay": self.delay}


def body_of(body: object) -> bytes:
    """Return a body as bytes: bytes and text unchanged, anything else as JSON."""
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode()
    try:
        return json.dumps(body, ensure_ascii=False).encode()
    except (TypeError, ValueError) as reason:
        raise ConfigError(f"the body is no JSON ({reason}); give bytes, text, or plain values") from None


ANY = 0
"""The transaction number of a kept result that belongs to the task, whichever transaction it was."""


class ClusterPublish(BaseOperator):
    """Publish messages to a cluster in one transaction; its XCom lists the brokers that took part."""

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
        """Publish the messages, unless an earlier attempt did."""
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
