"""What Airflow lost, the engine settles: it asks Airflow first, and only a run that is over loses its transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

import txsaga
from tests.airflow_host.fake import FakeAirflow, fake_airflow
from txsaga.airflow_host.instance import run_name
from txsaga.broker import Broker
from txsaga.checkback.profile import CheckProfile
from txsaga.checkback.round import CheckBack
from txsaga.core.decision import Decision, LocalState
from txsaga.wiring.connecting import open_store

pytestmark = [pytest.mark.rule("R5"), pytest.mark.postgres]
SHORT = timedelta(seconds=0.2)


@pytest.fixture
def fake() -> Iterator[FakeAirflow]:
    """Give an Airflow."""
    with fake_airflow() as fake:
        yield fake


@pytest.fixture
def broker(home_url: str, fake: FakeAirflow) -> Iterator[Broker]:
    """Give a broker that was told where Airflow is."""
    open_store(home_url).close()
    env = {"TXSAGA_AIRFLOW_URL": fake.url}
    with txsaga.connect(home_url, roles=False, answering=False, env=env) as broker:
        yield broker


def begun(broker: Broker, run: str) -> int:
    """Begin the flow of a run; whoever began it is gone."""
    producer = broker.producer("bank", checker=lambda question: LocalState.UNKNOWN)
    flow = producer.begin_flow(key=run, run=run_name("bank", run), lease=SHORT)
    return flow.txid


def rounds(broker: Broker, done: Callable[[], bool]) -> None:
    """Run check-back until it has done something."""
    role = CheckBack(broker.kernel, CheckProfile(min_age=timedelta(0), interval=timedelta(seconds=0.1)))
    deadline = time.monotonic() + 20
    while not done():
        assert time.monotonic() < deadline
        role.run_once()


def test_only_the_run_that_is_over_loses_its_transaction(broker: Broker, fake: FakeAirflow) -> None:
    fake.runs["bank/waits"] = "running"
    alive, timed_out, deleted = (begun(broker, run) for run in ("waits", "late", "deleted"))
    fake.runs["bank/late"] = "failed"
    decisions = broker.kernel.store.overview.decisions
    rounds(broker, lambda: len(decisions([alive, timed_out, deleted])) >= 2)
    assert decisions([alive, timed_out, deleted]) == {timed_out: Decision.ROLLBACK, deleted: Decision.ROLLBACK}
    assert any("/dags/bank/dagRuns/waits" in path for path in fake.asked)
    fake.runs["bank/waits"] = "success"  # a run may be marked so: that commits nothing
    rounds(broker, lambda: bool(decisions([alive])))
    assert decisions([alive]) == {alive: Decision.ROLLBACK}
