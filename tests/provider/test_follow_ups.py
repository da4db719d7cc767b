"""Who follows a flow: an event of its assets comes with the commit alone, once, also when its last task died."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar
from urllib.parse import quote

import pytest
from airflow.sdk import DAG, Asset

import txsaga
from tests.airflow_host.fake import FakeAirflow, fake_airflow
from tests.provider.house import House
from tests.services.databases import fresh_name
from txsaga.airflow_host.followers import TOPIC, FollowUp, FollowUpRole
from txsaga.core.decision import LocalState
from txsaga.provider import FlowBegin, FlowEnd, Publish, enclose
from txsaga.provider.reference import FlowReference

pytestmark = pytest.mark.rule("R18")


class DyingEnd(FlowEnd):
    """An end whose process dies behind its decision."""

    def _committed(self, *given: Any) -> dict[str, object]:
        raise RuntimeError("killed")


class TwiceEnd(FlowEnd):
    """An end that is run again when its event is there already, or another store's with the same number."""

    tries: ClassVar[list[int]] = []
    store: ClassVar[str] = ""

    def _committed(self, context: Any, reference: FlowReference) -> dict[str, object]:
        self.tries.append(reference["txid"])
        if len(self.tries) == 1:
            make_event(self.outlets[0].name, {"txid": reference["txid"], "id": self.store or reference["id"]})
            raise RuntimeError("told, and killed")
        return super()._committed(context, reference)


def flow(
    house: House,
    name: str,
    end: type[FlowEnd] = FlowEnd,
    *,
    retries: int = 0,
    topic: str = "told",
    key: str | None = None,
) -> DAG:
    """Make a flow that an asset of its name follows."""
    house.topic("told")
    with DAG(name, schedule=None) as dag:
        begin = FlowBegin(task_id="begin", key=key)
        Publish(task_id="tell", topic=topic, body="x")
        enclose(begin, end(task_id="end", outlets=[Asset(name)], retries=retries, retry_delay=0.0))
    return dag


def extras(name: str) -> list[Any]:
    """Return what the events of an asset carry."""
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.utils.session import create_session

    with create_session() as session:
        found = session.query(AssetEvent).join(AssetModel, AssetModel.id == AssetEvent.asset_id)
        return [each.extra for each in found.filter(AssetModel.name == name)]


def make_event(name: str, extra: dict[str, object]) -> None:
    """Make an event of an asset, as a call by REST does."""
    from airflow.assets.manager import asset_manager
    from airflow.models.asset import AssetModel
    from airflow.utils.session import create_session

    with create_session() as session:
        asset = session.query(AssetModel).filter_by(name=name).one()
        asset_manager.register_asset_change(asset=asset, extra=extra, session=session)


@contextmanager
def telling(house: House, fake: FakeAirflow) -> Iterator[FollowUpRole]:
    """Give the role of an engine that knows an Airflow."""
    env = {"TXSAGA_AIRFLOW_URL": fake.url, "TXSAGA_AIRFLOW_NAME": this_airflow()}
    with txsaga.connect(house.home_url, roles=False, answering=False, env=env) as broker:
        for role in broker.roles():
            if isinstance(role, FollowUpRole):
                yield role


def this_airflow() -> str:
    """Return the name that tasks here give their runs."""
    from txsaga.provider.reference import this_airflow

    return this_airflow()


def test_an_end_that_died_behind_its_decision_is_made_up_for_once(house: House) -> None:
    name = fresh_name("followed")
    run = house.run(flow(house, name, DyingEnd))
    assert (run.state, extras(name)) == ("failed", [])
    txid = run.xcom("begin")["txid"]
    assert house.seen("told") == [b"x"]
    with fake_airflow() as fake:
        fake.asset(name, Asset(name).uri)
        fake.runs[f"{name}/{quote(run.id, safe='')}"] = "failed"
        for _ in range(2):
            with telling(house, fake) as role:
                role.run_once()
        assert [each["extra"]["txid"] for each in fake.events] == [txid]


def test_what_waits_for_its_run_comes_again_and_is_never_given_up(house: House) -> None:
    name = fresh_name("waits")
    run = house.run(flow(house, name, DyingEnd))
    house.seen("told")
    with fake_airflow() as fake, telling(house, fake) as role:
        fake.asset(name, Asset(name).uri)
        fake.runs[f"{name}/{quote(run.id, safe='')}"] = "running"
        assert role.run_once() == 0
        fake.broken = True
        assert role.run_once() == 0
        kernel = role._kernel
        group = kernel.store.groups.find(role._group)
        assert group is not None
        assert group.policy.max_attempts is None
        assert kernel.store.registry.topic(TOPIC).retention_seconds == 30 * 24 * 3600
        readings = [each for each in kernel.store.overview.readings() if each.topic == TOPIC]
        assert [each.lag + each.held + each.retrying for each in readings] == [1]
        assert fake.events == []


@pytest.mark.parametrize("good", [True, False])
def test_what_follows_is_written_down_exactly_with_the_commit(house: House, good: bool) -> None:
    name = fresh_name("written")
    run = house.run(flow(house, name, topic="told" if good else "nowhere"))
    assert run.state == ("success" if good else "failed")
    told = [FollowUp.read(each) for each in house.seen(TOPIC)]
    assert [(each.txid, each.assets[0].name) for each in told] == ([(run.xcom("begin")["txid"], name)] if good else [])


def test_a_run_that_joins_what_another_began_names_the_run_that_the_store_knows(house: House) -> None:
    name = fresh_name("joined")
    dag = flow(house, name, key=name)
    with txsaga.connect(house.home_url, roles=False, answering=False, env={}) as broker:
        producer = broker.producer(name, checker=lambda question: LocalState.UNKNOWN)
        begun = producer.begin_flow(key=name, run="airflow:elsewhere/first")
    assert house.run(dag).state == "success"
    told = [FollowUp.read(each) for each in house.seen(TOPIC)]
    assert [(each.run, each.txid) for each in told] == [("airflow:elsewhere/first", begun.txid)]


@pytest.mark.parametrize("store", ["", "another"])
def test_an_end_that_is_run_again_makes_no_second_event(
    house: House, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    name = fresh_name("again")
    TwiceEnd.tries.clear()
    monkeypatch.setattr(TwiceEnd, "store", store)
    run = house.run(flow(house, name, TwiceEnd, retries=1))
    assert (run.state, len(TwiceEnd.tries)) == ("success", 2), run.tasks
    begun = run.xcom("begin")
    assert [each["id"] for each in extras(name)] == ([store] if store else []) + [begun["id"]]
    assert {each["txid"] for each in extras(name)} == {begun["txid"]}


def test_a_login_that_may_not_make_the_topic_is_told_before_any_work(
    house: House, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from txsaga.errors import RightsMissing
    from txsaga.messages.administration import Administration

    def refused(*given: object, **said: object) -> None:
        raise RightsMissing("INSERT on topic")

    dag = flow(house, fresh_name("refused"))
    monkeypatch.setattr(Administration, "create_topic", refused)
    run = house.run(dag)
    assert run.tasks["begin"] == "failed"
    told = capfd.readouterr()
    assert "txsaga topic create asset-events --type transaction --queues 1 --retention 2592000" in told.out + told.err


def test_a_topic_of_another_type_is_refused_before_any_work(house: House, capfd: pytest.CaptureFixture[str]) -> None:
    house.topic(TOPIC, "normal")
    refused = house.run(flow(house, fresh_name("other")))
    assert refused.tasks["begin"] == "failed"
    told = capfd.readouterr()
    assert "of type transaction, and here it is of type normal" in told.out + told.err
