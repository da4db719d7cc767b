"""
The state of a store at a glance: who it is, its topics, its readers, what is undecided, what waits.

It only reads. The figures are taken one after the other, so they need not be of one moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from txsaga.core.identity import StoreId
    from txsaga.core.records import Bounds
    from txsaga.core.topic import Topic
    from txsaga.flows.saga_values import SagaFigures
    from txsaga.flows.step_records import HeldLocks
    from txsaga.inspect.overview import Backlog, BranchBacklog, Dispatch, LastRound, Reading, Undecided
    from txsaga.store.store import Store

CHECK_BACK = "check-back"
"""The role whose last round is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """A topic and the bounds of its queues, in the order of their index."""

    topic: Topic
    bounds: tuple[Bounds, ...]

    @property
    def messages(self) -> int:
        """How many messages can be read."""
        return sum(bounds.head - bounds.tail for bounds in self.bounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What a store looks like now."""

    store: StoreId
    rejects_transactions: bool
    topics: tuple[TopicState, ...]
    readings: tuple[Reading, ...]
    dead_letters: Mapping[str, int]
    undecided: Undecided
    backlogs: tuple[Backlog, ...]
    branches: tuple[BranchBacklog, ...]
    sagas: SagaFigures
    held: tuple[HeldLocks, ...]
    last_round: LastRound | None
    dispatch: Dispatch


def status(store: Store) -> Status:
    """Read the state of a store."""
    registry, overview = store.registry, store.overview
    topics = registry.topics()
    bounds = store.log.bounds([qid for topic in topics for qid in topic.qids])
    return Status(
        store=registry.identity,
        rejects_transactions=registry.rejects_transactions,
        topics=tuple(TopicState(topic=topic, bounds=tuple(bounds[qid] for qid in topic.qids)) for topic in topics),
        readings=tuple(overview.readings()),
        dead_letters=overview.dead_letters(),
        undecided=overview.undecided(),
        backlogs=tuple(overview.backlogs()),
        branches=tuple(overview.branches()),
        sagas=store.steps.counted(),
        held=tuple(store.flows.held()),
        last_round=overview.last_round(CHECK_BACK),
        dispatch=overview.dispatch(),
    )


def topic_state(store: Store, name: str) -> TopicState:
    """Read the state of one topic."""
    topic = store.registry.topic(name)
    bounds = store.log.bounds(topic.qids)
    return TopicState(topic=topic, bounds=tuple(bounds[qid] for qid in topic.qids))
