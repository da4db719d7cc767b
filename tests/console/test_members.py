"""Who belongs to a group: the processes that answer checks for it, and those that read as its members."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tests.console.conftest import Enter
from tests.console.test_pages import HOSTILE
from tests.scene.members import Member
from tests.scene.shop import QUEUES, Shop, says
from tests.scene.stored import Stored
from txsaga.console.people import Rank
from txsaga.core.decision import LocalState


def test_a_process_that_answers_checks_is_listed_with_its_questions(shop: Shop, stored: Stored, enter: Enter) -> None:
    anna, bert = Member(shop), Member(shop)
    for each in (anna, bert):
        each.producer("crm", checker=says(LocalState.UNKNOWN))
        each.beat()
    shop.mq_producer("crm").prepare_now("orders", b"a")
    shop.check()
    asked = stored.value("SELECT member FROM question")
    client = enter(Rank.VIEWER)
    found = client.get("/api/v1/members?group=crm").json()
    assert (found["group"], found["producers"]["kind"], found["consumers"]) == ("crm", "any", None)
    of = {each["member"]: each for each in found["producers"]["members"]}
    assert {anna.name, bert.name} <= of.keys()
    assert {name: each["questions"] for name, each in of.items() if each["questions"]} == {asked: 1}
    assert all(each["alive"] for each in of.values())
    now = stored.value("SELECT clock_timestamp()")
    assert now - timedelta(seconds=60) < datetime.fromisoformat(of[anna.name]["seen"]) <= now
    stored.let_leases_pass(60)
    page = client.get("/members?group=crm").text
    assert page.count('<td data-label="State">silent</td>') == len(of)
    assert 'href="/members?group=crm"' in client.get("/groups").text
    assert 'href="/members?group=crm"' in client.get("/?group=crm").text


def test_the_members_of_a_stream_are_listed_with_their_queues(shop: Shop, enter: Enter) -> None:
    streams = [shop.broker.stream("billing", ["orders"], member=name) for name in ("anna", "bert")]
    for stream in (*streams, *streams):
        stream._membership._renew_at = 0.0
        stream.poll()
    client = enter(Rank.VIEWER)
    found = client.get("/api/v1/members?group=billing").json()["consumers"]
    assert [(each["member"], each["topic"], each["alive"], each["held"]) for each in found["members"]] == [
        ("anna", "orders", True, 0),
        ("bert", "orders", True, 0),
    ]
    anna, bert = (each["queues"] for each in found["members"])
    assert (len(anna), sorted([*anna, *bert])) == (2, [*range(QUEUES)])
    assert f'<td data-label="Queues">{anna[0]}, {anna[1]}</td>' in client.get("/members?group=billing").text
    for stream in streams:
        stream.close()
    assert "No member is running" in client.get("/members?group=billing").text


def test_the_members_of_a_work_queue_are_listed_while_they_hold_messages(
    shop: Shop, stored: Stored, enter: Enter
) -> None:
    for number in range(3):
        shop.producer().send("news", str(number).encode())
    shop.deliver()
    consumer = shop.broker.consumer("billing", ["news"])
    client = enter(Rank.VIEWER)
    assert "listed only while it holds one" in client.get("/members?group=billing").text
    first, *_ = consumer.receive(3)
    with shop.producer().transaction() as tx:
        tx.consume(first)
        (bound,) = client.get("/api/v1/members?group=billing").json()["consumers"]["members"]
        assert (bound["topic"], bound["held"], bound["txids"], bound["alive"]) == ("news", 3, [tx.txid], True)
        assert bound["member"] == stored.value("SELECT DISTINCT member FROM claim WHERE receipt IS NOT NULL")
        assert f'<a href="/transactions/{tx.txid}">' in client.get("/members?group=billing").text
    stored.rows("UPDATE claim SET until = until - interval '1 hour'")
    (late,) = client.get("/api/v1/members?group=billing").json()["consumers"]["members"]
    assert (late["held"], late["alive"], late["txids"]) == (2, False, [])


def test_a_group_that_is_both_shows_both_and_an_unknown_one_is_not_found(shop: Shop, enter: Enter) -> None:
    shop.producer("both")
    shop.broker.create_group("both")
    client = enter(Rank.VIEWER)
    found = client.get("/api/v1/members?group=both").json()
    assert (found["producers"] is None, found["consumers"]["style"]) == (False, "work")
    for path in ("/members?group=none", "/api/v1/members?group=none"):
        assert client.get(path).status_code == 404
    for path in ("/members", "/members?group=%00", "/api/v1/members"):
        assert client.get(path).status_code == 400


@pytest.mark.parametrize("table", ["lease", "consumer_group"])
def test_hostile_names_are_shown_as_text(shop: Shop, stored: Stored, enter: Enter, table: str) -> None:
    member = Member(shop)
    member.producer("crm")
    member.beat()
    shop.broker.create_group("crm")
    stored.rows(f"UPDATE {table} SET name = :name", name=HOSTILE)
    name = HOSTILE if table == "consumer_group" else "crm"
    answer = enter(Rank.ADMIN).get("/members", params={"group": name})
    assert answer.status_code == 200
    assert "&lt;script&gt;" in answer.text
    assert "<script>alert" not in answer.text
