"""
Metrics of an engine, for Prometheus: what its roles do, and the figures of the store at each scrape.

They only read. A scrape that finds no store reports that and fails nothing. Without `--metrics` nothing else changes.
"""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from datetime import timedelta
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from txsaga.checkback.profile import PROFILES
from txsaga.checkback.round import CheckBack
from txsaga.core import facts
from txsaga.core.facts import AFTER, Fact
from txsaga.core.role_loop import Role
from txsaga.errors import ConfigError, TxSagaError
from txsaga.flows.recovery import Recovery
from txsaga.flows.step import HeldLocks
from txsaga.inspect.overview import ANSWERS, Backlog, BranchBacklog, Reading

if TYPE_CHECKING:
    from txsaga.store.store import Store


UP = "txsaga_store_up"
STORE: Mapping[str, str] = {
    "txsaga_undecided": "Undecided transactions, including parked ones.",
    "txsaga_undecided_oldest_seconds": "Age of the oldest undecided transaction; 0 if there is none.",
    "txsaga_parked": "Transactions that ran out of checks and need an operator's decision.",
    "txsaga_dispatch_waiting": "Committed transactions that wait for the dispatcher.",
    "txsaga_tick_age_seconds": "Time since the last tick of the dispatcher; it also grows while nothing is waiting.",
}
GROUP: Mapping[str, str] = {
    "txsaga_group_lag": "Messages not delivered to the group yet.",
    "txsaga_group_held": "Messages in flight: claimed by members, or bound to transactions.",
    "txsaga_group_retrying": "Messages waiting for a retry.",
    "txsaga_group_members": "Live members of the group.",
    "txsaga_group_oldest_seconds": "Age of the oldest unprocessed message; 0 if there is none.",
}
PRODUCER: Mapping[str, str] = {
    "txsaga_producer_undecided": "Undecided transactions of a producer group, including parked ones.",
    "txsaga_producer_oldest_seconds": "Age of the group's oldest undecided transaction; 0 if there is none.",
    "txsaga_producer_parked": "Transactions of the group that ran out of checks and need an operator's decision.",
    "txsaga_producer_asked": "Transactions of the group that a member is being asked about.",
    "txsaga_producer_members": "Live members that answer checks for the group.",
}
ANSWERED = "txsaga_check_answers"
ROUND: Mapping[str, str] = {
    "txsaga_check_waiting": "1 if transactions are due for a check.",
    "txsaga_check_round_age_seconds": "Time since the last round of check-back; it also grows while nothing is due.",
}
BRANCHES: Mapping[str, str] = {
    "txsaga_branches_undecided": "Branches of undecided transactions.",
    "txsaga_branches_waiting": "Branches of decided transactions that are still prepared in their resource.",
    "txsaga_branches_oldest_seconds": "Age of the oldest waiting branch; 0 if there is none.",
    "txsaga_branches_heuristic": "Branches settled outside txsaga (heuristic outcomes) and not acknowledged yet.",
}
HELD: Mapping[str, str] = {
    "txsaga_flow_held": "Steps of undecided flows that hold locks.",
    "txsaga_flow_over_budget": "Steps of undecided flows that hold locks longer than their budget.",
    "txsaga_flow_held_oldest_seconds": "Time for which the oldest of these steps has held locks; 0 if there is none.",
}
RECOVERY: Mapping[str, str] = {
    "txsaga_resource_unreachable": "1 if this process could not reach the resource in its last attempt.",
    "txsaga_branches_earlier": "Prepared branches of an earlier incarnation of the store, to be settled by hand.",
}
SAGAS: Mapping[str, str] = {
    "txsaga_sagas_running": "Undecided sagas.",
    "txsaga_sagas_driving": "Decided sagas whose compensations, or steps after the point of no return, are running.",
    "txsaga_sagas_waiting": "Decided sagas that wait for code, for a resource, or for a retry.",
    "txsaga_sagas_stalled": "Stalled sagas: an operator must resume or skip a step.",
}
DEAD = "txsaga_dead_letters"
MIN_AGE = PROFILES["classic"].min_age


