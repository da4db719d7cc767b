"""What the pages show: every text as text, whatever it is, and one clear line when something is wrong."""

from __future__ import annotations

import json

import pytest

from tests.console.conftest import Enter
from tests.scene.shop import Shop
from txsaga.console.people import Rank
from txsaga.flows.ballot import Ballot, CastVote, Rule
from txsaga.flows.ballots import vote

JSON = {"content-type": "application/json"}
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"


@pytest.mark.req("IBM-41")
def test_a_transaction_is_listed_found_and_shown(shop: Shop, enter: Enter) -> None:
    with shop.producer().transaction(key="order-42") as tx:
        tx.send("orders", b"a chair")
    client = enter(Rank.VIEWER)
    for query in ("", "?key=order-42", "?state=committed", "?topic=orders", "?group=shop", "?since=1h"):
        assert (
            f'/transactions/{shop.store.registry.identity.transaction(tx.txid or 0)}"' in client.get(f"/{query}").text
        )
    assert "No transaction matches" in client.get("/?run=another").text
    id = shop.store.registry.identity.transaction(tx.txid or 0)
    assert client.get(f"/?key={id}").headers["location"].endswith(f"/transactions/{id}")
    page = client.get(f"/transactions/{tx.txid}").text
    for words in ("order-42", "committed", "It is committed. Its messages have no offsets yet.", "orders", "<svg"):
        assert words in page
    shop.deliver()
    assert "It is over" in client.get(f"/transactions/{tx.txid}").text


def test_what_is_undecided_says_what_it_waits_for(shop: Shop, enter: Enter) -> None:
    receipt = shop.mq_producer().prepare_now("orders", b"a")
    page = enter(Rank.OPERATOR).get(f"/transactions/{receipt.txid}").text
    assert "Its owner has not decided it" in page
    assert all(f'data-act="{name}"' in page for name in ("settle", "commit", "rollback"))
    assert "data-act" not in enter(Rank.VIEWER).get(f"/transactions/{receipt.txid}").text


def test_the_full_picture_says_all_of_each_step(shop: Shop, enter: Enter) -> None:
    receipt = shop.mq_producer().prepare_now("orders", b"a")
    client = enter(Rank.OPERATOR)
    reason = f"looked at it {HOSTILE}"
    client.post("/api/v1/acts/commit", json={"id": str(receipt.txid), "reason": reason})
    steps = client.get(f"/api/v1/transactions/{receipt.txid}").json()["timeline"]["steps"]
    page = client.get(f"/transactions/{receipt.txid}?picture=full").text
    drawn = page[page.index("<svg") : page.index("</svg>")]
    assert drawn.count("<circle") == len(steps) > 1
    assert drawn.count('<circle class="decision"') == 1
    assert all(step["what"] in drawn for step in steps)
    assert "operator@console: looked at it &lt;script&gt;" in drawn
    assert "operator@console" not in client.get(f"/transactions/{receipt.txid}").text.split("</svg>")[0]


def test_hostile_text_is_shown_as_text(shop: Shop, enter: Enter) -> None:
    producer = shop.producer()
    with pytest.raises(ValueError, match="script"), producer.transaction(key=HOSTILE) as tx:
        tx.send("orders", HOSTILE.encode())
        raise ValueError(HOSTILE)
    client = enter(Rank.ADMIN)
    for path in ("/", f"/transactions/{tx.txid}", f"/transactions/{tx.txid}/messages", "/audit", f"/?key={HOSTILE}"):
        page = client.get(path).text
        assert "<script>alert" not in page
        assert "<img src=x" not in page
    assert "&lt;script&gt;" in client.get("/").text


