"""
Messages of tasks: published, taken, stored as half messages, or sent about a run.

| mode of Publish | visible                        | a retry                          |
|-----------------|--------------------------------|----------------------------------|
| `joined`        | exactly if the flow commits    | sends nothing twice              |
| `transactional` | when the task is done          | sends nothing twice              |
| `plain`         | at once                        | may send it again                |

Messages that a flow takes are consumed exactly if it commits; if it rolls back they are redelivered and counted. They
belong to the flow by the same commit that marks the step done. A process that dies earlier has taken none.

A half message works in any DAG, without a flow: one task stores it, another commits it or rolls it back. A retry of the
first finds the message it stored, unless that is decided: a cleared run stores a new one. The first task's output names
the message but is no permission to decide it: the deciding task gets its receipt from the store. If the second task
never runs, a checker is asked, by a `CheckBackSensor` or by `txsaga engine --checker`; so a checker is required.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseNotifier, BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from txsaga.core.decision import Decision
from txsaga.core.message import MessageOptions
from txsaga.core.records import Receipt
from txsaga.errors import AlreadyCommitted, ConfigError, DecidedOtherwise, StepDone
from txsaga.inspect.documents import readable
from txsaga.provider.connections import AMBIENT, producer_of
from txsaga.provider.operators.task import JoinedFlow, StepOperator, find_result, keep_result, refused_for_good
from txsaga.provider.options import checker_name, moment_of, require_zone, store_of
from txsaga.provider.planning.modes import Output, TransactionMode
from txsaga.provider.reference import TransactionLink, group_of, own_key_of, step_name_of
from txsaga.provider.tracing import counted

if TYPE_CHECKING:
    from txsaga.broker import Broker
    from txsaga.consume.consumer import Consumer
    from txsaga.consume.delivery import Delivery


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
                f"task {self.task_id!r} publishes with a transaction, whose messages can't be delayed: "
                'use mode="plain", or leave out deliver_at= and delay='
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
                return broker.producer(group).send(self.topic, body_of(self.body), **self._options()).txid
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
        """Return what this task sends, as a declared output of the flow."""
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
        raise ConfigError(f"the body is not JSON ({reason}); give bytes, text, or plain values") from None


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
        self.definition = {"brokers": list(brokers), "policy": policy, "xa": True, **(definition or {})}
        self.policy, self.store, self.group = policy, store_of(store), group

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


AT_ONCE = 60  # messages per claim
MAX_BYTES = 1024 * 1024


class ConsumeStep(StepOperator):
    """Take up to `batch` messages of a group; the XCom is a list of them. Without messages the task is skipped.

    Each is a dict of `id`, `topic`, `key`, `tag`, `headers`, `attempts` and `body`. The body is text or, if it is not
    UTF-8, base64 with an additional `encoding: "base64"`. The result is stored in Airflow's database, so `max_bytes`
    limits it: messages beyond the limit are given back as if never taken; a single one above the limit is refused.
    """

    template_fields: Collection[str] = ("flow",)
    never_mapped = (
        "takes messages and can't be mapped: if one mapped instance found no messages, all later tasks would be "
        "skipped, although others took some; raise batch=, or allow several runs of the flow at once"
    )

    def __init__(
        self,
        *,
        topics: str | Sequence[str],
        consumer_group: str | None = None,
        batch: int = 100,
        max_bytes: int = MAX_BYTES,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.topics = [topics] if isinstance(topics, str) else list(topics)
        if batch < 1 or max_bytes < 1:
            raise ConfigError(
                f"step {self.task_id!r} takes up to batch={batch} messages of max_bytes={max_bytes}: give 1 or more"
            )
        self.consumer_group, self.batch, self.max_bytes = consumer_group, batch, max_bytes

    def not_amended(self) -> str:
        """Return why a flow with this step can't be amended."""
        return (
            f"step {self.task_id!r} takes messages, and those that a commit took are done: an amendment would take "
            "others; leave allow_amend= out"
        )

    def work(self, context: Context, flow: JoinedFlow) -> object:
        """Take the messages, unless an earlier attempt did."""
        known: object
        try:
            with flow.step(step_name_of(context["ti"])):
                known = taken = self._taken(context, flow)
            counted("messages.taken", len(taken), dag_id=self.dag_id)
        except StepDone as done:
            self.log.info("%s", done)
            known = find_result(context, flow.txid)
        if not known:
            raise AirflowSkipException("there is no message")
        return known

    def _taken(self, context: Context, flow: JoinedFlow) -> list[dict[str, object]]:
        group = self.consumer_group or group_of(context["ti"].dag_id)
        received = self._received(flow.broker.consumer(group, self.topics))
        told = [each for _, each in received]
        keep_result(context, flow.txid, told)
        for each, _ in received:
            flow.flow.consume(each)
        return told

    def _received(self, consumer: Consumer) -> list[tuple[Delivery, dict[str, object]]]:
        """Take messages until the batch is full, no message is left, or `max_bytes` is reached."""
        found: list[tuple[Delivery, dict[str, object]]] = []
        room = self.max_bytes
        while len(found) < self.batch:
            taken = consumer.receive(min(AT_ONCE, self.batch - len(found)))
            for at, each in enumerate(taken):
                plain = as_told(each)
                room -= len(json.dumps(plain))
                if room < 0:
                    for left in taken[at:]:
                        left.give_back()
                    self._require_some(found, each)
                    return found
                found.append((each, plain))
            if not taken:
                break
        return found

    def _require_some(self, found: Sequence[object], message: Delivery) -> None:
        if not found:
            raise AirflowFailException(
                f"message {message.id} has {len(message.body)} bytes, and step {self.task_id!r} hands on no more than "
                f"{self.max_bytes} in all: give it more by max_bytes=, or take it in a Python step by flow.consume(…)"
            )


