"""What a person on call reads: what an act really does, what became of a message, and what happens next."""

from __future__ import annotations

import re
from datetime import UTC
from uuid import uuid4

import pytest
from fastapi import FastAPI

from tests.console.conftest import Enter
from tests.contracts.samples import row
from tests.lake.books import Books
from tests.scene.shop import Shop, says
from tests.scene.stored import Stored
from txsaga.console import home, queries
from txsaga.console.people import Rank
from txsaga.console.probes import Probes
from txsaga.core.decision import LocalState
from txsaga.core.records import Half, Receipt


def text(page: str) -> str:
    return " ".join(page.split())


@pytest.fixture
def letter(shop: Shop) -> int:
    """Give the number of a dead letter of the group mailer, which has no member any more."""
    shop.broker.create_group("mailer", max_attempts=1)
    with shop.producer().transaction(key="order-7") as tx:
        tx.send("orders", b"a chair", key="inv-1")
    shop.deliver()
    consumer = shop.broker.consumer("mailer", ["orders"])
    (message,) = consumer.receive()
    message.nack(cause="no such address")
    consumer.close()
    (found,) = shop.store.dead_letters.list("mailer", 2)
    return found.id


def test_a_letter_that_no_member_reads_is_said_to_wait(shop: Shop, stored: Stored, enter: Enter, letter: int) -> None:
    client = enter(Rank.OPERATOR)
    page = text(client.get(f"/acts/replay-letter?id={letter}").text)
    assert f"<h2>Deliver letter {letter} (key inv-1) again</h2>" in page
    for words in ("orders", "no such address", "if none is running, nothing happens until one starts"):
        assert words in page
    stored.rows("UPDATE consumer_group SET seen = seen - interval '1 hour'")
    page = text(client.get(f"/acts/replay-letter?id={letter}").text)
    absent = "no member of mailer is running: nothing happens until one starts"
    assert f'N{absent[1:]}. <a href="/groups#group-mailer">' in page
    assert f"put back letter {letter} (key inv-1) for group mailer; it is delivered when a member reads" in page
    done = client.post("/api/v1/acts/replay-letter", json={"id": str(letter), "reason": "mended"}).json()
    assert done["told"].startswith(f"{absent}; letter {letter} is put back for group mailer")
    assert done["group"] == "mailer"
    assert 'id="group-mailer"' in client.get("/groups").text


def test_a_letter_that_a_member_reads_is_only_put_back(shop: Shop, enter: Enter, letter: int) -> None:
    shop.producer().send("news", b"a")
    with shop.producer().transaction() as tx:
        tx.send("orders", b"a table")
    shop.deliver()
    with shop.broker.consumer("mailer", ["orders"]) as consumer:
        assert consumer.receive()
        client = enter(Rank.OPERATOR)
        assert "no member" not in client.get(f"/acts/replay-letter?id={letter}").text.lower()
        done = client.post("/api/v1/acts/replay-letter", json={"id": str(letter), "reason": "mended"}).json()
        assert done["told"] == f"letter {letter} is put back for group mailer; it is delivered when a member reads"
    gone = client.post("/api/v1/acts/replay-letter", json={"id": str(letter), "reason": "again"})
    assert (gone.status_code, "there is no dead letter" in gone.json()["error"]) == (400, True)


def test_a_check_that_finds_nothing_is_a_notice(shop: Shop, enter: Enter) -> None:
    receipt = shop.mq_producer("crm").prepare_now("orders", b"a")
    shop.later(60)
    client = enter(Rank.OPERATOR)
    done = client.post("/api/v1/acts/settle", json={"id": str(receipt.txid), "reason": "slow"}).json()
    assert (done["told"], done["notice"]) == (
        "checked: no checker of group crm is running, so nothing was found out",
        True,
    )
    with shop.producer().transaction() as tx:
        tx.send("orders", b"b")
    done = client.post("/api/v1/acts/settle", json={"id": str(tx.txid), "reason": "slow"}).json()
    assert (done["told"], done["notice"]) == (f"transaction {tx.txid} is decided: COMMIT: it is decided", False)


def test_a_committed_transaction_says_who_reads_it_and_names_its_letter(shop: Shop, enter: Enter, letter: int) -> None:
    (found,) = shop.store.dead_letters.list("mailer", 2)
    txid = next(each.txid for each in shop.listed())
    client = enter(Rank.OPERATOR)
    page = text(client.get(f"/transactions/{txid}").text)
    assert "It is over. Published to orders; read by group mailer." in page
    link = f"/letters?group=mailer&amp;before={letter + 1}#letter-{letter}"
    assert f'Group mailer gave a message up: <a href="{link}">letter {letter}</a>' in page
    letters = text(client.get(link.replace("&amp;", "&")).text)
    assert (
        f'<li id="letter-{letter}"><h2>Letter {letter} · key inv-1 · orders, queue {found.queue}, offset 0</h2>'
        in letters
    )
    assert f'<a href="/transactions/{found.message.id}">transaction {txid}</a>' in letters
    assert client.get(f"/transactions/{found.message.id}").status_code == 200
    shop.producer().send("news", b"a")
    shop.deliver()
    newest = max(each.txid for each in shop.listed())
    page = text(client.get(f"/transactions/{newest}").text)
    assert "It is over. Published to news; no group reads it." in page
    assert "gave a message up" not in page


