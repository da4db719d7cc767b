"""
A task of a flow, and a step: the bases of all flow operators.

A task finds the flow of its run, joins it, works, and leaves. `flow` is the id of the task that began the flow (default
"begin"), or that task's output. If the process dies during the task, the flow stays open: a retry joins it again.

The work of a step is held until the flow or its lane is decided, or is settled when the step ends. The step has the
name of its task, so each retry is an attempt of the same step: a step that is done is not repeated, and its result is
found again. Its `compensate=` is stored before it runs, and runs after the decision ROLLBACK if the step left any
effect. A step that skips itself (`AirflowSkipException`) has not failed: the flow may commit without it.

A step may be done although its process died before it wrote its XCom. So its result is kept before it is done, in
Airflow's task state together with the transaction id, and a step whose result can't be kept fails.

What a retry can't fix fails the task at once, with a one-line error. Errors that a retry may fix (an unavailable store,
a lock, an unknown outcome) pass unchanged, and Airflow tries again.
"""

from __future__ import annotations

import json
import logging
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from txsaga import errors
from txsaga.flows.step import HOME, Hold, read_hold
from txsaga.provider.connections import AMBIENT
from txsaga.provider.planning.modes import DeclaredStep, ResourceMode, StepMode
from txsaga.provider.reference import BEGIN, FlowReference, read_reference, step_name_of
from txsaga.provider.resources import StoredConnection, settles_alone, stored_name
from txsaga.provider.tracing import named, traced

if TYPE_CHECKING:
    from jinja2 import Environment

    from txsaga.broker import Broker
    from txsaga.flows.actions import Doing, Undo
    from txsaga.flows.flow import Flow

logger = logging.getLogger(__name__)
PLACE = "txsaga_result"
MAX_RESULT = 1024 * 1024
"""The largest result, in bytes as stored in Airflow's database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedFlow:
    """A flow that a task has joined."""

    reference: FlowReference
    broker: Broker
    flow: Flow

    @property
    def txid(self) -> int:
        """The number of the flow's transaction."""
        return self.reference["txid"]

    def resource(self, name: str) -> StoredConnection:
        """Return the declaration of a resource."""
        if name not in self.reference["resources"]:
            known = ", ".join(sorted(self.reference["resources"])) or "none"
            raise errors.ConfigError(
                f"{name!r} is not a resource of this flow (it has {known}); name it where the flow begins"
            )
        return self.reference["resources"][name]

    def stored(self, name: str) -> str:
        """Return the name of a resource in the store."""
        return HOME if name == HOME else stored_name(self.resource(name)["connection"])

    def step(self, name: str, *, on: str | None = None, **said: Any) -> AbstractContextManager[Any]:
        """Open a step on a resource: in main or in its lane, as the resource was declared."""
        if on is None or on == HOME:
            return self.flow.step(name, on=on, **said)
        if self.resource(on)["mode"] == ResourceMode.LANE:
            return self.flow.step(name, lane=self.stored(on), **said)
        return self.flow.step(name, on=self.stored(on), **said)

    def settles_itself(self, on: str | None, *, commit: bool = False) -> bool:
        """Return whether work on a resource is settled when its step ends, regardless of the flow's outcome."""
        if on is None or on == HOME:
            return False
        return commit or settles_alone(self.resource(on)["mode"], self.reference["coordinated"])


class FlowOperator(BaseOperator):
    """A task that works in the flow of its run."""

    template_fields: Collection[str] = ("flow",)
    ui_color = "#e8f1ea"

    def __init__(self, *, flow: str | Mapping[str, object] | Any = BEGIN, **options: Any) -> None:
        super().__init__(**options)
        self.flow = flow

    def render_template_fields(self, context: Context, jinja_env: Environment | None = None) -> None:
        """Render them, and meanwhile open the store: Airflow takes time to store the fields and to find the flow."""
        begin = None if self.dag is None else self.dag.task_dict.get(str(self.flow))
        if (store := getattr(begin, "store", None)) is not None:
            AMBIENT.open_ahead(store)
        super().render_template_fields(context, jinja_env)

    def execute(self, context: Context) -> object:
        """Join the flow and work in it."""
        with refused_for_good(), traced("task", kind=type(self).__name__) as span:
            flow = joined(context, self.flow)
            named(span, txid=flow.txid, id=flow.reference["id"], epoch=flow.reference["epoch"])
            return self.work(context, flow)

    @abstractmethod
    def work(self, context: Context, flow: JoinedFlow) -> object:
        """Do the task's work; the return value is its XCom."""

    def declared(self) -> DeclaredStep | None:
        """Return this task as a declared step of the flow; None if it is no step."""
        return None