def as_told(message: Delivery) -> dict[str, object]:
    """Return a message as the plain values that later tasks get."""
    told = {name: getattr(message, name) for name in ("id", "topic", "key", "tag")}
    told |= {"headers": dict(message.headers), "attempts": message.attempts}
    body, encoding = readable(bytes(message.body))
    return told | {"body": body} | ({} if encoding == "utf-8" else {"encoding": encoding})


class HalfMessagePrepare(BaseOperator):
    """Store a half message; the XCom names it."""

    template_fields: Collection[str] = ("body", "key", "headers")
    ui_color = "#e8f1ea"
    operator_extra_links = (TransactionLink(),)

    def __init__(
        self,
        *,
        topic: str,
        checker: str | Callable[..., Any] | None = None,
        body: object = "",
        key: str | None = None,
        tag: str | None = None,
        headers: Mapping[str, str] | None = None,
        store: str | None = None,
        group: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.topic, self.body, self.key, self.tag, self.headers = topic, body, key, tag, headers
        self.store, self.group = store_of(store), group
        if checker is None:
            raise ConfigError(
                f"task {self.task_id!r} stores a half message without a checker that reports the outcome of its local "
                "work: pass checker='module:function'; for work in a database use LocalTransaction, "
                "which leaves evidence"
            )
        self.checker = checker_name(checker)

    def execute(self, context: Context) -> dict[str, object]:
        """Store it, unless an earlier attempt did."""
        with refused_for_good():
            group = self.group or group_of(context["ti"].dag_id)
            broker = AMBIENT.broker(self.store)
            known = find_result(context, ANY)
            if isinstance(known, dict) and _standing(broker, known["txid"]) is None:
                return known
            receipt = producer_of(broker, group).prepare_now(
                self.topic, body_of(self.body), key=self.key, tag=self.tag, headers=self.headers
            )
            made: dict[str, object] = {
                "txid": receipt.txid,
                "id": broker.identity.transaction(receipt.txid),
                "group": group,
                "store": self.store,
            }
            keep_result(context, ANY, made)
            return made


def _standing(broker: Broker, txid: int) -> Decision | None:
    """Return the decision of a half message, or None; if it is decided, a cleared run stores a new message."""
    with broker.kernel.store.ledgers.open() as ledger:
        return ledger.standing(txid)


class HalfMessageDecide(BaseOperator):
    """Decide a half message; `half` is the output of the task that stored it, or that task's id."""

    template_fields: Collection[str] = ("half",)
    decision: Decision
    ui_color = "#cfe3d4"

    def __init__(self, *, half: str | Mapping[str, object] | Any, **options: Any) -> None:
        super().__init__(**options)
        self.half = half

    def execute(self, context: Context) -> dict[str, object]:
        """Decide it; an existing decision is final."""
        with refused_for_good():
            half = self.half
            if isinstance(half, str):
                half = context["ti"].xcom_pull(task_ids=half)
            txid, group, store = _named(half)
            try:
                self._decide(AMBIENT.broker(store), txid, group)
            except DecidedOtherwise as standing:
                raise AirflowFailException(str(standing)) from None
            return {"txid": txid, "decision": self.decision.name}

    def _decide(self, broker: Broker, txid: int, group: str) -> None:
        """Decide it with the receipt that the store gives to logins that may decide for its group."""
        standing = _standing(broker, txid)
        if standing is not None:
            if standing is not self.decision:
                raise DecidedOtherwise(txid, standing.name)
            return
        doubt = broker.kernel.store.doubts.of(txid)
        if doubt is None:
            raise ConfigError(f"transaction {txid} is not in this store; use the store of the task that stored it")
        if doubt.keyed:
            raise ConfigError(f"transaction {txid} is not a half message; the process that began it decides it")
        producer = producer_of(broker, group)
        decide = producer.commit if self.decision is Decision.COMMIT else producer.roll_back
        decide(Receipt(txid, doubt.group, doubt.token))


class HalfMessageCommit(HalfMessageDecide):
    """Make a half message visible."""

    decision = Decision.COMMIT


class HalfMessageRollback(HalfMessageDecide):
    """Roll a half message back, so that it never becomes visible."""

    decision = Decision.ROLLBACK


def _named(half: object) -> tuple[int, str, str]:
    try:
        assert isinstance(half, Mapping)
        return int(half["txid"]), str(half["group"]), str(half["store"])
    except (AssertionError, KeyError, TypeError, ValueError):
        raise ConfigError("half= is not a half message; give HalfMessagePrepare's output or task id") from None


GROUP = "airflow-notifications"


class MessageNotifier(BaseNotifier):
    """Send a message about a run or a task: `on_failure_callback=MessageNotifier(topic="trouble", body=…)`.

    It is a plain message, visible at once and outside every flow. Never put work of a transaction into a callback:
    Airflow may run it late, twice, or not at all.
    """

    template_fields: Sequence[str] = ("topic", "body", "key")

    def __init__(
        self,
        *,
        topic: str,
        body: str | dict[str, Any] = "{{ dag_run.dag_id }}/{{ dag_run.run_id }}",
        key: str = "{{ dag_run.run_id }}",
        store: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.topic, self.body, self.key, self.store = topic, body, key, store_of(store)

    def notify(self, context: Context) -> None:
        """Send the message."""
        body = self.body if isinstance(self.body, str) else json.dumps(self.body)
        AMBIENT.broker(self.store).producer(GROUP).send(self.topic, body.encode(), key=self.key)