def test_a_moment_is_a_clock_time_that_the_script_counts_from(shop: Shop, enter: Enter, letter: int) -> None:
    (found,) = shop.store.dead_letters.list("mailer", 2)
    at = found.at.astimezone(UTC)
    client = enter(Rank.VIEWER)
    written = f'<time datetime="{at.isoformat()}" data-form="both">{at:%H:%M:%S} UTC</time>'
    first = client.get("/letters")
    assert written in first.text or f"{at:%Y-%m-%d %H:%M:%S} UTC" in first.text
    again = client.get("/letters", headers={"if-none-match": first.headers["etag"]})
    assert again.status_code == 304


@pytest.mark.parametrize(("exhausted", "fate"), [("park", "parked for a person"), ("rollback", "rolled back")])
def test_what_waits_says_when_it_is_checked_how_often_and_what_follows(
    shop: Shop, stored: Stored, enter: Enter, exhausted: str, fate: str
) -> None:
    unsure = says(LocalState.UNKNOWN)
    producer = shop.mq_producer("crm", checker=unsure)
    receipt = producer.prepare_now("orders", b"a")
    shop.store.registry.alter_checks("crm", {"max_checks": 4, "on_exhausted": exhausted, "total_limit": 7200.0})
    shop.check()
    client = enter(Rank.OPERATOR)
    page = text(client.get(f"/transactions/{receipt.txid}").text)
    assert 'Check-back asks a checker, and decides. Check 2 of 4 is at <time datetime="' in page
    assert f"After check 4 without an answer it is {fate}." in page
    stored.rows("DELETE FROM lease WHERE kind LIKE 'checker:%'")
    page = text(client.get(f"/transactions/{receipt.txid}").text)
    assert "No checker of its group runs: start a producer with a checker, or decide it by hand. Check 2 of 4" in page
    assert f"A check without an answer does not count; after 2 hours it is {fate}." in page


def test_the_plan_of_a_group_counts_what_is_claimed_retried_and_given_up(
    shop: Shop, stored: Stored, enter: Enter, letter: int
) -> None:
    for _ in range(3):
        shop.producer().send("news", b"a")
    shop.broker.create_group("mailer2")
    shop.deliver()
    consumer = shop.broker.consumer("mailer2", ["news"])
    assert len(consumer.receive(1)) == 1
    (again,) = consumer.receive(1)
    again.nack(cause="later")
    page = text(enter(Rank.ADMIN).get("/acts/delete-group?id=mailer2").text)
    assert "miss 3 messages of news: 1 unread, 1 waiting for a retry, 1 claimed" in page
    page = text(enter(Rank.ADMIN).get("/acts/delete-group?id=mailer").text)
    assert "keep 1 of its dead letters, which can't be delivered again" in page.replace("&#39;", "'")


def test_rows_of_tables_are_drawn_as_visible_from_the_decision_on(books: Books, enter: Enter) -> None:
    books.create()
    books.append(1, 2)
    client = enter(Rank.VIEWER)
    (newest, *_) = client.get("/api/v1/table?name=bank.ledger").json()["items"]
    page = client.get(f"/transactions/{newest['txid']}").text
    drawn = page.split('aria-label="the steps in order"')[1].split("</svg>")[0]
    bars = re.findall(r'<rect class="(\w+)"', drawn)
    assert set(bars[:-1]) == {"hidden"}
    assert bars[-1] == "visible"


def test_a_key_that_is_not_found_is_said_and_the_other_filters_stay(shop: Shop, enter: Enter) -> None:
    shop.mq_producer().prepare_now("orders", b"a")
    page = text(enter(Rank.VIEWER).get("/?key=2001&state=prepared&topic=orders").text)
    assert (
        "No transaction has exactly the key 2001 and matches the other filters; keys of messages are not searched: "
        'filter by topic. <a href="/?topic=orders&amp;state=prepared">Without the key</a>' in page
    )
    assert 'value="prepared" checked' in page


