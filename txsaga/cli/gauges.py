"""The figures of a store as Prometheus reads them: taken anew at each scrape, from the overview."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from txsaga.errors import TxSagaError
from txsaga.model.overview import Reading
from txsaga.ports.store import Store

UP = "txsaga_store_up"
STORE: Mapping[str, str] = {
    "txsaga_undecided": "Transactions without a decision, parked ones included.",
    "txsaga_undecided_oldest_seconds": "Age of the oldest transaction without a decision; 0 when there is none.",
    "txsaga_parked": "Transactions that are out of checks: somebody must decide them.",
    "txsaga_dispatch_waiting": "Committed transactions that wait for a tick.",
    "txsaga_tick_age_seconds": "Age of the last tick; it grows too while there is nothing to do.",
}
GROUP: Mapping[str, str] = {
    "txsaga_group_lag": "Messages that nobody of the group has had yet.",
    "txsaga_group_held": "Messages in the hands of members or bound to transactions.",
    "txsaga_group_resting": "Messages that will come again.",
    "txsaga_group_members": "Living members.",
}
DEAD = "txsaga_dead_letters"


class Gauges(Collector):
    """Reads a store whenever somebody scrapes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Read the figures; of a store that does not answer there is only that to tell."""
        try:
            found = [*self._of_store(), *_of_groups(self._store.overview.readings()), self._dead_letters()]
        except TxSagaError:
            found = []
        yield GaugeMetricFamily(UP, "1 when the store answered this scrape.", value=1 if found else 0)
        yield from found

    def _of_store(self) -> Iterator[GaugeMetricFamily]:
        undecided, dispatch = self._store.overview.undecided(), self._store.overview.dispatch()
        oldest = 0.0 if undecided.oldest is None else undecided.oldest.total_seconds()
        values = (undecided.count, oldest, undecided.parked, dispatch.waiting, dispatch.age.total_seconds())
        for (name, said), value in zip(STORE.items(), values, strict=True):
            yield GaugeMetricFamily(name, said, value=value)

    def _dead_letters(self) -> GaugeMetricFamily:
        dead = self._store.overview.dead_letters()
        # A group without any stands at nought: else an alert would not end when they are gone.
        names = {group.name for group in self._store.groups.all()} | dead.keys()
        family = GaugeMetricFamily(DEAD, "Messages that a group gave up.", labels=["group"])
        for name in sorted(names):
            family.add_metric([name], dead.get(name, 0))
        return family


def _of_groups(readings: Iterable[Reading]) -> Iterator[GaugeMetricFamily]:
    families = [GaugeMetricFamily(name, said, labels=["group", "topic"]) for name, said in GROUP.items()]
    for reading in readings:
        values = (reading.lag, reading.held, reading.resting, reading.members)
        for family, value in zip(families, values, strict=True):
            family.add_metric([reading.group, reading.topic], value)
    yield from families
