"""
A step: a task whose work is held until the flow or its lane is decided, or is settled when the step ends.

    class MyStep(StepOperator):
        def do(self, context: Context, flow: JoinedFlow, handle: Any) -> object: …

`handle` is a connection or a journal; it is None for a step without a resource. The step has the name of its task, so
each retry is an attempt of the same step: a step that is done is not repeated, and its result is found again. Its
`compensate=` is stored before it runs, and runs after the decision ROLLBACK if the step left any effect. If the process
dies in the step, the next attempt takes over. A step that skips itself (`AirflowSkipException`) has not failed: it left
no effect, and the flow may commit without it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException

from txsaga.errors import ConfigError, StepDone, StepLeftOut
from txsaga.flows.declaration import DeclaredStep, Hold, StepMode
from txsaga.provider.operators.flow_task import FlowOperator, JoinedFlow
from txsaga.provider.reference import step_name_of
from txsaga.provider.results import MAX_RESULT, as_plain, find_result, from_plain, keep_result, result_limit

if TYPE_CHECKING:
    from txsaga.flows.saga_code import Doing
    from txsaga.flows.saga_values import Undo

HOLD_IT = "declare it as a lane, or the flow as coordinated, or do this in a step of its own without on="


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
        self.hold = None if hold is None else Hold(hold)
        self.mode = StepMode(mode)
        self.compensate, self.input = compensate, input

    def work(self, context: Context, flow: JoinedFlow) -> object:
        """Do the step, unless an earlier attempt did."""
        try:
            if not flow.settles_itself(self.on, commit=self.mode is StepMode.COMMIT):
                return self._held(context, flow)
            if why := self.needs_held():
                raise ConfigError(why)
            return self._settled(context, flow)
        except StepLeftOut as left_out:
            raise AirflowSkipException(str(left_out)) from left_out

    def _held(self, context: Context, flow: JoinedFlow) -> object:
        """Do the work and hold it for the flow or its lane."""
        try:
            with flow.step(self.step_name(context), on=self.on, hold=self.hold, **self._undone()) as handle:
                result = self._do(context, flow, handle)
                keep_result(context, flow.txid, result if self.do_xcom_push else None, self.max_result)
                return result
        except StepDone as done:
            self.log.info("%s", done)
            return find_result(context, flow.txid)

    @abstractmethod
    def do(self, context: Context, flow: JoinedFlow, handle: Any) -> object:
        """Do the work of one attempt."""

    def needs_held(self) -> str:
        """Return why this step's work must be held on its resource; empty if it need not be."""
        return ""

    def declared(self) -> DeclaredStep | None:
        """Return this task as a step of the flow's plan."""
        return DeclaredStep(name=self.task_id, resource=self.on, hold=self.hold, mode=self.mode)

    def step_name(self, context: Context) -> str:
        """Return the name of the step in the flow."""
        return step_name_of(context["ti"])

    def undo_input(self) -> Mapping[str, object] | None:
        """Return the input of the compensation; it is stored, so put no secrets in it."""
        return self.input

    def _undone(self) -> dict[str, Any]:
        if self.compensate is None:
            return {}
        return {"compensate": self.compensate, "input": dict(self.undo_input() or {})}

    def _do(self, context: Context, flow: JoinedFlow, handle: Any) -> object:
        with skipped_as_left_out():
            return self.do(context, flow, handle)

    def _settled(self, context: Context, flow: JoinedFlow) -> object:
        """Do the work once, in its own transaction, with a row that records it."""
        assert self.on is not None
        results: list[object] = []

        def work(connection: Any, **_: object) -> object:
            results.append(self._do(context, flow, connection))
            return as_plain(results[0], self.max_result) if self.do_xcom_push else None

        kept = flow.flow.call(self.step_name(context), work, on=flow.stored(self.on), **self._undone())
        return results[0] if results else from_plain(kept)


@contextmanager
def skipped_as_left_out() -> Iterator[None]:
    """Convert a step's skip into `StepLeftOut`, which means that nothing was done."""
    try:
        yield
    except AirflowSkipException as skipped:
        raise StepLeftOut(str(skipped) or "the step skipped itself") from skipped
