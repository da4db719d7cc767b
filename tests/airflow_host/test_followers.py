"""Which DAGs are told of a commit by REST: those that its own run has not told, and once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pendulum
import pytest

from tests.airflow_host.fake import FakeAirflow, fake_airflow
from txsaga.airflow_host.followers import AssetName, FollowUp
from txsaga.airflow_host.instance import run_name
from txsaga.airflow_host.rest import Airflow
from txsaga.airflow_host.runs import PAGE, AirflowFollowers, AirflowRuns
from txsaga.errors import HostFailed

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


def test_an_event_says_what_its_transaction_amends(fake: FakeAirflow) -> None:
    amending = FollowUp.read(replace(MOVED, amends="store/3").body())
    assert followers(fake).tell(amending, SINCE)
    assert [each["extra"] for each in fake.events] == [{"txid": 7, "id": "store/7", "amends": "store/3"}]


@pytest.mark.parametrize("state", ["running", "success"])
def test_what_the_run_has_told_is_not_told_again(fake: FakeAirflow, state: str) -> None:
    fake.runs["bank/one"] = state
    fake.event(2, txid=7, id="store/7")
    for other in range(PAGE):
        fake.event(2, txid=100 + other, id=f"store/{100 + other}")
    assert followers(fake).tell(MOVED, SINCE)
    assert len(fake.events) == PAGE + 1


def test_a_run_that_goes_on_may_tell_it_itself(fake: FakeAirflow) -> None:
    fake.runs["bank/one"] = "running"
    fake.event(2, txid=8, id="store/8")
    assert not followers(fake).tell(MOVED, SINCE)
    assert len(fake.events) == 1


def test_every_asset_gets_its_event_by_name_or_by_uri(fake: FakeAirflow) -> None:
    fake.event(1, txid=7, id="another/7")
    named = AssetName("removed", None), AssetName(None, "at://moved_too"), AssetName("nowhere", "at://nowhere")
    assert followers(fake).tell(replace(MOVED, assets=named), SINCE)
    assert [(each["asset_id"], each["extra"]["id"]) for each in fake.events[1:]] == [(1, "store/7"), (3, "store/7")]


def test_the_run_of_another_airflow_is_left_to_its_engine_which_is_said_once(
    fake: FakeAirflow, caplog: pytest.LogCaptureFixture
) -> None:
    north = followers(fake, "north")
    for _ in range(2):
        assert north.tell(replace(MOVED, run=run_name("bank", "one", "south")), SINCE)
    assert not fake.asked
    assert caplog.text.count("asset events of Airflow 'south' are left to its own engine") == 1
    assert "TXSAGA_AIRFLOW_NAME" in caplog.text


def test_an_airflow_that_is_silent_was_told_nothing(fake: FakeAirflow) -> None:
    fake.broken = True
    with pytest.raises(HostFailed):
        followers(fake).tell(MOVED, SINCE)
    assert fake.events == []


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_what_a_proxy_does_not_find_is_told_later(fake: FakeAirflow, method: str) -> None:
    airflow = Airflow(fake.url)
    airflow.ask("GET", "assets?limit=1&offset=0")  # logged in before the proxy lost its way
    told = AirflowFollowers(airflow, AirflowRuns(airflow))
    fake.covered.add(method)
    with pytest.raises(HostFailed, match="does not answer like Airflow"):
        told.tell(MOVED, SINCE)
    fake.covered.clear()
    assert followers(fake).tell(MOVED, SINCE)
    assert [each["asset_id"] for each in fake.events] == [2]


@pytest.mark.parametrize("answers", [[], {}, {"assets": None}])
def test_what_is_no_list_of_airflows_is_told_later(
    fake: FakeAirflow, monkeypatch: pytest.MonkeyPatch, answers: object
) -> None:
    monkeypatch.setattr(fake, "_of_assets", lambda *asked: answers)
    with pytest.raises(HostFailed, match="does not answer like Airflow"):
        followers(fake).tell(MOVED, SINCE)


def test_an_asset_that_airflow_does_not_list_is_given_up_only_when_the_run_is_over(fake: FakeAirflow) -> None:
    fake.runs["bank/one"] = "running"
    nowhere = replace(MOVED, assets=(AssetName("nowhere", "at://nowhere"),))
    assert not followers(fake).tell(nowhere, SINCE)
    fake.runs["bank/one"] = "success"
    assert followers(fake).tell(nowhere, SINCE)
    assert fake.events == []