class Gauges(Collector):
    """Reads a store at each scrape."""

    def __init__(self, store: Store, min_age: timedelta = MIN_AGE) -> None:
        self._store, self._min_age = store, min_age

    def collect(self) -> Iterator[Metric]:
        """Read the figures; for a store that does not answer, report only that."""
        try:
            overview = self._store.overview
            found: list[Metric] = [
                *self._of_store(),
                *self._of_rounds(),
                *_of_producers(overview.backlogs()),
                *_of_groups(overview.readings()),
                *_of_branches(backlogs := overview.branches()),
                *_of_flows(self._store.flows.held(), [each.resource for each in backlogs]),
                *_gauges(SAGAS, [], [((), astuple(self._store.work.saga_figures()))]),
                self._dead_letters(),
            ]
        except TxSagaError:
            found = []
        yield GaugeMetricFamily(UP, "1 if the store answered this scrape.", value=1 if found else 0)
        yield from found

    def _of_store(self) -> Iterable[Metric]:
        undecided, dispatch = self._store.overview.undecided(), self._store.overview.dispatch()
        age = dispatch.age.total_seconds()
        values = (undecided.count, _seconds(undecided.oldest), undecided.parked, dispatch.waiting, age)
        return _gauges(STORE, [], [((), values)])

    def _of_rounds(self) -> Iterable[Metric]:
        last = self._store.overview.last_round(CheckBack.name)
        ago = math.inf if last is None else last.ago.total_seconds()
        return _gauges(ROUND, [], [((), (self._store.doubts.waiting(self._min_age), ago))])

    def _dead_letters(self) -> GaugeMetricFamily:
        dead = self._store.overview.dead_letters()
        # A group without any is reported as 0: else an alert would not end when they are gone.
        names = {group.name for group in self._store.groups.all()} | dead.keys()
        family = GaugeMetricFamily(DEAD, "Dead letters of a group.", labels=["group"])
        for name in sorted(names):
            family.add_metric([name], dead.get(name, 0))
        return family


def _gauges(
    said: Mapping[str, str], labels: Sequence[str], rows: Iterable[tuple[Sequence[str], Iterable[float]]]
) -> list[Metric]:
    """Return a family for each name, with a value of each row."""
    families = [GaugeMetricFamily(name, text, labels=labels) for name, text in said.items()]
    for of, values in rows:
        for family, value in zip(families, values, strict=True):
            family.add_metric(of, value)
    return [*families]


def _seconds(age: timedelta | None) -> float:
    return 0.0 if age is None else age.total_seconds()


def _of_producers(backlogs: Sequence[Backlog]) -> Iterable[Metric]:
    answers = CounterMetricFamily(ANSWERED, "Results of checks, by answer.", labels=["group", "answer"])
    for each in backlogs:
        for answer in ANSWERS:  # those without any are reported as 0: a counter that appears at 1 has no increase
            answers.add_metric([each.group, answer], each.answers.get(answer, 0))
    rows = [([e.group], (e.undecided, _seconds(e.oldest), e.parked, e.asked, e.members)) for e in backlogs]
    return [*_gauges(PRODUCER, ["group"], rows), answers]


def _of_branches(backlogs: Sequence[BranchBacklog]) -> Iterable[Metric]:
    rows = [([e.resource], (e.undecided, e.waiting, _seconds(e.oldest), e.heuristics)) for e in backlogs]
    return _gauges(BRANCHES, ["resource"], rows)


def _of_flows(held: Sequence[HeldLocks], resources: Sequence[str]) -> Iterable[Metric]:
    found = {each.resource: each for each in held}
    # Those without any are reported as 0: else an alert would not end.
    all_of = [found.get(resource, HeldLocks(resource, 0, 0, None)) for resource in resources]
    return _gauges(HELD, ["resource"], [([e.resource], (e.held, e.over, _seconds(e.oldest))) for e in all_of])