@pytest.mark.parametrize(
    ("path", "status", "line"),
    [
        ("/transactions/999999", 404, "is not in this store"),
        ("/transactions/nonsense", 404, ""),
        ("/?state=lost", 400, "it is one of active"),
        ("/?since=soon", 400, "write 15m"),
        ("/?before=x", 400, "the number of a transaction"),
        ("/?topic=nowhere", 400, "does not exist"),
        ("/?group=nowhere", 404, "nowhere"),
        ("/?sate=parked", 400, "there is no filter"),
        ("/?key=%00", 400, "zero byte"),
        (f"/?before={'9' * 5_000}", 400, "the number of a transaction"),
        (f"/audit?before={'9' * 5_000}", 400, "the number of a row"),
        ("/api/v1/transactions?limit=x", 400, "limit"),
        ("/acts/fly?id=1", 403, "ask an administrator"),
    ],
)
def test_bad_input_gets_one_line(enter: Enter, path: str, status: int, line: str) -> None:
    answer = enter(Rank.OPERATOR).get(path)
    assert (answer.status_code, line in answer.text) == (status, True), answer.text


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"id', "the body is not JSON: Unterminated string starting at at position 1"),
        ("", "body: Field required"),
        ("[]", "body: Input should be a valid dictionary"),
    ],
)
def test_a_body_that_can_not_be_read_gets_one_line(enter: Enter, text: str, line: str) -> None:
    answer = enter(Rank.OPERATOR).post("/api/v1/acts/commit", content=text, headers=JSON)
    assert (answer.status_code, answer.json()) == (400, {"error": line})


def test_pages_are_read_one_after_the_other(shop: Shop, enter: Enter) -> None:
    for at in range(7):
        shop.producer().send("news", str(at).encode())
    client, found, before = enter(Rank.VIEWER), list[int](), ""
    while True:
        page = client.get(f"/api/v1/transactions?limit=3{before}").json()
        found += [each["txid"] for each in page["items"]]
        if page["next"] is None:
            break
        before = f"&before={page['next']}"
    assert found == sorted(found, reverse=True)
    assert len(found) == 7


def test_messages_are_read_page_by_page(shop: Shop, enter: Enter) -> None:
    with shop.producer().transaction(key="many") as tx:
        for number in range(250):
            tx.send("orders", f"body {number}".encode(), key=str(number % 7))
    client, found, sizes, after = enter(Rank.OPERATOR), list[str](), list[int](), 0
    while after is not None:
        page = client.get(f"/api/v1/transactions/{tx.txid}/messages?after={after}").json()
        found += [each["body"] for each in page["items"]]
        sizes.append(len(page["items"]))
        after = page["next"]
    assert (sizes, sorted(found)) == ([100, 100, 50], sorted(f"body {number}" for number in range(250)))
    first, last = (client.get(f"/transactions/{tx.txid}/messages{query}").text for query in ("", "?after=200"))
    assert ('href="?after=100"' in first, 'rel="next"' in last) == (True, False)
    assert (first.count("<pre"), last.count("<pre")) == (100, 50)
    assert "There are no more messages" in client.get(f"/transactions/{tx.txid}/messages?after=300").text
    assert client.get(f"/transactions/{tx.txid}/messages?after=-1").status_code == 400


def test_what_has_not_changed_is_not_sent_again(shop: Shop, enter: Enter) -> None:
    shop.producer().send("news", b"a")
    client = enter(Rank.VIEWER)
    first = client.get("/api/v1/topics")
    again = client.get("/api/v1/topics", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.text) == (304, "")
    shop.producer().send("news", b"b")
    shop.deliver()
    assert client.get("/api/v1/topics", headers={"if-none-match": first.headers["etag"]}).status_code == 200


def test_an_act_shows_its_plan_and_needs_a_reason(shop: Shop, enter: Enter) -> None:
    receipt = shop.mq_producer().prepare_now("orders", b"a")
    client = enter(Rank.OPERATOR)
    assert "publish 1 message to orders" in " ".join(client.get(f"/acts/commit?id={receipt.txid}").text.split())
    refused = client.post("/api/v1/acts/commit", json={"id": str(receipt.txid), "reason": " "})
    assert (refused.status_code, "give a reason" in refused.json()["error"]) == (400, True)
    done = client.post("/api/v1/acts/commit", json={"id": str(receipt.txid), "reason": "looked at it"})
    assert done.json()["told"] == f"transaction {receipt.txid} is decided by hand: COMMIT"
    late = client.post("/api/v1/acts/rollback", json={"id": str(receipt.txid), "reason": "no"})
    assert late.status_code == 409
    assert shop.bodies("orders") == ["a"]
    (row,) = [each for each in client.get("/api/v1/audit").json()["items"] if each["what"] == "COMMIT BY HAND"]
    assert (row["who"], row["why"]) == ("operator@console", "looked at it")


