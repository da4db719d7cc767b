"""Metrics of an engine: figures of the store and of what its roles did, and alerts that name what exists."""

from __future__ import annotations

import math
import re
import socket
import sys
import threading
import urllib.request
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

import txsaga
from tests.cli.conftest import Cli
from tests.cli.program import environment, started
from tests.contracts.samples import park
from tests.flows.coordinated.fakes import desk
from tests.oracle import MemoryStore
from tests.scene.stored import Stored
from txsaga.broker import Broker
from txsaga.checkback.profile import CheckProfile
from txsaga.cli.metrics import Gauges, Metrics, Watched, served
from txsaga.consume.dispatcher import Dispatcher
from txsaga.core import facts
from txsaga.core.decision import Decision
from txsaga.core.identity import StoreId
from txsaga.core.role_loop import Loop, Pace
from txsaga.errors import ConfigError, StoreUnavailable
from txsaga.flows.branch import BranchId
from txsaga.inspect.overview import ANSWERS, Undecided
from txsaga.testing.checking import check_once

DOCS = Path(__file__).parents[2] / "docs"
Read = dict[tuple[str, ...], float]


def read(text: str) -> Read:
    """Return samples by their name and the values of their labels."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scraped(metrics: Metrics) -> Read:
    return read(generate_latest(metrics.registry).decode())


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def watched(own_url: str, metrics: Metrics) -> Iterator[Broker]:
    """Give a broker that the metrics listen to, on a store of its own."""
    with txsaga.connect(own_url, roles=False, answering=False, observers=[metrics], env={}) as broker:
        metrics.registry.register(Gauges(broker.kernel.store))
        yield broker


@pytest.mark.postgres
def test_a_scrape_tells_the_figures_of_the_store(watched: Broker, metrics: Metrics, own_url: str) -> None:
    watched.create_topic("news", queues=1)
    watched.create_topic("orders", "transaction", queues=1)
    watched.create_group("billing", max_attempts=1)
    halves = watched.producer("shop", checker=lambda _: None)
    parked, _ = (halves.prepare_now("orders", body) for body in (b"a", b"b"))
    watched.producer("plain").send_many("news", [b"1", b"2", b"3"])
    Dispatcher(watched.kernel).run_once()
    park(watched.kernel.store, parked.txid, "out of checks")
    with watched.consumer("billing", ["news"]) as consumer:
        (first,) = consumer.receive()  # one at a time where there is one attempt
        first.nack("broken")
        (_held,) = consumer.receive()
        watched.producer("plain").send("news", b"4")
        Stored(own_url).let_pass(60)
        found = scraped(metrics)
    assert found["txsaga_store_up",] == 1
    assert (found["txsaga_undecided",], found["txsaga_parked",]) == (2, 1)
    assert 60 <= found["txsaga_undecided_oldest_seconds",] < 3600
    assert found["txsaga_dispatch_waiting",] == 1
    assert 60 <= found["txsaga_tick_age_seconds",] < 3600
    assert found["txsaga_group_lag", "billing", "news"] == 1
    assert found["txsaga_group_held", "billing", "news"] == 1
    assert found["txsaga_group_retrying", "billing", "news"] == 0
    assert found["txsaga_group_members", "billing", "news"] == 1
    assert 0 < found["txsaga_group_oldest_seconds", "billing", "news"] < 3600
    assert found["txsaga_dead_letters", "billing"] == 1


@pytest.mark.req("RMQ-70")
@pytest.mark.postgres
def test_a_scrape_tells_the_backlog_of_each_producer_group(watched: Broker, metrics: Metrics, own_url: str) -> None:
    watched.create_topic("orders", "transaction", queues=1)
    shop = watched.producer("shop", checker=lambda _: txsaga.UNKNOWN)
    parked, _ = (shop.prepare_now("orders", body) for body in (b"a", b"b"))
    found = scraped(metrics)
    assert (found["txsaga_check_waiting",], found["txsaga_check_round_age_seconds",]) == (0, math.inf)
    for _ in range(2):
        Stored(own_url).let_pass(60)
        Dispatcher(watched.kernel).run_once()
    assert scraped(metrics)["txsaga_check_waiting",] == 1
    check_once(watched, CheckProfile(max_checks=1))
    park(watched.kernel.store, parked.txid, "out of checks")
    found = scraped(metrics)
    told = {name: found[f"txsaga_producer_{name}", "shop"] for name in ("undecided", "parked", "asked", "members")}
    assert told == {"undecided": 2, "parked": 1, "asked": 0, "members": 1}
    assert 60 <= found["txsaga_producer_oldest_seconds", "shop"] < 3600
    answers = {answer: found["txsaga_check_answers_total", answer, "shop"] for answer in ANSWERS}
    assert answers == {"COMMIT": 0, "ROLLBACK": 0, "UNKNOWN": 2, "NO_ANSWER": 0}
    assert found["txsaga_questions_total",] == 2
    assert (found["txsaga_check_waiting",], found["txsaga_check_round_age_seconds",] < 60) == (0, True)


@pytest.mark.postgres
def test_what_is_parked_and_decided_here_is_counted(watched: Broker, metrics: Metrics, own_url: str) -> None:
    watched.create_topic("orders", "transaction", queues=1)
    shop = watched.producer("shop", checker=lambda _: txsaga.UNKNOWN)
    for body in (b"a", b"b"):
        shop.prepare_now("orders", body)
    with shop.transaction() as tx:
        tx.send("orders", b"c")
    watched.producer("plain")
    for _ in range(2):
        Stored(own_url).let_pass(60)
        Dispatcher(watched.kernel).run_once()
    for _ in range(2):
        check_once(watched, CheckProfile(max_checks=1))
        Stored(own_url).let_pass(60)
    found = scraped(metrics)
    assert (found["txsaga_parkings_total",], found["txsaga_parked",]) == (2, 2)
    assert found["txsaga_decisions_total",] == 1
    assert found["txsaga_step_seconds_count", "Ticked"] == 2


@pytest.mark.req("WM-45")
def test_a_scrape_tells_what_resources_were_not_told_and_what_recovery_sees(metrics: Metrics) -> None:
    with desk("current", "mortgage") as bank:
        recovery = bank.recovery()
        (watched,) = metrics.watch([recovery])
        metrics.registry.register(Gauges(bank.store))
        bank.begun("current")
        bank.resources["mortgage"].committed.add(bank.id(bank.decided("mortgage", decision=Decision.ROLLBACK), 1))
        watched.run_once()
        bank.decided("current", "mortgage")
        bank.resources["mortgage"].failure = StoreUnavailable("nobody listens")
        assert watched.run_once() == 1
        earlier = BranchId(StoreId(bank.store.registry.identity.uuid, 9).transaction(7), 1)
        bank.resources["current"].held.add(earlier)
        recovery._scan_at = 0.0
        watched.run_once()
        found = scraped(metrics)
    names = ("branches_undecided", "branches_waiting", "branches_oldest_seconds", "branches_heuristic")
    told = {resource: [found[f"txsaga_{name}", resource] for name in names] for resource in bank.resources}
    assert told == {"current": [1, 0, 0, 0], "mortgage": [0, 1, pytest.approx(60), 1]}
    assert (found["txsaga_resource_unreachable", "current"], found["txsaga_resource_unreachable", "mortgage"]) == (0, 1)
    assert found["txsaga_branches_earlier", "current"] == 1


def test_a_store_that_does_not_answer_is_down_and_the_rest_goes_on(metrics: Metrics) -> None:
    store = MemoryStore()
    metrics.registry.register(Gauges(store))
    metrics(facts.Decided((1, 2)))
    assert scraped(metrics)["txsaga_store_up",] == 1

    def away() -> Undecided:
        raise StoreUnavailable("it is away")

    store.overview.undecided = away  # type: ignore[method-assign]
    found = scraped(metrics)
    assert (found["txsaga_store_up",], found["txsaga_decisions_total",]) == (0, 2)
    assert ("txsaga_undecided",) not in found


def test_steps_are_timed_by_thread_and_failed_ones_are_not(metrics: Metrics) -> None:
    metrics(facts.Ticking())  # and it failed
    metrics(facts.Ticking())
    metrics(facts.Ticked())
    other = threading.Thread(target=lambda: metrics(facts.Ticked()))
    other.start()
    other.join()
    metrics(facts.Ticked())
    found = scraped(metrics)
    assert found["txsaga_step_seconds_count", "Ticked"] == 1
    assert found["txsaga_step_seconds_sum", "Ticked"] >= 0


class MoodyRole:
    """A role that fails in its second round."""

    name, pace = "moody", Pace(0.0, 0.0)

    def __init__(self) -> None:
        self.rounds, self.third = 0, threading.Event()

    def run_once(self) -> int:
        """Do a round."""
        self.rounds += 1
        if self.rounds == 2:
            raise StoreUnavailable("it is away")
        if self.rounds == 3:
            self.third.set()
        return 5


def test_rounds_are_timed_and_failures_counted(metrics: Metrics) -> None:
    watched = Watched(MoodyRole(), metrics)
    assert watched.run_once() == 5
    assert scraped(metrics)["txsaga_rounds_failed_total", "moody"] == 0
    with pytest.raises(StoreUnavailable):
        watched.run_once()
    watched.run_once()
    found = scraped(metrics)
    assert found["txsaga_round_seconds_count", "moody"] == 3
    assert (found["txsaga_rounds_failed_total", "moody"], found["txsaga_round_work_total", "moody"]) == (1, 10)


def test_a_loop_runs_watched_roles_as_it_runs_others(metrics: Metrics, caplog: pytest.LogCaptureFixture) -> None:
    role = MoodyRole()
    loop = Loop(metrics.watch([role]))
    loop.start()
    assert role.third.wait(30)
    loop.stop()
    told = [(record.role, record.getMessage()) for record in caplog.records]  # type: ignore[attr-defined]
    assert told == [("moody", "role moody waits: it is away"), ("moody", "role moody is running again")]


def test_a_port_that_is_taken_is_one_line(metrics: Metrics) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(ConfigError, match=rf"127.0.0.1:{port}.*choose another port"),
            served(metrics, Gauges(MemoryStore()), port, "127.0.0.1"),
        ):
            pass


@pytest.mark.postgres
def test_an_engine_serves_its_metrics_until_it_stops(own_url: str) -> None:
    with started("engine", "--metrics", "0", env=environment(TXSAGA_URL=own_url)) as engine:
        assert engine.stderr is not None
        address = re.search(r"metrics are at (http://127\.0\.0\.1:\d+/metrics)", engine.stderr.readline())
        assert address
        while True:
            with urllib.request.urlopen(address[1], timeout=30) as answer:
                found = read(answer.read().decode())
            if found.get(("txsaga_round_seconds_count", "dispatcher")):
                break
        engine.terminate()
        engine.communicate(timeout=60)
    assert engine.returncode == 0
    assert found["txsaga_store_up",] == 1


def test_without_the_package_the_command_says_what_to_install(bare: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "txsaga.cli.metrics", raising=False)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    said = bare("engine", "--metrics", "0")
    assert (said.code, said.out) == (3, "")
    assert "pip install 'txsaga[metrics]'" in said.complaint


# What the pages say


@pytest.fixture
def exist(metrics: Metrics) -> set[str]:
    """Give the names of all metrics, as a query writes them."""
    metrics.registry.register(Gauges(MemoryStore()))
    with desk() as opened:
        metrics.watch([opened.recovery()])
    families = text_string_to_metric_families(generate_latest(metrics.registry).decode())
    return {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in families
        if not family.name.endswith("_created")
    }


@pytest.mark.req("RMQ-70", "BEYOND-6")
def test_the_alerts_are_valid_and_name_only_metrics_that_exist(exist: set[str]) -> None:
    rules = import_module("yaml").safe_load((DOCS / "reference" / "alerts.yml").read_text("utf-8"))
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in alerts}) == len(alerts) >= 8
    for rule in alerts:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]
        named = set(re.findall(r"txsaga_\w+", rule["expr"]))
        assert named
        assert named <= exist


def test_the_page_names_every_metric(exist: set[str]) -> None:
    page = (DOCS / "how-to" / "watch.md").read_text("utf-8")
    assert set(re.findall(r"^\| `(txsaga_\w+)", page, re.MULTILINE)) == exist