def _of_groups(readings: Iterable[Reading]) -> Iterable[Metric]:
    rows = [([e.group, e.topic], (e.lag, e.held, e.retrying, e.members, _seconds(e.oldest))) for e in readings]
    return _gauges(GROUP, ["group", "topic"], rows)


class ResourceGauges(Collector):
    """Reports what recovery in this process knows of resources; it connects to none."""

    def __init__(self, recovery: Recovery) -> None:
        self._recovery = recovery

    def collect(self) -> Iterator[Metric]:
        """Report what the last round found."""
        seen = sorted(self._recovery.seen.copy().items())
        rows = [([resource], (found.away, len(found.earlier))) for resource, found in seen]
        yield from _gauges(RECOVERY, ["resource"], rows)


SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """What this process did: an observer of facts, and a watch on its roles."""

    def __init__(self) -> None:
        self.registry = r = CollectorRegistry()
        self._steps = Histogram(
            "txsaga_step_seconds", "Duration of durable steps, by fact.", ["step"], buckets=SECONDS, registry=r
        )
        self.rounds = Histogram(
            "txsaga_round_seconds", "Duration of rounds, including failed ones.", ["role"], buckets=SECONDS, registry=r
        )
        self.done = Counter("txsaga_round_work", "Items processed by the rounds of a role.", ["role"], registry=r)
        self.failed = Counter("txsaga_rounds_failed", "Rounds of a role that failed.", ["role"], registry=r)
        self._counted = {
            facts.Decided: Counter("txsaga_decisions", "Transactions decided by this process.", registry=r),
            facts.Parked: Counter("txsaga_parkings", "Transactions parked by this process.", registry=r),
            facts.Asked: Counter("txsaga_questions", "Questions sent by this process.", registry=r),
            facts.Postponed: Counter("txsaga_postponements", "Checks postponed by this process.", registry=r),
            facts.Stalled: Counter("txsaga_stalls", "Sagas that this process stalled for an operator.", registry=r),
        }
        self._under_way = StepsUnderWay()

    def __call__(self, fact: Fact) -> None:
        """Receive a fact: a step lasts from its first fact to its second, in one thread."""
        begun = self._under_way.begun
        if type(fact) in AFTER:
            begun[AFTER[type(fact)]].append(time.perf_counter())
            return
        if starts := begun[type(fact)]:
            self._steps.labels(fact.name).observe(time.perf_counter() - starts.pop())
            starts.clear()  # steps that failed have no second fact
        if counter := self._counted.get(type(fact)):
            counter.inc(len(fact.txids))

    def watch(self, roles: Sequence[Role]) -> list[Role]:
        """Return the roles wrapped to be measured, and report what recovery knows of resources."""
        for role in roles:
            if isinstance(role, Recovery):
                self.registry.register(ResourceGauges(role))
        return [Watched(role, self) for role in roles]


class StepsUnderWay(threading.local):
    """When steps began in this thread, by the fact that ends them."""

    def __init__(self) -> None:
        self.begun: defaultdict[type[Fact], list[float]] = defaultdict(list)


class Watched:
    """A role whose rounds are timed and counted."""

    def __init__(self, role: Role, metrics: Metrics) -> None:
        self._role, self._metrics = role, metrics
        self.name, self.pace = role.name, role.pace

    def run_once(self) -> int:
        """Do one round."""
        metrics, name = self._metrics, self.name
        work, failed = metrics.done.labels(name), metrics.failed.labels(name)  # they are there from the first round on
        with metrics.rounds.labels(name).time(), failed.count_exceptions():
            done = self._role.run_once()
        work.inc(done)
        return done


@contextmanager
def served(metrics: Metrics, gauges: Gauges, port: int, address: str) -> Iterator[int]:
    """Serve metrics of a process and a store until the block ends; give the port."""
    metrics.registry.register(gauges)
    try:
        server, thread = start_http_server(port, address, metrics.registry)
    except (OSError, OverflowError) as reason:
        raise ConfigError(f"metrics can't be served at {address}:{port}: {reason}; choose another port") from reason
    try:
        yield int(server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
