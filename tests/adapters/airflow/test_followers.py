"""Which DAGs are told of a commit by REST: those that its own run has not told, and once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pendulum
import pytest

from tests.adapters.airflow.fake import FakeAirflow, fake_airflow
from txsaga.adapters.airflow.followers import PAGE, AirflowFollowers
from txsaga.adapters.airflow.instance import run_name
from txsaga.adapters.airflow.rest import Airflow
from txsaga.adapters.airflow.runs import AirflowRuns
from txsaga.errors.host import HostFailed
from txsaga.model.follow_up import AssetName, FollowUp

pytestmark = pytest.mark.rule("R18")
SINCE = pendulum.now("UTC")
MOVED = FollowUp(run="airflow:bank/one", txid=7, id="store/7", assets=(AssetName("moved", "at://moved"),))


@pytest.fixture
def fake() -> Iterator[FakeAirflow]:
    """Give an Airflow with an asset that is named like others."""
    with fake_airflow() as fake:
        for name in ("removed", "moved", "moved_too"):
            fake.asset(name, f"at://{name}")
        fake.runs["bank/one"] = "failed"
        yield fake


def followers(fake: FakeAirflow, name: str = "") -> AirflowFollowers:
    """Make the followers of an Airflow anew, as an engine that is started does."""
    airflow = Airflow(fake.url)
    return AirflowFollowers(airflow, AirflowRuns(airflow, name=name), name=name)


def test_what_a_run_that_is_over_has_not_told_is_told_once(fake: FakeAirflow) -> None:
    assert [followers(fake).tell(MOVED, SINCE) for _ in range(2)] == [True, True]
    assert fake.events == [{"asset_id": 2, "extra": {"txid": 7, "id": "store/7"}}]


@pytest.mark.parametrize("state", ["running", "success"])
def test_what_the_run_has_told_is_not_told_again(fake: FakeAirflow, state: str) -> None:
    fake.runs["bank/one"] = state
    fake.event(2, txid=7, id="store/7")
    for other in range(PAGE):
        fake.event(2, txid=100 + other)
    assert followers(fake).tell(MOVED, SINCE)
    assert len(fake.events) == PAGE + 1


def test_a_run_that_goes_on_may_tell_it_itself(fake: FakeAirflow) -> None:
    fake.runs["bank/one"] = "running"
    fake.event(2, txid=8)
    assert not followers(fake).tell(MOVED, SINCE)
    assert len(fake.events) == 1


def test_every_asset_gets_its_event_by_name_or_by_uri(fake: FakeAirflow) -> None:
    fake.event(1, txid=7)
    named = AssetName("removed", None), AssetName(None, "at://moved_too"), AssetName("nowhere", "at://nowhere")
    assert followers(fake).tell(replace(MOVED, assets=named), SINCE)
    assert [each["asset_id"] for each in fake.events] == [1, 3]


def test_the_run_of_another_airflow_is_left_to_its_engine(fake: FakeAirflow) -> None:
    assert followers(fake, "north").tell(replace(MOVED, run=run_name("bank", "one", "south")), SINCE)
    assert not fake.asked


def test_an_airflow_that_is_silent_was_told_nothing(fake: FakeAirflow) -> None:
    fake.broken = True
    with pytest.raises(HostFailed):
        followers(fake).tell(MOVED, SINCE)
    assert fake.events == []
