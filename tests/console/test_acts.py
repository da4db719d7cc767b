"""What each act says that it will do, and that it does that: over HTTP, as the pages ask for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from tests.console.conftest import Enter
from tests.scene.shop import Shop, says
from tests.scene.stored import Stored
from txsaga import Undo, compensation
from txsaga.console import acts
from txsaga.console.acts import ACTS
from txsaga.console.people import Rank
from txsaga.core.decision import LocalState
from txsaga.flows.saga_driver import SagaRecovery

pytestmark = pytest.mark.postgres

GIVEN: list[str] = []
"""Seats that were given back."""


@compensation("console-gives-back")
def give_back(seat: str) -> None:
    """Refuse the first time."""
    GIVEN.append(seat)
    if len(GIVEN) == 1:
        raise ValueError("the office is closed")


def booked(seat: str) -> str:
    return seat


def planned(client: httpx.Client, name: str, **said: object) -> str:
    """Return the plan of an act as the dialog shows it."""
    page = client.get(f"/acts/{name}", params={key: str(value) for key, value in said.items()})
    assert page.status_code == 200, page.text
    shown = page.text.split('<ol class="plan">')[1].split("</ol>")[0]
    return " ".join(shown.replace("<li>", " ").replace("</li>", ".").replace("&#39;", "'").split())


def done(client: httpx.Client, name: str, **said: object) -> Mapping[str, Any]:
    """Do an act; return what it said."""
    answer = client.post(f"/api/v1/acts/{name}", json={"reason": "a test", **said})
    assert answer.status_code == 200, answer.text
    told: Mapping[str, Any] = answer.json()
    return told


def unsure(shop: Shop) -> int:
    """Return a transaction that no checker knows anything about, after its first check."""
    receipt = shop.mq_producer("crm", checker=says(LocalState.UNKNOWN)).prepare_now("orders", b"a")
    shop.check()
    return receipt.txid


def stalled(shop: Shop) -> int:
    """Return a saga whose compensation failed as often as it may."""
    GIVEN.clear()
    with pytest.raises(LookupError), shop.broker.saga("travel", key="trip") as saga:
        saga.step(booked, compensate=Undo(give_back, retries=0), input={"seat": "12A"}, name="book")
        raise LookupError
    assert saga.txid is not None
    return saga.txid


def letter(shop: Shop, body: bytes = b"a") -> int:
    """Return a dead letter of the group mailer."""
    shop.broker.create_group("mailer", max_attempts=1)
    shop.producer().send("news", body)
    shop.deliver()
    with shop.broker.consumer("mailer", ["news"]) as consumer:
        consumer.receive()[0].nack(cause="no such address")
    return shop.store.dead_letters.list("mailer", 2)[0].id


def test_every_act_says_what_it_will_do(shop: Shop, enter: Enter) -> None:
    undone, client = shop.mq_producer().prepare_now("orders", b"a").txid, enter(Rank.ADMIN)
    done(client, "rollback", id=str(undone))
    waiting, trip, dead = unsure(shop), stalled(shop), letter(shop)
    ids = {"transaction": waiting, "step": trip, "branch": trip, "letter": dead, "topic": "news", "group": "mailer"}
    for act in ACTS.values():
        id = undone if act.name == "replay" else ids[act.on]
        assert len(planned(client, act.name, id=id, step=1, branch=1, attempt=1)) > 15, act.name
        told = client.post(f"/api/v1/acts/{act.name}/plan", json={"id": str(id), "step": 1, "branch": 1, "attempt": 1})
        assert told.json()[0]["does"], act.name
    assert client.get("/acts/pause-group?id=nobody").status_code == 404


def test_a_check_now_is_the_next_check(shop: Shop, stored: Stored, enter: Enter) -> None:
    txid, client = unsure(shop), enter(Rank.OPERATOR)
    stored.rows("UPDATE doubt SET check_at = now() + interval '1 hour'")
    assert not shop.store.doubts.due(9)
    assert f"move the next check of transaction {txid} to now; an engine then asks a checker of group crm" in planned(
        client, "settle", id=txid
    )
    assert done(client, "settle", id=str(txid))["told"].endswith("the next check asks one, and is due now")
    assert [each.txid for each in shop.store.doubts.due(9)] == [txid]
    (row,) = stored.rows("SELECT checks FROM doubt")
    assert row == (1,)


def test_a_check_now_leaves_work_and_what_is_parked(shop: Shop, stored: Stored, enter: Enter) -> None:
    txid, client = unsure(shop), enter(Rank.OPERATOR)
    stored.rows("UPDATE doubt SET check_at = now() + interval '1 hour', checks = 0, remarks = '[]'")
    assert "a process that works on it is alive" in done(client, "settle", id=str(txid))["told"]
    assert not shop.store.doubts.due(9)
    stored.rows("UPDATE doubt SET parked = now()")
    assert "resume it, and a checker is asked" in planned(client, "settle", id=txid)
    assert "resume it" in done(client, "settle", id=str(txid))["told"]
    with shop.producer().transaction(key="open") as tx:
        tx.send("orders", b"a")
        assert "still open: only its owner ends it" in planned(client, "settle", id=tx.txid)
        done(client, "settle", id=str(tx.txid))
    assert shop.state(tx.txid or 0) == "committed"


def test_a_parked_transaction_is_resumed(shop: Shop, stored: Stored, enter: Enter) -> None:
    txid, client = unsure(shop), enter(Rank.OPERATOR)
    assert "it is not parked" in planned(client, "resume", id=txid)
    shop.check(1)
    assert shop.state(txid) == "parked"
    assert "an engine asks a checker of group crm" in planned(client, "resume", id=txid)
    assert done(client, "resume", id=str(txid))["told"] == f"transaction {txid} is checked again"
    assert shop.state(txid) != "parked"
    assert [each.txid for each in shop.store.doubts.due(9)] == [txid]
    (row,) = [each for each in client.get("/api/v1/audit").json()["items"] if each["what"] == "RESUMED"]
    assert (row["txid"], row["who"], row["why"]) == (txid, "operator@console", "a test")


def test_what_was_rolled_back_is_replayed(shop: Shop, enter: Enter) -> None:
    receipt = shop.mq_producer().prepare_now("orders", b"a chair")
    client = enter(Rank.OPERATOR)
    done(client, "rollback", id=str(receipt.txid))
    assert "send 1 message to orders/" in planned(client, "replay", id=receipt.txid)
    told = done(client, "replay", id=str(receipt.txid))["told"]
    newest = max(each.txid for each in shop.listed())
    assert told == f"transaction {receipt.txid} is replayed as transaction {newest}"
    assert shop.bodies("orders") == ["a chair"]


def test_a_step_is_retried(shop: Shop, enter: Enter) -> None:
    txid, client = stalled(shop), enter(Rank.OPERATOR)
    assert "compensate step 1 book again, after 1 tries; an engine does it (console-gives-back)" in planned(
        client, "resume-step", id=txid, step=1
    )
    assert done(client, "resume-step", id=str(txid), step=1)["told"] == f"step 1 of transaction {txid} is retried"
    assert SagaRecovery(shop.broker.kernel, threads=1).run_once() == 1
    assert GIVEN == ["12A", "12A"]


def test_a_letter_is_deleted_for_good(shop: Shop, enter: Enter) -> None:
    number, client = letter(shop), enter(Rank.ADMIN)
    assert f"delete letter {number}; group mailer never gets it" in planned(client, "purge-letter", id=number)
    assert done(client, "purge-letter", id=str(number))["told"] == f"letter {number} is deleted"
    assert shop.store.dead_letters.list("mailer", 2) == []
    assert "PURGE LETTER" in json.dumps(client.get("/api/v1/audit").json())


def test_a_topic_is_purged_and_deleted(shop: Shop, enter: Enter) -> None:
    for _ in range(3):
        shop.producer().send("news", b"a")
    shop.deliver()
    client = enter(Rank.ADMIN)
    assert planned(client, "purge-topic", id="news") == "drop 3 messages of news."
    assert done(client, "purge-topic", id="news")["told"] == "messages dropped from news: 3"
    assert shop.bodies("news") == []
    shop.producer().send("news", b"a")
    shop.deliver()
    assert "while it is read by reader-0: delete each" in planned(client, "delete-topic", id="news")
    refused = client.post("/api/v1/acts/delete-topic", json={"id": "news", "reason": "a test"})
    assert (refused.status_code, "is read by group reader-0" in refused.text) == (409, True)
    assert "delete group reader-0, and how far it has read" in planned(client, "delete-group", id="reader-0")
    assert done(client, "delete-group", id="reader-0")["told"] == "group reader-0 is deleted"
    assert planned(client, "delete-topic", id="news") == "drop 1 message of news. delete the topic news."
    assert done(client, "delete-topic", id="news")["told"] == "topic news is deleted; messages dropped: 1"
    assert "news" not in {each["name"] for each in client.get("/api/v1/topics").json()}


def test_the_plan_for_several_adds_up_and_says_how_many_it_leaves_out(shop: Shop, enter: Enter) -> None:
    ids = [str(shop.mq_producer().prepare_now("orders", b"a").txid) for _ in range(22)]
    client = enter(Rank.OPERATOR)
    page = client.get("/acts/commit", params={"id": ",".join(ids)}).text
    assert planned(client, "commit", id=",".join(ids)) == "publish 20 messages to orders."
    assert "the first 20 of 22 transactions. It is done to the other 2 as well" in page
    assert "It is done to the other" not in client.get("/acts/commit", params={"id": ",".join(ids[:20])}).text


def matched(page: str) -> list[str]:
    """Return what the dialog of an act holds, as the script sends it."""
    return page.split('data-id="')[1].split('"')[0].split(",")


def test_an_act_is_done_to_all_that_match_a_filter(shop: Shop, stored: Stored, enter: Enter) -> None:
    found = {shop.mq_producer().prepare_now("orders", b"a").txid for _ in range(60)}
    other = shop.mq_producer("crm").prepare_now("orders", b"a").txid
    with shop.producer().transaction(key="open") as tx:
        tx.send("orders", b"a")
        client = enter(Rank.OPERATOR)
        assert "and all others that match the filter" in client.get("/?topic=orders").text
        page = client.get("/acts/commit", params={"match": f"topic=orders&group=shop&before={other - 9}"}).text
    assert "<h2>Commit: 60 transactions</h2>" in page
    assert "the first 20 of 60 transactions. It is done to the other 40 as well.</p>" in page
    told = client.post("/api/v1/acts/commit", json={"ids": matched(page), "reason": "all were paid"}).json()
    assert [each["done"] for each in told] == [True] * 60
    assert shop.pending() == [other]
    noted = stored.rows("SELECT txid, who, why FROM event WHERE what = 'COMMIT BY HAND'")
    assert {tuple(each) for each in noted} == {(txid, "operator@console", "all were paid") for txid in found}


def test_an_act_on_a_filter_is_bounded_and_says_so(shop: Shop, enter: Enter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acts, "MOST", 25)
    monkeypatch.setattr(acts, "PAGE", 7)
    for _ in range(26):
        shop.mq_producer().prepare_now("orders", b"a")
    client = enter(Rank.OPERATOR)
    page = client.get("/acts/rollback", params={"match": ""}).text
    assert (len(matched(page)), "More match; these are the newest" in page) == (25, True)
    told = client.post("/api/v1/acts/rollback", json={"ids": [*matched(page), "1"], "reason": "too many"})
    assert (told.status_code, len(shop.pending())) == (400, 26)
    client.post("/api/v1/acts/rollback", json={"ids": matched(page), "reason": "none was paid"})
    assert len(shop.pending()) == 1
    page = client.get("/acts/rollback", params={"match": ""}).text
    assert (len(matched(page)), "More match" in page) == (1, False)


@pytest.mark.parametrize(
    ("match", "status", "line"),
    [
        ("state=committed", 404, "no transaction that matches"),
        ("state=lost", 400, "it is one of active"),
        ("since=soon", 400, "write 15m"),
        ("sate=parked", 400, "there is no filter"),
        ("key=%00", 400, "zero byte"),
    ],
)
def test_a_filter_that_fits_nothing_gets_one_line(enter: Enter, match: str, status: int, line: str) -> None:
    answer = enter(Rank.OPERATOR).get("/acts/rollback", params={"match": match})
    assert (answer.status_code, line in answer.text) == (status, True), answer.text