def test_a_number_that_is_a_key_as_well_is_the_key(shop: Shop, enter: Enter) -> None:
    first = shop.mq_producer().prepare_now("orders", b"a").txid
    client = enter(Rank.VIEWER)
    assert client.get(f"/?key={first}").headers["location"].endswith(f"/transactions/{first}")
    with shop.producer().transaction(key=str(first)) as tx:
        tx.send("orders", b"b")
    page = client.get(f"/?key={first}").text
    assert f'aria-label="Select transaction {first}"' not in page
    assert f">{tx.txid}</a>" in page
    assert f"exactly the key {first}" in client.get(f"/?key={first}&state=active").text


def test_a_moment_that_can_not_be_read_is_said_beside_its_field(shop: Shop, enter: Enter) -> None:
    receipt = shop.mq_producer().prepare_now("orders", b"a")
    answer = enter(Rank.VIEWER).get("/?since=soon&state=prepared")
    assert answer.status_code == 400
    assert 'value="soon"' in answer.text
    assert "write 15m, 12h, 30d" in answer.text.split('role="alert">')[1]
    assert "This did not work" not in answer.text
    assert 'value="prepared" checked' in answer.text
    assert f">{receipt.txid}</a>" in answer.text


def test_only_what_is_not_over_can_be_selected_for_what_fits_it(shop: Shop, enter: Enter) -> None:
    with shop.producer().transaction() as over:
        over.send("orders", b"a")
    waiting = shop.mq_producer().prepare_now("orders", b"b").txid
    page = enter(Rank.OPERATOR).get("/").text
    assert f'data-fits="settle commit rollback" aria-label="Select transaction {waiting}"' in page
    assert f"Select transaction {over.txid}" not in page


def test_force_is_offered_where_evidence_may_contradict(shop: Shop, enter: Enter) -> None:
    client = enter(Rank.OPERATOR)
    plain = shop.mq_producer().prepare_now("orders", b"a").txid
    page = text(client.get(f"/acts/commit?id={plain}").text)
    assert 'name="force"' not in page
    for words in (f"<h2>Commit: transaction {plain}</h2>", "<dt>Topics</dt><dd>orders</dd>"):
        assert words in page
    resource = shop.store.registry.resource("billing", uuid4()).id
    qid = shop.store.registry.topic("orders").qids[0]
    group = shop.store.registry.group("bank", transactional=True).id
    (receipt,) = shop.store.halves.write([Half(group, [row(qid, "b")], resource)], ()).receipts
    assert isinstance(receipt, Receipt)
    page = text(client.get(f"/acts/commit?id={receipt.txid}").text)
    assert 'name="force"' in page
    assert "force overrides the refusal" in page
    page = client.get(f"/acts/skip-step?id={plain}&step=2").text
    assert f"<h2>Skip step 2 of transaction {plain}</h2>" in page
    assert "force" not in client.get(f"/acts/settle?id={receipt.txid}").text


def test_the_menu_counts_alarms_and_letters(
    console: FastAPI, enter: Enter, letter: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home, "BRIEF", 20.0)
    client = enter(Rank.VIEWER)
    console.state.home.probes = Probes()
    for path in ("/topics", "/audit"):
        page = client.get(path).text
        assert 'data-part="badge-letters"> 1</span>' in page
        assert re.search(r'data-part="badge-alarms"> [1-9]\d*</span>', page)
        assert 'data-part="badge-groups"></span>' in page


def test_an_alarm_names_the_page_of_the_console(enter: Enter, letter: int) -> None:
    page = enter(Rank.VIEWER).get("/alarms").text
    assert 'Group mailer has dead letters; see <a href="/letters">Dead letters</a>.' in page
    assert 'then <a href="/letters">Deliver again</a> or <a href="/letters">Delete</a>' in page
    assert "start <code>txsaga engine</code>" in page
    assert "`" not in page


def test_acts_of_people_are_listed_alone(shop: Shop, enter: Enter, monkeypatch: pytest.MonkeyPatch) -> None:
    receipt = shop.mq_producer().prepare_now("orders", b"a")
    shop.mq_producer().prepare_now("orders", b"b")
    shop.check()
    client = enter(Rank.OPERATOR)
    client.post("/api/v1/acts/pause-group", json={"id": "none", "reason": "tidy"})
    shop.mq_producer().prepare_now("orders", b"c")
    shop.check()
    everything = client.get("/api/v1/audit").json()["items"]
    people = client.get("/api/v1/audit?people=true").json()
    assert {each["what"] for each in people["items"]} == {"PAUSE GROUP none", "REFUSED: PAUSE GROUP none"}
    assert receipt.txid in {each["txid"] for each in everything}
    page = client.get("/audit?people=true").text
    assert 'class="word">operator@console</td>' in page
    monkeypatch.setattr(queries, "WINDOW", 1)
    page = client.get("/audit?people=true").text
    assert "No person did anything among these records." in page
    assert f"?before={everything[0]['id']}&amp;people=true" in page
