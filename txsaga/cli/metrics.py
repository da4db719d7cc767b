"""
Metrics of an engine, for Prometheus: what its roles do, and the figures of the store at each scrape.

They only read. A scrape that finds no store reports that and fails nothing. Without `--metrics` nothing else changes.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from txsaga.core import facts
from txsaga.core.facts import AFTER, Fact
from txsaga.core.role_loop import Role
from txsaga.errors import ConfigError, TxSagaError
from txsaga.flows.recovery import Recovery
from txsaga.inspect.documents import MIN_AGE, figures
from txsaga.inspect.overview import ANSWERS, Backlog

if TYPE_CHECKING:
    from txsaga.store.store import Store


UP = "txsaga_store_up"
ANSWERED = "txsaga_check_answers"
RECOVERY: Mapping[str, str] = {
    "txsaga_resource_unreachable": "1 if this process could not reach the resource in its last attempt.",
    "txsaga_branches_earlier": "Prepared branches of an earlier incarnation of the store, to be settled by hand.",
}


class Gauges(Collector):
    """Reads a store at each scrape."""

    def __init__(self, store: Store, min_age: timedelta = MIN_AGE) -> None:
        self._store, self._min_age = store, min_age

    def collect(self) -> Iterator[Metric]:
        """Read the figures; for a store that does not answer, report only that."""
        try:
            found = [each for family in figures(self._store, self._min_age) for each in _gauges(*family)]
            found.append(_answers(self._store.overview.backlogs()))
        except TxSagaError:
            found = []
        yield GaugeMetricFamily(UP, "1 if the store answered this scrape.", value=1 if found else 0)
        yield from found


def _gauges(
    said: Mapping[str, str], labels: Sequence[str], rows: Iterable[tuple[Sequence[str], Iterable[float]]]
) -> list[Metric]:
    """Return a family for each name, with a value of each row."""
    families = [GaugeMetricFamily(name, text, labels=labels) for name, text in said.items()]
    for of, values in rows:
        for family, value in zip(families, values, strict=True):
            family.add_metric(of, value)
    return [*families]


def _answers(backlogs: Sequence[Backlog]) -> Metric:
    answers = CounterMetricFamily(ANSWERED, "Results of checks, by answer.", labels=["group", "answer"])
    for each in backlogs:
        for answer in ANSWERS:  # those without any are reported as 0: a counter that appears at 1 has no increase
            answers.add_metric([each.group, answer], each.answers.get(answer, 0))
    return answers


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
