"""
The tasks that begin and end a flow, as the setup and the teardown of a DAG's steps, and those that settle a lane.

If begin runs again, as a retry or in a run cleared while its flow is open, it joins the flow it began. After a rollback
it opens the next epoch. After a commit it refuses or, with `allow_amend`, begins an amendment, once per clearing.

End judges the run by the states of its tasks, and decides. It commits if all steps are done. Otherwise it rolls back,
undoes what was committed step by step (R6), and raises, so that its run fails. If it runs again, it finds the existing
decision. If it never runs, the flow is rolled back once its lease has expired and its run is over. Airflow may report
"skipped" for tasks that someone marked from outside. So a seal follows all steps; it runs regardless of their outcome
and is skipped only from outside. Without it there is no commit.

End creates the events of the flow's assets. Before the decision it records which ones, in a message of the flow itself,
so it exists exactly if the flow commits. If end dies after the decision, an engine with access to this Airflow creates
the events once the run is over.

A lane that is settled twice has nothing open the second time. If it is never settled, it follows the flow's outcome.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, BaseOperator, Context
from airflow.sdk.definitions.asset import AssetNameRef, AssetUriRef
from airflow.sdk.exceptions import AirflowFailException

from txsaga import errors
from txsaga.airflow_host.followers import SKEW, TOPIC, AssetName, FollowUp, carries
from txsaga.core.decision import Decision
from txsaga.core.topic import TopicType
from txsaga.flows.ballot import Ballot
from txsaga.flows.step import Step, StepState, last_attempts
from txsaga.provider.connections import AMBIENT, producer_of
from txsaga.provider.operators.messages import ConsumeStep, PublishMode
from txsaga.provider.operators.task import (
    CLEAR_ALL,
    FlowOperator,
    FlowRolledBack,
    JoinedFlow,
    opened,
    reference_of,
    refused_for_good,
)
from txsaga.provider.options import FLOW_BUDGET, FLOW_LEASE, RETRIES, RETRY_DELAY, seconds_of, store_of
from txsaga.provider.planning.modes import DeclaredStep, ResourceMode
from txsaga.provider.reference import FlowReference, TransactionLink, clearing_of, group_of, key_of, run_name_of
from txsaga.provider.resources import DeclaredConnection, Said, StoredConnection, declared, stored_name
from txsaga.provider.tracing import named, timed, traced
from txsaga.provider.waits import StorePoll, Wait, WaitKind

if TYPE_CHECKING:
    from txsaga.broker import Broker


logger = logging.getLogger(__name__)

WOKEN_BY_ASSET = "asset_triggered"
"""The type of a run that a watcher woke; the runs started here have another type and start no others."""


def wake_others(context: Context, broker: Broker) -> None:
    """Start runs for the messages beyond this run's batches, unless enough runs are already active.

    Airflow starts about one run per second from a watcher's events, however much is waiting. If this fails, the watcher
    wakes them one after another.
    """
    if context["dag_run"].run_type != WOKEN_BY_ASSET:
        return
    try:
        needed = max(_needed(context["dag"], broker), default=1)
        if needed > 1:
            _start(context, needed)
    except Exception as reason:  # noqa: BLE001  # nothing depends on it
        logger.warning("no more runs could be started for the waiting messages; the watcher starts them: %s", reason)


def _needed(dag: Any, broker: Broker) -> Iterator[int]:
    """Yield, for each task that takes messages, how many runs the waiting messages would fill."""
    looking = StorePoll(broker)
    for task in dag.tasks:
        if isinstance(task, ConsumeStep):
            group = task.consumer_group or group_of(dag.dag_id)
            waits = [Wait(kind=WaitKind.MESSAGES, topic=topic, group=group) for topic in task.topics]
            waiting = sum(answer.value.get("new", 0) for answer in looking.look(waits).values())
            yield -(-waiting // task.batch)


def _start(context: Context, needed: int) -> None:
    """Start as many runs as are missing; a run that an earlier attempt started is not started again."""
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import ErrorResponse, TriggerDagRun

    dag, run = context["dag"], context["dag_run"]
    missing = min(needed, dag.max_active_runs or needed) - context["ti"].get_dr_count(
        dag.dag_id, states=["queued", "running"]
    )
    for number in range(needed):
        if missing < 1:
            return
        started = TriggerDagRun(dag_id=dag.dag_id, run_id=f"woken__{run.run_id}__{number}")
        missing -= not isinstance(task_runner.SUPERVISOR_COMMS.send(started), ErrorResponse)


class FlowBegin(BaseOperator):
    """Begin the flow of a run, or join it again; its XCom is the reference by which other tasks find the flow."""

    template_fields = ("key",)
    ui_color = "#cfe3d4"
    operator_extra_links = (TransactionLink(),)

    def __init__(
        self,
        *,
        resources: Said = (),
        coordinated: bool = False,
        ballots: Sequence[Ballot] = (),
        store: str | None = None,
        group: str | None = None,
        key: str | None = None,
        lease: timedelta | None = None,
        budget: timedelta | None = None,
        allow_amend: bool = False,
        retries: int = RETRIES,
        retry_delay: timedelta | float = RETRY_DELAY,
        **options: Any,
    ) -> None:
        super().__init__(retries=retries, retry_delay=retry_delay, **options)
        self.flow_resources: Mapping[str, DeclaredConnection] = declared(resources)
        self.coordinated, self.ballots = coordinated, tuple(ballots)
        self.store, self.group, self.key = store_of(store), group, key
        self.lease, self.budget = seconds_of(lease, FLOW_LEASE), seconds_of(budget, FLOW_BUDGET)
        self.is_followed = False  # whether its end has outlets
        self.allow_amend = allow_amend

    def execute(self, context: Context) -> dict[str, object]:
        """Begin the flow."""
        with refused_for_good(), traced("begin", store=self.store) as span:
            begun = self._begun(context)
            named(span, txid=begun["txid"], id=begun["id"], epoch=begun["epoch"])
            return dict(begun)

    def _begun(self, context: Context) -> FlowReference:
        ti = context["ti"]
        broker = AMBIENT.broker(self.store, [each.connection for each in self.flow_resources.values()])
        group = self.group or group_of(ti.dag_id)
        key = self.key or key_of(ti)
        if self.is_followed:
            make_room(broker)
        main, lanes = self._enrolled()
        try:
            flow = producer_of(broker, group).begin_flow(
                *main,
                lanes=lanes,
                key=key,
                lease=self.lease,
                budget=self.budget,
                run=run_name_of(ti),
                amend=clearing_of(context["dag_run"]) if self.allow_amend else None,
            )
        except errors.AlreadyCommitted as done:
            raise AirflowFailException(self._not_again(done.txid)) from None
        for each in self.ballots:
            flow.ballot(each.name, *each.voters, rule=each.rule, needed=each.needed)
        wake_others(context, broker)
        self.log.info("flow %s is begun under key %r", flow.id, key)
        if flow.amends is not None:
            self.log.info("it amends %s, which stays committed", flow.amends)
        return FlowReference(
            txid=flow.txid,
            id=flow.id,
            key=key,
            epoch=flow.join_life().epoch,
            amends=flow.amends,
            group=group,
            store=self.store,
            coordinated=self.coordinated,
            resources={
                name: StoredConnection(connection=each.connection, mode=each.mode.value)
                for name, each in self.flow_resources.items()
            },
        )

    def _not_again(self, txid: int) -> str:
        told = f"this run committed transaction {txid}"
        if self.allow_amend:
            return f"{told} since it was cleared; clear the whole run once more to amend that"
        return f"{told}, and committed work is not run again; trigger a new run instead, or set allow_amend=True"

    def _enrolled(self) -> tuple[list[str], list[str]]:
        """Return the resources that hold work for the flow, and those for a lane; steps settle all other work."""
        named = [(stored_name(each.connection), each.mode) for each in self.flow_resources.values()]
        main = dict.fromkeys(name for name, mode in named if mode is ResourceMode.MAIN and self.coordinated)
        lanes = dict.fromkeys(name for name, mode in named if mode is ResourceMode.LANE)
        return list(main), list(lanes)


OUTSIDE = (PublishMode.PLAIN, PublishMode.TRANSACTIONAL)
"""Publish modes that record no step."""


class FlowEnd(FlowOperator):
    """Commit the flow of a run, or roll it back and raise."""

    ui_color = "#cfe3d4"
    operator_extra_links = (TransactionLink(),)

    def __init__(self, *, retries: int = RETRIES, retry_delay: timedelta | float = RETRY_DELAY, **options: Any) -> None:
        super().__init__(retries=retries, retry_delay=retry_delay, **options)
        self.seal: str | None = None
        self.handlers: Mapping[str, str] = {}

    def execute(self, context: Context) -> object:
        """Judge the run and decide; an existing decision is final."""
        with refused_for_good():
            reference = reference_of(context, self.flow)
            broker = opened(reference)
            try:
                flow = broker.flow(reference["txid"])
            except errors.AlreadyCommitted:
                self.outlets = untold(self.outlets, reference["id"], context["dag_run"].run_after)
                return self._committed(context, reference)
            except errors.DecidedOtherwise:
                undo_the_rest(broker, reference["txid"])
                raise _rolled_back(reference["txid"], "it was already decided") from None
            return self.work(context, JoinedFlow(reference=reference, broker=broker, flow=flow))

    def work(self, context: Context, flow: JoinedFlow) -> object:
        """Decide the flow."""
        verdict = judge(_states(context), self._shape())
        if verdict.commit and (left := self._left_behind(context, flow)):
            tasks = f"task{'s' if len(left) > 1 else ''} {', '.join(map(repr, left))}"
            why = f"{tasks} did its work in an earlier attempt of the transaction, and was not run in this one"
            verdict = RunVerdict(commit=False, why=why)
        about: dict[str, Any] = {"txid": flow.txid, "id": flow.reference["id"], "commit": verdict.commit}
        with traced("decide", **about), timed("flow.deciding", dag_id=self.dag_id):
            if not verdict.commit:
                _roll_back(flow, verdict.why)
                raise _rolled_back(flow.txid, verdict.why)
            self._commit(context, flow, verdict)
        return self._committed(context, flow.reference)

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
        if done := [each.name for each in handled if each.state is StepState.DONE]:
            why = f"task {done[0]!r} failed after its step, whose work is done and can't be left out"
            _roll_back(flow, why)
            raise _rolled_back(flow.txid, why)
        try:
            write_down(context, flow, self.outlets)
            flow.flow.end(handled=[each.name for each in (*handled, *left_out)])
        except errors.Unfinished as late:
            self.log.warning("%s", late)  # it is committed; recovery notifies unavailable resources
        except errors.AlreadyCommitted as known:
            self.log.info("%s", known)  # an earlier attempt committed it, or its last resource reports that
        except errors.DecidedOtherwise:
            undo_the_rest(flow.broker, flow.txid)
            raise _rolled_back(flow.txid, "it was already decided") from None
        except errors.StepsOpen as left:
            _roll_back(flow, str(left))
            raise _rolled_back(flow.txid, str(left)) from left
        except errors.TxSagaError as reason:
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
    from txsaga.flows.saga_driver import wait_until_undone

    try:
        wait_until_undone(broker.kernel, txid)
    except errors.CompensationFailed as stalled:
        raise FlowRolledBack(str(stalled)) from stalled


def _roll_back(flow: JoinedFlow, why: str) -> None:
    try:
        flow.flow.roll_back(why)
    except errors.CompensationFailed as stalled:  # it needs an operator, not a retry
        raise FlowRolledBack(f"transaction {flow.txid} is rolled back: {why}; {stalled}") from stalled


def _steps_of_handled(flow: JoinedFlow, verdict: RunVerdict) -> tuple[list[Step], list[Step]]:
    """Return the steps of tasks whose failure was handled, and those of tasks that skipped themselves."""
    if not verdict.handled and not verdict.left_out:
        return [], []
    with flow.broker.kernel.store.ledgers.open() as ledger:
        last = last_attempts(ledger.flows.steps(flow.txid))
    skipped = [each for each in last if each.name in verdict.left_out and each.state is StepState.FAILED]
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
            earlier |= {each.name for each in steps if each.state is StepState.DONE}
            before = ledger.latest(life.group, str(life.key), before=before.epoch)
    return earlier, here


def _does_step(task: Any) -> bool:
    """Return whether a task, as its DAG is now, does a step of the flow; it may have done one in an older version."""
    mode = getattr(task, "publish_mode", None) or getattr(task, "partial_kwargs", {}).get("mode")
    kind = getattr(task, "operator_class", type(task))
    return isinstance(kind, type) and issubclass(kind, FlowOperator) and mode not in OUTSIDE


def _rolled_back(txid: int, why: str) -> FlowRolledBack:
    return FlowRolledBack(f"transaction {txid} is rolled back: {why}; {CLEAR_ALL}")


WELL = frozenset({"success", "removed"})
"""States of work that is done, or that turned out to be none."""
DROPPED = frozenset({"upstream_failed", "skipped"})
"""States of tasks after a failure that was handled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunShape:
    """How the flow's tasks relate to each other."""

    steps: Collection[str]
    seal: str | None = None  # without a seal, a skipped step counts as skipped from outside
    handlers: Mapping[str, str] = field(default_factory=dict)  # by the task whose failure it handles
    behind: Mapping[str, Collection[str]] = field(default_factory=dict)  # the tasks after each of these