def reference_of(context: Context, flow: object) -> FlowReference:
    """Return the reference that begin handed on, from a task's `flow=`."""
    if isinstance(flow, str):
        return read_reference(context["ti"].xcom_pull(task_ids=flow), flow)
    return read_reference(flow, "of flow=")


def joined(context: Context, flow: object) -> JoinedFlow:
    """Join the flow of a task's `flow=`; raise if it is already decided."""
    reference = reference_of(context, flow)
    broker = opened(reference)
    return JoinedFlow(reference=reference, broker=broker, flow=broker.flow(reference["txid"]))


def opened(reference: FlowReference) -> Broker:
    """Open the store of a flow and the databases it may work in."""
    return AMBIENT.broker(reference["store"], [each["connection"] for each in reference["resources"].values()])


HOLD_IT = "declare it as a lane, or the flow as coordinated, or do this in a separate step without on="


class StepOperator(FlowOperator):
    """A task that is a step of its flow: on a resource, in its lane, or without one."""

    def __init__(
        self,
        *,
        on: str | None = None,
        hold: Hold | str | None = None,
        mode: StepMode | str = StepMode.AUTOMATIC,
        compensate: Doing | Undo | None = None,
        input: Mapping[str, object] | None = None,
        max_result: int = MAX_RESULT,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.on, self.max_result = on, result_limit(max_result, self.task_id)
        self.hold = read_hold(hold)
        self.mode = StepMode(mode)
        self.compensate, self.input = compensate, input

    def work(self, context: Context, flow: JoinedFlow) -> object:
        """Do the step, unless an earlier attempt did."""
        try:
            if not flow.settles_itself(self.on, commit=self.mode is StepMode.COMMIT):
                return self._held(context, flow)
            if why := self.needs_held():
                raise errors.ConfigError(why)
            return self._settled(context, flow)
        except errors.StepLeftOut as left_out:
            raise AirflowSkipException(str(left_out)) from left_out

    def _held(self, context: Context, flow: JoinedFlow) -> object:
        """Do the work and hold it for the flow or its lane."""
        try:
            with flow.step(step_name_of(context["ti"]), on=self.on, hold=self.hold, **self._undone()) as handle:
                with skipped_as_left_out():
                    result = self.do(context, flow, handle)
                keep_result(context, flow.txid, result if self.do_xcom_push else None, self.max_result)
                return result
        except errors.StepDone as done:
            self.log.info("%s", done)
            return find_result(context, flow.txid)

    def do(self, context: Context, flow: JoinedFlow, handle: Any) -> object:
        """Do the work of one attempt; `handle` is a connection, a journal, or None without a resource."""
        raise NotImplementedError

    def needs_held(self) -> str:
        """Return why this step's work must be held on its resource; empty if it need not be."""
        return ""

    def declared(self) -> DeclaredStep | None:
        """Return this task as a declared step of the flow."""
        return DeclaredStep(name=self.task_id, resource=self.on, hold=self.hold, mode=self.mode)

    def undo_input(self) -> Mapping[str, object] | None:
        """Return the input of the compensation; it is stored, so put no secrets in it."""
        return self.input

    def _undone(self) -> dict[str, Any]:
        if self.compensate is None:
            return {}
        return {"compensate": self.compensate, "input": dict(self.undo_input() or {})}

    def _settled(self, context: Context, flow: JoinedFlow) -> object:
        """Do the work once, in its own transaction, with a row that records it."""
        assert self.on is not None
        results: list[object] = []

        def work(connection: Any, **_: object) -> object:
            with skipped_as_left_out():
                results.append(self.do(context, flow, connection))
            return as_plain(results[0], self.max_result) if self.do_xcom_push else None

        kept = flow.flow.call(step_name_of(context["ti"]), work, on=flow.stored(self.on), **self._undone())
        return results[0] if results else from_plain(kept)


@contextmanager
def skipped_as_left_out() -> Iterator[None]:
    """Convert a step's skip into `StepLeftOut`, which means that nothing was done."""
    try:
        yield
    except AirflowSkipException as skipped:
        raise errors.StepLeftOut(str(skipped) or "the step skipped itself") from skipped


def keep_result(context: Context, txid: int, result: object, most: int | None = None) -> None:
    """Keep the result of a step before it is done; fail the task if it can't be serialized or is too large."""
    plain = as_plain(result, most)
    store: Any = context.get("task_state_store")
    if store is None or (result is None and context["ti"].try_number <= 1):
        return  # nothing to keep, and no earlier attempt kept anything
    store.set(PLACE, json.dumps({"txid": txid, "result": plain}))


def find_result(context: Context, txid: int) -> object:
    """Return what an earlier attempt kept for this transaction."""
    store: Any = context.get("task_state_store")
    found = None if store is None else store.get(PLACE)
    if isinstance(found, str):
        kept = json.loads(found)
        if kept.get("txid") == txid:
            return from_plain(kept["result"])
    logger.info("the step was done by an earlier attempt, whose result was not stored")
    return None


def as_plain(result: object, most: int | None = None) -> object:
    """Return a result as JSON in Airflow's XCom format; fail if that is impossible or it has more than `most` bytes."""
    from airflow.sdk.serde import serialize

    try:
        plain = serialize(result)
        size = len(json.dumps(plain))
    except (TypeError, ValueError, AttributeError, RecursionError) as reason:
        raise AirflowFailException(
            f"the step returns a {type(result).__name__} that can't be handed on ({reason}); "
            "return plain values, or set do_xcom_push=False"
        ) from None
    if most is not None and size > most:
        raise AirflowFailException(
            f"the step returns {size:,} bytes, and at most {most:,} are handed on, by way of Airflow's database; keep "
            "them in a table or a file and return its name, allow more by max_result=, or set do_xcom_push=False"
        )
    return plain


def from_plain(kept: Any) -> object:
    """Return the result of what `as_plain` returned."""
    from airflow.sdk.serde import deserialize

    try:
        return deserialize(kept)
    except ImportError as refused:
        raise AirflowFailException(
            f"the result of the attempt that did the step can't be read: {refused}; "
            "name its class in allowed_deserialization_classes of Airflow's [core]"
        ) from None


def result_limit(said: object, task: str) -> int:
    """Validate how many bytes a step's result may have."""
    if type(said) is not int or said < 1:
        raise errors.ConfigError(f"max_result of step {task!r} is {said!r}; give a number of bytes, 1 or more")
    return said


FOR_GOOD = (
    errors.ConfigError,
    errors.InvalidMessage,
    errors.ReservedName,
    errors.ResourceUnknown,
    errors.TransactionClosed,
    errors.UnknownTopic,
)
CLEAR_ALL = "clear the whole run, its first task included, to run it again in a new transaction"


class FlowRolledBack(AirflowFailException):
    """The flow was rolled back: its task and its run fail, and no retry changes that."""


@contextmanager
def refused_for_good() -> Iterator[None]:
    """Turn errors that no retry can fix into a failure without retries."""
    try:
        yield
    except errors.AlreadyCommitted as decided:
        raise AirflowFailException(
            f"transaction {decided.txid} is committed; a task can't add to it any more"
        ) from None
    except errors.DecidedOtherwise as decided:
        raise AirflowFailException(f"transaction {decided.txid} is rolled back; {CLEAR_ALL}") from None
    except FOR_GOOD as refused:
        raise AirflowFailException(f"{type(refused).__name__}: {refused}") from refused
