"""
A half message by itself: one task stores it, invisible to consumers; another commits it or rolls it back.

Works in any DAG, without a flow. A retry of the first task finds the message it stored, unless that is decided: a
cleared run stores a new one. Repeating a decision does nothing. The first task's output names the message but is no
permission to decide it: the deciding task gets its receipt from the store. If the second task never runs, a checker is
asked, by a `CheckBackSensor` of the first task's output or by `txsaga engine --checker`; so a checker is required.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException

from txsaga.core.decision import Decision
from txsaga.core.records import Receipt
from txsaga.errors import ConfigError, DecidedOtherwise
from txsaga.provider.ambient import AMBIENT, producer_of
from txsaga.provider.checking import checker_name
from txsaga.provider.operators.publish import body_of
from txsaga.provider.options import store_of
from txsaga.provider.reference import TransactionLink, group_of
from txsaga.provider.refusing import refused_for_good
from txsaga.provider.results import find_result, keep_result

if TYPE_CHECKING:
    from txsaga.broker import Broker

ANY = 0
"""The transaction number of a kept half message, which has no earlier transaction to belong to."""


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
                f"task {self.task_id!r} stores a half message, and nobody could be asked what became of its local "
                "work: give checker='module:function'; work in a database leaves evidence, use LocalTransaction for it"
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
            raise ConfigError(f"transaction {txid} is not in this store; look at the store of the task that stored it")
        if doubt.keyed:
            raise ConfigError(f"transaction {txid} is no half message; whoever began it decides it")
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
        raise ConfigError("half= is no half message; give the output of HalfMessagePrepare, or its task id") from None