@dataclass(frozen=True, slots=True, kw_only=True)
class RunVerdict:
    """Whether the flow commits, and if not, why."""

    commit: bool
    why: str = ""
    handled: tuple[str, ...] = ()  # failed tasks whose failure was handled
    left_out: frozenset[str] = frozenset()  # the steps of tasks that were skipped


def judge(states: Mapping[str, str | None], shape: RunShape) -> RunVerdict:
    """Judge a run by the states of its tasks; a mapped task has one state per instance."""
    if shape.seal is not None and states.get(shape.seal) != "success":
        return RunVerdict(commit=False, why="the run was ended from outside before all of its steps were over")
    parts = {step: _parts(states, step, shape.steps) for step in shape.steps}
    handled = _handled(parts, shape)
    excused = set().union(*(shape.behind.get(each, ()) for each in handled))
    wrong: dict[str, str] = {}
    for step, found in parts.items():
        for name, state in found.items():
            if state in WELL or (state == "skipped" and shape.seal is not None):
                continue
            if step in handled or (step in excused and state in DROPPED):
                continue
            wrong[name] = state or "not run"
    if wrong:
        first = [name for name, state in wrong.items() if state != "upstream_failed"] or list(wrong)
        return RunVerdict(commit=False, why=", ".join(f"task {name!r} is {wrong[name]}" for name in first))
    left_out = {_step_of(step, name) for step, found in parts.items() for name in found if found[name] == "skipped"}
    return RunVerdict(commit=True, handled=tuple(handled), left_out=frozenset(left_out))


