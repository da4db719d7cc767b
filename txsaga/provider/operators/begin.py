"""
The task that begins a flow, as the setup of a DAG's steps.

If it runs again, as a retry or in a run cleared while its flow is open, it joins the flow it began. After a rollback it
opens the next epoch. After a commit it refuses or, with `allow_amend`, begins an amendment, once per clearing. If it
never runs, nothing is begun and no step finds a flow.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException

from txsaga.errors import AlreadyCommitted
from txsaga.flows.ballot import Ballot
from txsaga.flows.declaration import ResourceMode
from txsaga.provider.ambient import AMBIENT, producer_of
from txsaga.provider.options import FLOW_BUDGET, FLOW_LEASE, RETRIES, RETRY_DELAY, seconds_of, store_of
from txsaga.provider.outlets import make_room
from txsaga.provider.reference import FlowReference, TransactionLink, clearing_of, group_of, key_of, run_name_of
from txsaga.provider.refusing import refused_for_good
from txsaga.provider.resources import DeclaredConnection, Said, declared, kept, stored_name
from txsaga.provider.tracing import named, traced
from txsaga.provider.waits.kinds import Wait, WaitKind
from txsaga.provider.waits.looking import StorePoll

if TYPE_CHECKING:
    from txsaga.broker import Broker
    from txsaga.flows.flow import Flow


logger = logging.getLogger(__name__)

WOKEN_BY_ASSET = "asset_triggered"
"""The type of a run that a watcher woke; the runs started here have another type and start no others."""
ACTIVE = ["queued", "running"]


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
        logger.warning("no further run is started for the messages that wait, their watcher wakes it: %s", reason)


def _needed(dag: Any, broker: Broker) -> Iterator[int]:
    """Yield, for each task that takes messages, how many runs the waiting messages would fill."""
    from txsaga.provider.operators.consume import ConsumeStep

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
    missing = min(needed, dag.max_active_runs or needed) - context["ti"].get_dr_count(dag.dag_id, states=ACTIVE)
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
        said: dict[str, Any] = {
            "lanes": lanes,
            "key": key,
            "lease": self.lease,
            "budget": self.budget,
            "run": run_name_of(ti),
        }
        amend = clearing_of(context["dag_run"]) if self.allow_amend else None
        try:
            flow = producer_of(broker, group).begin_flow(*main, **said, amend=amend)
        except AlreadyCommitted as done:
            raise AirflowFailException(self._not_again(done.txid)) from None
        self._call_ballots(flow)
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
            resources=kept(self.flow_resources),
        )

    def _not_again(self, txid: int) -> str:
        told = f"this run committed transaction {txid}"
        if self.allow_amend:
            return f"{told} since it was cleared; clear the whole run once more to amend that"
        return f"{told}, and what is committed is not run again; trigger a new run instead, or say allow_amend=True"

    def _enrolled(self) -> tuple[list[str], list[str]]:
        """Return the resources that hold work for the flow, and those for a lane; steps settle all other work."""
        named = [(stored_name(each.connection), each.mode) for each in self.flow_resources.values()]
        main = dict.fromkeys(name for name, mode in named if mode is ResourceMode.MAIN and self.coordinated)
        lanes = dict.fromkeys(name for name, mode in named if mode is ResourceMode.LANE)
        return list(main), list(lanes)

    def _call_ballots(self, flow: Flow) -> None:
        for each in self.ballots:
            flow.ballot(each.name, *each.voters, rule=each.rule, needed=each.needed)
