"""What the console asks elsewhere: whether databases and brokers answer, without waiting for those that do not."""

from __future__ import annotations

import threading
import time

import pytest
from fastapi import FastAPI

from tests.console.conftest import Enter
from tests.scene.shop import Shop
from txsaga.clusters.config import read
from txsaga.console import probes
from txsaga.console.people import Rank
from txsaga.console.probes import Probes

NOWHERE = "postgresql+psycopg://ann:pass-word@127.0.0.1:1/bank"


def test_a_question_that_hangs_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "PATIENCE", 0.2)
    asked, answers, found = list[str](), threading.Event(), Probes()

    def hangs() -> str:
        asked.append("hangs")
        answers.wait(30)
        return "late"

    def quick() -> str:
        asked.append("quick")
        return "now"

    questions = {"hangs": hangs, "quick": quick}
    assert found.ask(questions, "no answer") == {"hangs": "no answer", "quick": "now"}
    before = time.monotonic()
    assert found.ask(questions, "no answer") == {"hangs": "no answer", "quick": "now"}
    assert time.monotonic() - before < 0.2
    assert sorted(asked) == ["hangs", "quick"]
    answers.set()
    while found.ask(questions)["hangs"] != "late":
        time.sleep(0.01)
    monkeypatch.setattr(probes, "FRESH", 0.0)
    found.ask(questions)
    assert sorted(asked) == ["hangs", "hangs", "quick", "quick"]


def test_resources_say_whether_they_answer_and_no_password(
    home_database: str, shop: Shop, console: FastAPI, enter: Enter
) -> None:
    urls = {"BANK": home_database, "AWAY": NOWHERE, "FILE": "sqlite:///nowhere"}
    console.state.home.env = {f"TXSAGA_RESOURCE_{name}": url for name, url in urls.items()}
    texts = {role: enter(role).get("/resources").text for role in (Rank.VIEWER, Rank.OPERATOR)}
    rows = {each["resource"]: each for each in enter(Rank.OPERATOR).get("/api/v1/resources").json()}
    assert {name: row["reachable"] for name, row in rows.items()} == {"bank": True, "away": False, "file": None}
    assert "127.0.0.1" in texts[Rank.OPERATOR]
    assert "127.0.0.1" not in texts[Rank.VIEWER]
    assert "pass-word" not in "".join(texts.values())


def test_the_oldest_prepared_branch_of_a_resource_is_shown(shop: Shop, enter: Enter) -> None:
    group = shop.store.registry.group("bank", transactional=True)
    with shop.store.ledgers.open() as ledger:
        life = ledger.create(group.id, None, 1)
        assert life is not None
        run = ledger._run
        run("INSERT INTO {s}.resource (name, database, enlisted) VALUES ('vault', gen_random_uuid(), true)")
        run(
            "INSERT INTO {s}.branch (txid, number, attempt, resource, state) "
            "SELECT :txid, 1, 1, id, 'prepared' FROM {s}.resource",
            txid=life.txid,
        )
    (row,) = enter(Rank.VIEWER).get("/api/v1/resources").json()
    assert (row["resource"], row["reachable"], row["undecided"], row["prepared"]["txid"]) == (
        "vault",
        None,
        1,
        life.txid,
    )
    assert f'href="/transactions/{life.txid}"' in enter(Rank.VIEWER).get("/resources").text


def test_brokers_say_whether_they_answer_and_what_they_hold(
    home_url: str, shop: Shop, console: FastAPI, enter: Enter
) -> None:
    shop.mq_producer().prepare_now("orders", b"a")
    home = console.state.home
    home.env = {"TXSAGA_BROKER_EAST": home_url, "TXSAGA_BROKER_WEST": NOWHERE}
    home.cluster = read("pair", {"brokers": ["east", "west", "north"], "policy": "round-robin"})
    client = enter(Rank.OPERATOR)
    found = client.get("/api/v1/cluster").json()
    brokers = {each["name"]: each for each in found["brokers"]}
    assert (brokers["east"]["available"], brokers["east"]["undecided"]) == (True, 1)
    assert [brokers[name]["available"] for name in ("west", "north")] == [False, False]
    assert "TXSAGA_BROKER_NORTH" in brokers["north"]["why"]
    page = client.get("/cluster").text
    assert "pair: round-robin" in page
    assert "pass-word" not in page + client.get("/api/v1/cluster").text
    assert "127.0.0.1" not in enter(Rank.VIEWER).get("/cluster").text


def test_a_console_without_brokers_says_how_to_name_them(enter: Enter) -> None:
    client = enter(Rank.VIEWER)
    assert "TXSAGA_BROKER_" in client.get("/cluster").text
    assert "TXSAGA_RESOURCE_" in client.get("/resources").text