def left_behind(states: Mapping[str, str | None], earlier: Collection[str], here: Collection[str]) -> list[str]:
    """Return successful tasks that have a step in an earlier epoch of the flow's key but none in this one."""
    names = (_task_of(step) for step in sorted(set(earlier) - set(here)))
    return [name for name in names if states.get(name) == "success"]


def _handled(parts: Mapping[str, Mapping[str, str | None]], shape: RunShape) -> list[str]:
    return [
        step
        for step, handler in shape.handlers.items()
        if "failed" in parts.get(step, {}).values()
        and all(state == "success" for state in parts.get(handler, {handler: None}).values())
    ]


def _parts(states: Mapping[str, str | None], step: str, steps: Collection[str]) -> dict[str, str | None]:
    found = {name: states[name] for name in states if name == step or (_is_part(name, step) and name not in steps)}
    return found or {step: None}


def _step_of(task: str, name: str) -> str:
    """Return the name of the step of a task, or of one instance of a mapped task."""
    return task if name == task else f"{task}[{name[len(task) + 1 :]}]"


def _task_of(step: str) -> str:
    """Return the name that a run's states use for the task of a step."""
    task, mapped, number = step.partition("[")
    return f"{task}_{number.removesuffix(']')}" if mapped else task


def _is_part(name: str, step: str) -> bool:
    return name.startswith(f"{step}_") and name[len(step) + 1 :].isdigit()