def test_the_steps_of_a_saga_that_is_over_are_shown(shop: Shop, enter: Enter) -> None:
    with shop.broker.saga("travel", key="trip") as saga:
        saga.step(booked, name="book", input={"seat": "12A"})
    for role, seen in ((Rank.OPERATOR, True), (Rank.VIEWER, False)):
        client = enter(role)
        assert ">1 book<" in client.get(f"/transactions/{saga.txid}").text
        assert ("12A" in client.get(f"/api/v1/transactions/{saga.txid}").text) is seen


def booked(seat: str) -> str:
    return seat


@pytest.mark.parametrize("reason", ["a\0b", "a\nb", "\ud800", "x" * 501, 5, None])
def test_a_reason_that_can_not_be_recorded_is_refused_before_anything_is_done(
    shop: Shop, enter: Enter, reason: object
) -> None:
    shop.broker.create_group("billing")
    text = json.dumps({"id": "billing", "reason": reason})
    answer = enter(Rank.OPERATOR).post("/api/v1/acts/pause-group", content=text, headers=JSON)
    assert (answer.status_code, "reason" in answer.text) == (400, True), answer.text
    assert not shop.store.groups.all()[0].policy.paused


def test_what_was_refused_and_what_was_only_checked_is_recorded(shop: Shop, enter: Enter) -> None:
    receipt = shop.mq_producer().prepare_now("orders", b"a")
    client = enter(Rank.ADMIN)
    assert client.post("/api/v1/acts/delete-group", json={"id": "none", "reason": "tidy"}).status_code == 404
    assert client.post("/api/v1/acts/settle", json={"id": str(receipt.txid), "reason": "slow"}).status_code == 200
    audit = {(each["what"], each["why"]) for each in client.get("/api/v1/audit").json()["items"]}
    assert {("DELETE GROUP none", "tidy"), ("CHECK NOW", "slow")} <= audit
    assert any(what == "REFUSED: DELETE GROUP none" for what, _ in audit)


def test_values_of_rows_that_a_gate_saw_are_for_operators(shop: Shop, enter: Enter) -> None:
    seen_by_gate = CastVote(voter="gate", yes=True, evidence={"why": "like a@b.c"})
    path = f"/transactions/{balloted(shop, Ballot(name='quality', voters=('gate',)), seen_by_gate)}"
    seen = {role: enter(role).get(f"/api/v1{path}").text + enter(role).get(path).text for role in Rank}
    assert [role for role, text in seen.items() if "a@b.c" in text] == [Rank.OPERATOR, Rank.ADMIN]


def test_the_page_shows_what_a_gate_found_and_hostile_findings_as_text(shop: Shop, enter: Enter) -> None:
    held = {"type": "expect_column_to_exist", "kwargs": {"column": "id"}, "success": True, "severity": "critical"}
    failed = {"type": HOSTILE, "kwargs": {HOSTILE: HOSTILE}, "success": False, "severity": "warning", "why": HOSTILE}
    found = {"rows": 1234, "engine": "pandas", HOSTILE: HOSTILE, "results": [held, failed, HOSTILE, {}]}
    ballot = Ballot(name="quality", voters=("ledger", "dick", HOSTILE), rule=Rule.QUORUM, needed=2)
    casts = CastVote(voter="ledger", yes=True, evidence=found), CastVote(voter=HOSTILE, yes=False, evidence=failed)
    path = f"/transactions/{balloted(shop, ballot, *casts, CastVote(voter='dick', yes=True, evidence={'results': 7}))}"
    page = enter(Rank.OPERATOR).get(path).text
    words = ("rows: 1234", "engine: pandas", "expect_column_to_exist", "column = id", "Rule: quorum 2", "warning</td>")
    assert [each for each in words if each not in page] == []
    assert "<script>alert" not in page and "<img src=x" not in page
    assert page.count("&lt;script&gt;") > 8
    assert "rows: 1234" not in enter(Rank.VIEWER).get(path).text


