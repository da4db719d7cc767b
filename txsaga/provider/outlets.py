"""
The assets of a flow: its last task creates their events, and records before the decision which ones.

The record is a message of the flow itself, so it exists exactly if the flow commits. If the last task dies after the
decision, an engine with access to this Airflow creates the events once the run is over; without one, nothing does.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, Context
from airflow.sdk.definitions.asset import AssetNameRef, AssetUriRef

from txsaga.core.topic import TopicType
from txsaga.errors import ConfigError, RightsMissing, StepDone, UnknownTopic
from txsaga.flows.follow_up import SKEW, TOPIC, AssetName, FollowUp, carries
from txsaga.provider.reference import run_name_of

if TYPE_CHECKING:
    from txsaga.broker import Broker
    from txsaga.provider.operators.flow_task import JoinedFlow

STEP = "asset events of {task}"
KEPT = timedelta(days=30)
"""Long enough for an engine that gets access to its Airflow only later."""


def assets_of(outlets: Iterable[object]) -> tuple[AssetName, ...]:
    """Return the names of the assets among the outlets of a task."""
    found = []
    for each in outlets:
        if isinstance(each, Asset):
            found.append(AssetName(each.name, each.uri))
        elif isinstance(each, AssetNameRef):
            found.append(AssetName(each.name, None))
        elif isinstance(each, AssetUriRef):
            found.append(AssetName(None, each.uri))
    return tuple(found)


def make_room(broker: Broker) -> None:
    """Create the topic in which flows record their asset events, before any other work."""
    try:
        found = broker.kernel.store.registry.topic(TOPIC)
    except UnknownTopic:
        _make(broker)
        return
    if found.type is not TopicType.TRANSACTION:
        raise ConfigError(
            f"a flow with outlets= needs the topic {TOPIC!r} of type transaction, and here it is of type {found.type}, "
            "which never changes; leave outlets= out in this store"
        )


def _make(broker: Broker) -> None:
    try:
        broker.create_topic(TOPIC, TopicType.TRANSACTION, queues=1, retention=KEPT)
    except RightsMissing:
        raise ConfigError(
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
    try:
        with flow.flow.step(STEP.format(task=ti.task_id)):
            flow.flow.send(TOPIC, told.body())
    except StepDone:
        return


def untold(outlets: Iterable[Any], id: str, since: datetime) -> list[Any]:
    """Return the outlets without an event of this transaction, so that a retried task creates none twice.

    `since` is when the run was due: its start would not do, since clearing moves it and events from before count.
    """
    return [each for each in outlets if not any(carries(extra, id) for extra in _extras(each, since - SKEW))]


def _extras(outlet: object, since: datetime) -> Iterable[object]:
    from airflow.sdk.execution_time.context import InletEventsAccessor

    for named in assets_of([outlet]):
        for event in InletEventsAccessor(asset_name=named.name, asset_uri=named.uri).after(since.isoformat()):
            yield event.extra