KEPT = timedelta(days=30)
"""Long enough for an engine that gets access to its Airflow only later."""


def assets_of(outlets: Iterable[object]) -> tuple[AssetName, ...]:
    """Return the names of the assets among the outlets of a task."""
    return tuple(
        AssetName(getattr(each, "name", None), getattr(each, "uri", None))
        for each in outlets
        if isinstance(each, (Asset, AssetNameRef, AssetUriRef))
    )


def make_room(broker: Broker) -> None:
    """Create the topic in which flows record their asset events, before any other work."""
    try:
        found = broker.kernel.store.registry.topic(TOPIC)
        if found.type is not TopicType.TRANSACTION:
            raise errors.ConfigError(
                f"a flow with outlets= needs the topic {TOPIC!r} of type transaction, and here it is of type "
                f"{found.type}; leave outlets= out, or change it with `txsaga topic alter`"
            )
    except errors.UnknownTopic:
        _make_topic(broker)


def _make_topic(broker: Broker) -> None:
    try:
        broker.create_topic(TOPIC, TopicType.TRANSACTION, queues=1, retention=KEPT)
    except errors.RightsMissing:
        raise errors.ConfigError(
            f"a flow with outlets= needs the topic {TOPIC!r}, and this login may not create it; ask an operator for "
            f"`txsaga topic create {TOPIC} --type transaction --queues 1 --retention {KEPT.total_seconds():.0f}`"
        ) from None


