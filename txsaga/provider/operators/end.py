"""
The task that ends a flow: it judges the run and decides, as the teardown and last node of its DAG.

It commits if all steps are done. Otherwise it rolls back, undoes what was committed step by step (R6), and raises, so
that its run fails. If it runs again, it finds the existing decision. If it never runs, the flow is rolled back once its
lease has expired and its run is over.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context

from txsaga.core.decision import Decision
from txsaga.errors import AlreadyCommitted, CompensationFailed, DecidedOtherwise, StepsOpen, TxSagaError, Unfinished
from txsaga.flows.step_records import FlowStep, FlowStepState, last_attempts
from txsaga.provider.operators.flow_task import FlowOperator, JoinedFlow, opened
from txsaga.provider.operators.publish import PublishMode
from txsaga.provider.options import RETRIES, RETRY_DELAY
from txsaga.provider.outlets import untold, write_down
from txsaga.provider.reference import FlowReference, TransactionLink
from txsaga.provider.refusing import CLEAR_ALL, FlowRolledBack, refused_for_good
from txsaga.provider.tracing import timed, traced
from txsaga.provider.verdict import RunShape, RunVerdict, judge, left_behind

if TYPE_CHECKING:
    from txsaga.broker import Broker


OUTSIDE = (PublishMode.PLAIN, PublishMode.TRANSACTIONAL)
"""Publish modes that record no step."""


class FlowEnd(FlowOperator):
    """Commit the flow of a run, or roll it back and raise."""

    ui_color = "#cfe3d4"
    operator_extra_links = (TransactionLink(),)

    def __init__(
        self,
        *,
        seal: str | None = None,
        handlers: Mapping[str, str] | None = None,
        retries: int = RETRIES,
        retry_delay: timedelta | float = RETRY_DELAY,
        **options: Any,
    ) -> None:
        super().__init__(retries=retries, retry_delay=retry_delay, **options)
        self.seal, self.handlers = seal, dict(handlers or {})

    def execute(self, context: Context) -> object:
        """Judge the run and decide; an existing decision is final."""
        with refused_for_good():
            reference = self.reference(context)
            broker = opened(reference)
            try:
                flow = broker.flow(reference["txid"])
            except AlreadyCommitted:
                self.outlets = untold(self.outlets, reference["id"], context["dag_run"].run_after)
                return self._committed(context, reference)
            except DecidedOtherwise:
                undo_the_rest(broker, reference["txid"])
                raise _rolled_back(reference["txid"], "it was decided before") from None
            return self.work(context, JoinedFlow(reference=reference, broker=broker, flow=flow))

    def work(self, context: Context, flow: JoinedFlow) -> object:
        """Decide the flow."""
        verdict = self.verdict(context)
        if verdict.commit and (left := self._left_behind(context, flow)):
            why = f"{_listed(left)} did its work in an earlier life of the transaction, and was not run in this one"
            verdict = RunVerdict(commit=False, why=why)
        about: dict[str, Any] = {"txid": flow.txid, "id": flow.reference["id"], "commit": verdict.commit}
        with traced("decide", **about), timed("flow.deciding", dag_id=self.dag_id):
            if not verdict.commit:
                _roll_back(flow, verdict.why)
                raise _rolled_back(flow.txid, verdict.why)
            self._commit(context, flow, verdict)
        return self._committed(context, flow.reference)

    def verdict(self, context: Context) -> RunVerdict:
        """Judge the run."""
        return judge(_states(context), self._shape())

    def _left_behind(self, context: Context, flow: JoinedFlow) -> list[str]:
        """Return tasks not cleared with their run: Airflow counts them as done, but their work is not in this epoch."""
        if flow.reference["epoch"] == 1:
            return []
        earlier, here = _done_before(flow)
        dag = self.get_dag()
        assert dag is not None
        still = {step for step in earlier if _does_step(dag.task_dict.get(step.partition("[")[0]))}
        return left_behind(_states(context), still, here)

    def _shape(self) -> RunShape:
        upstream = self.get_flat_relatives(upstream=True)
        steps = [each.task_id for each in upstream if not each.is_setup and each.task_id != self.seal]
        dag = self.get_dag()
        assert dag is not None
        behind = {
            each: {task.task_id for task in dag.get_task(each).get_flat_relatives(upstream=False)}
            for each in self.handlers
        }
        return RunShape(steps=steps, seal=self.seal, handlers=self.handlers, behind=behind)

    def _commit(self, context: Context, flow: JoinedFlow, verdict: RunVerdict) -> None:
        decided: list[Decision] = []
        flow.flow.when_decided(decided.append)
        handled, left_out = _steps_of_handled(flow, verdict)
        if done := [each.name for each in handled if each.state is FlowStepState.DONE]:
            why = f"task {done[0]!r} failed behind its step, whose work is done and can't be left out"
            _roll_back(flow, why)
            raise _rolled_back(flow.txid, why)
        try:
            write_down(context, flow, self.outlets)
            flow.flow.end(handled=[each.name for each in (*handled, *left_out)])
        except Unfinished as late:
            self.log.warning("%s", late)  # it is committed; recovery notifies unavailable resources
        except AlreadyCommitted as known:
            self.log.info("%s", known)  # an earlier attempt committed it, or its last resource reports that
        except DecidedOtherwise:
            undo_the_rest(flow.broker, flow.txid)
            raise _rolled_back(flow.txid, "it was decided before") from None
        except StepsOpen as left:
            _roll_back(flow, str(left))
            raise _rolled_back(flow.txid, str(left)) from left
        except TxSagaError as reason:
            if Decision.ROLLBACK in decided:
                raise _rolled_back(flow.txid, str(reason)) from reason
            raise

    def _committed(self, context: Context, reference: FlowReference) -> dict[str, object]:
        told: dict[str, Any] = {"txid": reference["txid"], "id": reference["id"]}
        if reference.get("amends"):
            told["amends"] = reference["amends"]
        for outlet in self.outlets:
            context["outlet_events"][outlet].extra = dict(told)
        return {**told, "decision": Decision.COMMIT.name}


def undo_the_rest(broker: Broker, txid: int) -> None:
    """Make sure that a rolled-back flow is fully compensated, whichever process began to do so."""
    from txsaga.flows.flow_end import wait_until_undone

    try:
        wait_until_undone(broker.kernel, txid)
    except CompensationFailed as stalled:
        raise FlowRolledBack(str(stalled)) from stalled


def _roll_back(flow: JoinedFlow, why: str) -> None:
    try:
        flow.flow.roll_back(why)
    except CompensationFailed as stalled:  # it needs an operator, not a retry
        raise FlowRolledBack(f"transaction {flow.txid} is rolled back: {why}; {stalled}") from stalled


def _steps_of_handled(flow: JoinedFlow, verdict: RunVerdict) -> tuple[list[FlowStep], list[FlowStep]]:
    """Return the steps of tasks whose failure was handled, and those of tasks that skipped themselves."""
    if not verdict.handled and not verdict.left_out:
        return [], []
    with flow.broker.kernel.store.ledgers.open() as ledger:
        last = last_attempts(ledger.flows.steps(flow.txid))
    skipped = [each for each in last if each.name in verdict.left_out and each.state is FlowStepState.FAILED]
    return [each for each in last if each.name.partition("[")[0] in verdict.handled], skipped


def _states(context: Context) -> dict[str, str | None]:
    ti = context["ti"]
    states = ti.get_task_states(dag_id=ti.dag_id, run_ids=[ti.run_id])[ti.run_id]
    return {name: None if state is None else str(getattr(state, "value", state)) for name, state in states.items()}


def _done_before(flow: JoinedFlow) -> tuple[set[str], set[str]]:
    """Return the steps done in earlier epochs of the flow's key, and the steps of this one."""
    life, earlier = flow.flow.join_life(), set[str]()
    with flow.broker.kernel.store.ledgers.open() as ledger:
        here = {each.name for each in ledger.flows.steps(life.txid)}
        before = ledger.latest(life.group, str(life.key), before=life.epoch)
        while before is not None:
            steps = last_attempts(ledger.flows.steps(before.txid))
            earlier |= {each.name for each in steps if each.state is FlowStepState.DONE}
            before = ledger.latest(life.group, str(life.key), before=before.epoch)
    return earlier, here


def _does_step(task: Any) -> bool:
    """Return whether a task, as its DAG is now, does a step of the flow; it may have done one in an older version."""
    mode = getattr(task, "publish_mode", None) or getattr(task, "partial_kwargs", {}).get("mode")
    kind = getattr(task, "operator_class", type(task))
    return isinstance(kind, type) and issubclass(kind, FlowOperator) and mode not in OUTSIDE


def _listed(tasks: list[str]) -> str:
    return f"task{'s' if len(tasks) > 1 else ''} {', '.join(map(repr, tasks))}"


def _rolled_back(txid: int, why: str) -> FlowRolledBack:
    return FlowRolledBack(f"transaction {txid} is rolled back: {why}; {CLEAR_ALL}")