def balloted(shop: Shop, ballot: Ballot, *casts: CastVote) -> int:
    """Return a transaction with a ballot on which some have voted."""
    group = shop.store.registry.group("bank", transactional=True)
    with shop.store.ledgers.open() as ledger:
        life = ledger.create(group.id, None, 1)
        assert life is not None
        ledger.call(life.txid, ballot)
    for cast in casts:
        vote(shop.broker.kernel, life.txid, ballot.name, cast)
    return life.txid


def test_an_act_on_several_names_those_it_refuses(shop: Shop, enter: Enter) -> None:
    producer = shop.mq_producer()
    first, second = producer.prepare_now("orders", b"a"), producer.prepare_now("orders", b"b")
    producer.commit(first)
    said = {"ids": [str(first.txid), str(second.txid)], "reason": "tidy up"}
    done = enter(Rank.OPERATOR).post("/api/v1/acts/rollback", json=said).json()
    assert [each["done"] for each in done] == [False, True]
    assert shop.pending() == []


def test_a_dead_letter_is_read_and_delivered_again(shop: Shop, enter: Enter) -> None:
    shop.broker.create_group("billing", max_attempts=1)
    shop.producer().send("news", b"broken")
    shop.deliver()
    consumer = shop.broker.consumer("billing", ["news"])
    (message,) = consumer.receive()
    message.nack(cause="it is broken")
    client = enter(Rank.OPERATOR)
    page = client.get("/letters?group=billing").text
    assert "it is broken" in page
    assert "<pre>broken</pre>" in page
    assert "<pre>" not in enter(Rank.VIEWER).get("/letters").text
    (letter,) = client.get("/api/v1/letters").json()["items"]
    assert client.get(f"/api/v1/letters/{letter['id']}").json()["message"]["body"] == "broken"
    assert client.get("/api/v1/letters/999").status_code == 404
    seen = "".join(enter(Rank.VIEWER).get(path).text for path in ("/letters", "/api/v1/letters"))
    assert "it is broken" not in seen
    told = client.post("/api/v1/acts/replay-letter", json={"id": str(letter["id"]), "reason": "mended"}).json()
    assert told["told"].endswith("it is delivered when a member reads")
    assert [each.body for each in consumer.receive()] == [b"broken"]


def test_a_group_is_paused_and_goes_on(shop: Shop, enter: Enter) -> None:
    shop.producer().send("news", b"a")
    shop.deliver()
    consumer, stream = shop.broker.consumer("billing", ["news"]), shop.broker.stream("audit", ["news"])
    client = enter(Rank.OPERATOR)
    for name in ("billing", "audit"):
        told = client.post("/api/v1/acts/pause-group", json={"id": name, "reason": "a bug"}).json()
        assert told["told"] == f"group {name} takes no more messages, within seconds"
    consumer._policy_until = 0.0
    assert (consumer.receive(), stream.poll()) == ([], None)
    assert client.get("/groups").text.count("paused</span>") == 2
    for name in ("billing", "audit"):
        client.post("/api/v1/acts/resume-group", json={"id": name, "reason": "it is mended"})
    consumer._policy_until = stream._membership._renew_at = 0.0
    assert [each.body for each in consumer.receive()] == [b"a"]
    assert stream.poll() is not None
    audit = client.get("/api/v1/audit").json()["items"]
    assert {each["what"] for each in audit} >= {"PAUSE GROUP billing", "RESUME GROUP audit"}
    stream.close()


def test_the_other_pages_show_what_there_is(shop: Shop, enter: Enter) -> None:
    shop.broker.create_group("billing")
    shop.producer().send("news", b"a")
    shop.deliver()
    shop.broker.consumer("billing", ["news"]).receive()[0].ack()
    client = enter(Rank.ADMIN)
    assert "billing" in client.get("/groups").text
    assert 'data-act="purge-topic" data-id="news"' in client.get("/topics").text
    for path in ("/resources", "/alarms", "/engines", "/audit", "/letters"):
        assert client.get(path).status_code == 200
