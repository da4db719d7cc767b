"""`txsaga tx` through the entry point: what is undecided can be seen and settled, with a name and a reason."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import NullPool, create_engine

import txsaga
from tests.cli.conftest import Cli
from tests.cli.program import Said
from tests.contracts.samples import answered, new_group, row
from tests.scene.stored import Stored
from txsaga.broker import Broker
from txsaga.cli.options import os_user
from txsaga.consume.dispatcher import Dispatcher
from txsaga.core.identity import StoreId
from txsaga.core.records import Half, Receipt
from txsaga.errors import TransactionsRejected
from txsaga.messages.producer import Producer

pytestmark = pytest.mark.core


@pytest.fixture
def producer(broker: Broker) -> Producer:
    """Give a producer whose checker never knows."""
    return broker.producer("shop", checker=lambda question: None)


@pytest.fixture
def half(producer: Producer, flow: str) -> Receipt:
    """Give a half that nobody decides."""
    return producer.prepare_now(flow, b"half")


def shown(said: Said) -> dict[str, Any]:
    """Return the one document of a command that worked."""
    assert (said.code, said.err) == (0, "")
    return said.document


@pytest.mark.req("IBM-10")
def test_both_outcomes_are_listed_and_nothing_else_ends_a_transaction(cli: Cli, producer: Producer, flow: str) -> None:
    good, bad, open_ = (producer.prepare_now(flow, body) for body in (b"good", b"bad", b"open"))
    producer.commit(good)
    producer.roll_back(bad)
    listed = cli("tx", "list", "--json").documents
    found = {view["txid"]: (view["state"], view["decision"]) for view in listed}
    assert found[good.txid] == ("committed", "COMMIT")
    assert found[bad.txid] == ("rolled_back", "ROLLBACK")
    assert found[open_.txid] == ("prepared", None)
    undecided = cli("tx", "list", "--undecided", "--json").documents
    assert open_.txid in {view["txid"] for view in undecided}
    assert {good.txid, bad.txid}.isdisjoint(view["txid"] for view in undecided)
    (line,) = [line for line in cli("tx", "list").lines if line.split()[0] == str(open_.txid)]
    assert line.split()[1:3] == ["prepared", "shop"]


def test_a_list_has_a_limit(cli: Cli, producer: Producer, flow: str) -> None:
    for _ in range(3):
        producer.prepare_now(flow, b"x")
    assert len(cli("tx", "list", "--limit", "2", "--json").documents) == 2


@pytest.mark.req("BEYOND-5")
@pytest.mark.parametrize(("word", "decision", "seen"), [("commit", "COMMIT", "half"), ("rollback", "ROLLBACK", "")])
def test_a_parked_half_is_settled_by_hand_and_the_record_says_by_whom_and_why(
    cli: Cli, half: Receipt, flow: str, stored: Stored, word: str, decision: str, seen: str
) -> None:
    listed = "INSERT INTO doubt (txid, pgroup, checks, parked) SELECT txid, pgroup, 15, 'out of checks' FROM half"
    stored.rows(f"{listed} WHERE txid = :t", t=half.txid)
    checks = shown(cli("tx", "show", str(half.txid), "--json"))["checks"]
    assert (checks["asked"], checks["why_parked"]) == (15, "out of checks")
    assert ["why_parked", "out", "of", "checks"] in [line.split() for line in cli("tx", "show", str(half.txid)).lines]
    said = cli("tx", word, str(half.txid), "--reason", "the shop called")
    assert (said.code, said.out) == (0, f"transaction {half.txid}: {decision} by hand\n")
    found = shown(cli("tx", "show", str(half.txid), "--json"))
    assert (found["decision"], found["from_check"], found["checks"]) == (decision, True, None)
    assert stored.value("SELECT count(*) FROM doubt WHERE txid = :t", t=half.txid) == 0
    (record,) = found["history"]
    assert (record["who"], record["why"]) == (os_user(), "the shop called")
    messages = cli("tail", flow, "--json").documents
    assert "".join(message["body"] for message in messages) == seen
    assert cli("tx", word, str(half.txid), "--reason", "again").out.endswith("was already decided\n")


@pytest.mark.req("RMQ-92")
def test_the_other_decision_is_refused_afterwards(cli: Cli, half: Receipt) -> None:
    assert cli("tx", "rollback", str(half.txid), "--reason", "r", "--json").document == {
        "txid": half.txid,
        "decision": "ROLLBACK",
        "by_hand": True,
    }
    said = cli("tx", "commit", str(half.txid), "--reason", "changed my mind")
    assert (said.code, said.out) == (5, "")
    assert said.complaint == f"txsaga: transaction {half.txid} is already decided: ROLLBACK"


def test_a_keyed_transaction_is_found_by_its_id_and_rolled_back(cli: Cli, producer: Producer, flow: str) -> None:
    key = f"[bold]{flow}[/] :smile:\n"  # nothing of that may change how a table looks
    tx = producer.transaction(key=key)
    tx.__enter__()
    tx.send(flow, b"never")
    assert tx.id is not None
    found = shown(cli("tx", "show", tx.id, "--json"))
    assert (found["state"], found["key"], found["epoch"]) == ("active", key, 1)
    assert f"[bold]{flow}[/] :smile:\\n" in cli("tx", "list").out
    refused = cli("tx", "commit", tx.id, "--reason", "r")
    assert refused.code == 5
    assert "only its owner can seal it" in refused.complaint
    assert cli("tx", "rollback", tx.id, "--reason", "the owner died").code == 0
    assert shown(cli("tx", "show", tx.id, "--json"))["state"] == "rolled_back"


def test_the_id_of_a_message_leads_to_its_transaction(cli: Cli, topic: str) -> None:
    cli("send", topic, "x")
    (message,) = cli("tail", topic, "--json").documents
    found = shown(cli("tx", "show", message["id"], "--json"))
    assert found["id"] == message["tx_id"]
    assert found["halves"][0]["topic"] == topic
    shown_to_people = cli("tx", "show", message["id"]).out
    assert re.search(rf"^id +{message['tx_id']}$", shown_to_people, re.M)
    assert re.search(rf"^{topic} +\d", shown_to_people, re.M)


@pytest.mark.parametrize("word", ["show", "commit", "rollback"])
def test_what_is_not_there_is_not_found(cli: Cli, broker: Broker, word: str) -> None:
    elsewhere = StoreId(broker.identity.uuid, broker.identity.incarnation + 1).transaction(1)
    reason = () if word == "show" else ("--reason", "r")
    for id in ("999999999", str(2**70), "nonsense", elsewhere, f"{elsewhere}-0-0-1-0-0", "-".join("abc")):
        said = cli("tx", word, id, *reason)
        assert (said.code, said.out) == (4, ""), id
        assert said.complaint.startswith("txsaga: ")


def test_a_decision_by_hand_wants_a_reason(cli: Cli, half: Receipt) -> None:
    assert cli("tx", "commit", str(half.txid)).code == 2
    assert cli("tx", "commit", str(half.txid), "--reason", " ").code == 3
    assert shown(cli("tx", "show", str(half.txid), "--json"))["decision"] is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """A half whose local work committed, and whose producer died before it could say so."""

    txid: int
    home: str
    bill: str


@pytest.fixture
def orphan(own_url: str, foreign_databases: Callable[[], str]) -> Iterator[Orphan]:
    """Give an orphan in a namespace of its own."""
    bill = foreign_databases()
    with txsaga.connect(own_url, resources={"billing": create_engine(bill, poolclass=NullPool)}, roles=False) as broker:
        store, (resource, evidence) = broker.kernel.store, broker.kernel.resource("billing")
        (qid,) = broker.create_topic("orders", "transaction", queues=1).qids
        (receipt,) = store.halves.write([Half(new_group(store), [row(qid, "paid")], resource.id)], ()).receipts
        txid = answered(receipt).txid
        with evidence.work(store.registry.identity.transaction(txid)):
            pass
        stored = Stored(own_url)
        stored.let_pass(60)
        Dispatcher(broker.kernel).run_once()  # what no dispatcher has passed is too young for a check
        stored.let_pass(60)
        yield Orphan(txid=txid, home=own_url, bill=bill)


@pytest.mark.req("RMQ-10", "BEYOND-5")
def test_one_round_settles_by_the_evidence_of_a_resource(bare: Cli, orphan: Orphan) -> None:
    lost = bare("tx", "settle", TXSAGA_URL=orphan.home)
    assert (lost.code, lost.out) == (0, "0 settled, 0 asked, 1 undecided, 0 of them parked\n")
    assert f"NO_ANSWER for transaction {orphan.txid}" in lost.complaint
    Stored(orphan.home).let_pass(90)
    env = {"TXSAGA_URL": orphan.home, "TXSAGA_RESOURCE_BILLING": orphan.bill}
    assert shown(bare("tx", "settle", "--json", **env)) == {
        "settled": 1,
        "asked": 0,
        "undecided": 0,
        "parked": 0,
    }
    assert bare("tail", "orders", **env).out.endswith(" paid\n")


@pytest.mark.rule("R10")
def test_the_evidence_is_looked_at_where_it_is_asked_for_and_can_be_reached(bare: Cli, orphan: Orphan) -> None:
    def work(*words: str, **env: str) -> tuple[str, str]:
        steps = bare("tx", "show", str(orphan.txid), "--json", *words, TXSAGA_URL=orphan.home, **env).document
        (step,) = [step for step in steps["timeline"]["steps"] if step["lane"] == "billing"]
        return step["kind"], step["why"]

    assert work() == ("undo held", "it was not checked whether it committed")
    assert work("--evidence")[0] == "undo held"
    assert "billing" in work("--evidence")[1]
    assert work("--evidence", TXSAGA_RESOURCE_BILLING=orphan.bill) == ("final change", "the evidence row exists")


@pytest.mark.req("BEYOND-5")
@pytest.mark.rule("R10")
def test_by_hand_nobody_contradicts_the_evidence_unasked(bare: Cli, orphan: Orphan) -> None:
    words = ("tx", "rollback", str(orphan.txid), "--reason", "r", "--url", orphan.home)
    unreadable = bare(*words)
    assert (unreadable.code, "can't be read" in unreadable.complaint) == (5, True)
    refused = bare(*words, TXSAGA_RESOURCE_BILLING=orphan.bill)
    assert (refused.code, "committed" in refused.complaint) == (5, True)
    assert bare(*words, "--force", TXSAGA_RESOURCE_BILLING=orphan.bill).code == 0


def test_the_record_names_the_account_and_not_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("USER", "LOGNAME", "USERNAME"):
        monkeypatch.setenv(name, "somebody-else")
    assert not os_user().startswith("somebody-else@")

    def nobody(uid: int) -> str:
        raise KeyError(uid)

    assert os_user(nobody).startswith("uid ")


@pytest.mark.req("RMQ-52")
def test_new_transactions_are_switched_off_and_on(bare: Cli, own_url: str) -> None:
    env = {"TXSAGA_URL": own_url}
    with txsaga.connect(own_url, roles=False, env={}) as broker:
        broker.create_topic("flow", "transaction", queues=1)
        producer = broker.producer("shop", checker=lambda question: None)
        off = bare("tx", "reject", "on", **env)
        assert (off.code, off.out) == (0, "new transactions are rejected\n")
        assert bare("status", "--json", **env).document["rejects_transactions"] is True
        for key in (None, "order-42"):
            with pytest.raises(TransactionsRejected), producer.transaction(key=key) as tx:
                tx.send("flow", b"x")
        assert shown(bare("tx", "reject", "off", "--json", **env)) == {"rejects_transactions": False}
        with producer.transaction(key="order-42") as tx:
            tx.send("flow", b"x")
    assert bare("tx", "reject", "maybe", **env).code == 2


@pytest.mark.parametrize("value", ["inf", "nan", "1e300"])
def test_a_minimum_age_has_an_end(cli: Cli, value: str) -> None:
    said = cli("tx", "settle", "--min-age", value)
    assert said.code == 2
    assert "--min-age" in said.complaint
