"""
Metrics of an engine, for Prometheus: what its roles do, and the figures of the store at each scrape.

They only look. A scrape that finds no store says so and fails nothing. If nobody serves them, nothing else changes.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Histogram, start_http_server

from txsaga.cli.gauges import Gauges, ResourceGauges
from txsaga.engine.coordinator.recovery import Recovery
from txsaga.engine.roles import Role
from txsaga.errors import ConfigError
from txsaga.model import facts
from txsaga.model.facts import AFTER, Fact

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """What this process did: an observer of facts, and a watch on its roles."""

    def __init__(self) -> None:
        self.registry = r = CollectorRegistry()
        self._decisions = Counter("txsaga_decisions", "Transactions that this process decided.", registry=r)
        self._parked = Counter("txsaga_parkings", "Transactions that this process parked.", registry=r)
        self._steps = Histogram(
            "txsaga_step_seconds", "Durable steps that were done, by fact.", ["step"], buckets=SECONDS, registry=r
        )
        self._rounds = Histogram(
            "txsaga_round_seconds", "Rounds of a role, failed ones too.", ["role"], buckets=SECONDS, registry=r
        )
        self._done = Counter("txsaga_round_work", "What the rounds of a role did.", ["role"], registry=r)
        self._failed = Counter("txsaga_rounds_failed", "Rounds of a role that failed.", ["role"], registry=r)
        self._asked = Counter("txsaga_questions", "Questions that this process put to members.", registry=r)
        self._postponed = Counter("txsaga_postponements", "Doubts that this process put off.", registry=r)
        self._stalled = Counter("txsaga_stalls", "Sagas that this process left to a person.", registry=r)
        self._counted = {
            facts.Stalled: self._stalled,
            facts.Decided: self._decisions,
            facts.Parked: self._parked,
            facts.Asked: self._asked,
            facts.Postponed: self._postponed,
        }
        self._under_way = threading.local()

    def __call__(self, fact: Fact) -> None:
        """Hear a fact: a step takes from its first to its second, in one thread."""
        begun = self._begun()
        if type(fact) in AFTER:
            begun[AFTER[type(fact)]].append(time.perf_counter())
            return
        if starts := begun[type(fact)]:
            self._steps.labels(fact.name).observe(time.perf_counter() - starts.pop())
            starts.clear()  # steps that failed have no second fact
        if counter := self._counted.get(type(fact)):
            counter.inc(len(fact.txids))

    def watch(self, roles: Sequence[Role]) -> list[Role]:
        """Return the roles as they are run under watch, and tell what recovery sees of resources."""
        for role in roles:
            if isinstance(role, Recovery):
                self.registry.register(ResourceGauges(role))
        return [Watched(role, self) for role in roles]

    @contextmanager
    def round(self, role: str) -> Iterator[Counter]:
        """Time a round of a role, and count it when it fails."""
        failed = self._failed.labels(role)  # it is there from the first round on
        with self._rounds.labels(role).time(), failed.count_exceptions():
            yield self._done.labels(role)

    def _begun(self) -> defaultdict[type[Fact], list[float]]:
        if not hasattr(self._under_way, "begun"):
            self._under_way.begun = defaultdict(list)
        begun: defaultdict[type[Fact], list[float]] = self._under_way.begun
        return begun


class Watched:
    """A role whose rounds are timed and counted."""

    def __init__(self, role: Role, metrics: Metrics) -> None:
        self._role, self._metrics = role, metrics
        self.name, self.pace = role.name, role.pace

    def run_once(self) -> int:
        """Do one round."""
        with self._metrics.round(self.name) as work:
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