def write_down(context: Context, flow: JoinedFlow, outlets: Iterable[object]) -> None:
    """Record in a flow the events that follow its commit, unless an earlier attempt did."""
    ti = context["ti"]
    if not (assets := assets_of(outlets)):
        return
    run = flow.flow.join_life().run or run_name_of(ti)  # with a custom key, a run may join another run's flow
    amends = flow.reference.get("amends")
    told = FollowUp(run=run, txid=flow.txid, id=flow.reference["id"], assets=assets, amends=amends)
    make_room(flow.broker)
    with suppress(errors.StepDone), flow.flow.step(f"asset events of {ti.task_id}"):
        flow.flow.send(TOPIC, told.body())


def untold(outlets: Iterable[Any], id: str, since: datetime) -> list[Any]:
    """Return the outlets without an event of this transaction, so that a retried task creates none twice.

    `since` is when the run was due: its start would not do, since clearing moves it and events from before count.
    """
    return [each for each in outlets if not any(carries(extra, id) for extra in _extras(each, since - SKEW))]


def _extras(outlet: object, since: datetime) -> Iterable[object]:
    from airflow.sdk.execution_time.context import InletEventsAccessor

    for asset in assets_of([outlet]):
        for event in InletEventsAccessor(asset_name=asset.name, asset_uri=asset.uri).after(since.isoformat()):
            yield event.extra


class LaneSettled(FlowOperator):
    """Settle the open unit of a lane."""

    decision: Decision

    def __init__(self, *, resource: str, **options: Any) -> None:
        super().__init__(**options)
        self.resource = resource

    def work(self, context: Context, flow: JoinedFlow) -> None:
        """Settle the open unit."""
        lane = flow.flow.lane(flow.stored(self.resource))
        if self.decision is Decision.COMMIT:
            lane.commit()
        else:
            lane.roll_back()

    def declared(self) -> DeclaredStep | None:
        """Return this task as a declared step of the flow."""
        return DeclaredStep(name=self.task_id, resource=self.resource, settle=self.decision)


class LaneCommit(LaneSettled):
    """Commit the work done in a lane so far, regardless of the flow's outcome."""

    decision = Decision.COMMIT


class LaneRollback(LaneSettled):
    """Roll back the work done in a lane so far; the flow goes on."""

    decision = Decision.ROLLBACK


class LaneMarker:
    """The type of `lane`."""

    def __call__(self, connection: str, *, kind: str | None = None) -> DeclaredConnection:
        """Declare a connection whose work is auxiliary: its lane commits or rolls back by itself."""
        return DeclaredConnection(connection=connection, mode=ResourceMode.LANE, kind=kind)

    def commit(self, resource: str, **options: Any) -> LaneCommit:
        """Make a task that commits the open unit of a lane while the flow goes on."""
        return LaneCommit(task_id=options.pop("task_id", f"commit_{resource}"), resource=resource, **options)

    def rollback(self, resource: str, **options: Any) -> LaneRollback:
        """Make a task that rolls back the open unit of a lane while the flow goes on."""
        return LaneRollback(task_id=options.pop("task_id", f"roll_back_{resource}"), resource=resource, **options)


lane = LaneMarker()
