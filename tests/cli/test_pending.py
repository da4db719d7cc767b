"""`txsaga tx pending`, `resume` and `settle` through the entry point."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

import txsaga
from tests.cli.conftest import Cli
from tests.cli.program import Said
from tests.contracts.samples import park
from tests.scene.stored import Stored
from txsaga.broker import Broker
from txsaga.checkback.profile import CheckProfile
from txsaga.cli.options import os_user
from txsaga.consume.dispatcher import Dispatcher
from txsaga.messages.producer import Producer
from txsaga.testing.checking import check_once


class Desk:
    """A store with a shop whose checker never knows, and the commands on it."""

    def __init__(self, bare: Cli, broker: Broker, url: str) -> None:
        self.broker, self.store, self._bare, self._url = broker, broker.kernel.store, bare, url
        broker.create_topic("orders", "transaction", queues=1)
        self.shop: Producer = broker.producer("shop", checker=lambda _: None)

    def __call__(self, *words: str) -> Said:
        """Call `txsaga tx`."""
        return self._bare("tx", *words, TXSAGA_URL=self._url)

    def doubts(self, *bodies: bytes, shop: Producer | None = None) -> list[int]:
        """Store halves and have them put on the list."""
        txids = [(shop or self.shop).prepare_now("orders", body).txid for body in bodies]
        self.let_pass()
        Dispatcher(self.broker.kernel).run_once()
        self.let_pass()
        self.store.doubts.sweep(timedelta(seconds=6))
        return txids

    def let_pass(self) -> None:
        """Let a minute pass."""
        Stored(self._url).let_pass(60)

    def check(self) -> None:
        """Run a round and have its questions answered."""
        check_once(self.broker, CheckProfile(max_checks=1))


@pytest.fixture
def desk(bare: Cli, own_url: str) -> Iterator[Desk]:
    with txsaga.connect(own_url, roles=False, answering=False, env={}) as broker:
        yield Desk(bare, broker, own_url)


@pytest.mark.req("RMQ-70", "BEYOND-5")
def test_what_is_in_doubt_is_listed_with_where_it_stands(desk: Desk) -> None:
    waiting, parked = desk.doubts(b"a", b"b")
    park(desk.store, parked, "out of checks")
    first, second = desk("pending", "--json").documents
    assert (first["txid"], first["state"], first["group"], first["checks"]) == (waiting, "waiting", "shop", 0)
    assert (second["txid"], second["state"], second["why_parked"]) == (parked, "parked", "out of checks")
    assert (first["member"], second["next_check"]) == (None, None)
    assert 60 <= first["age_seconds"] < 3600
    assert first["next_check"]
    told = [line.split() for line in desk("pending").lines[1:]]
    assert [words[:3] for words in told] == [[str(waiting), "waiting", "shop"], [str(parked), "parked", "shop"]]
    assert told[1][-3:] == ["out", "of", "checks"]
    assert [each["txid"] for each in desk("pending", "--parked", "--json").documents] == [parked]
    assert [each["txid"] for each in desk("pending", "--limit", "1", "--json").documents] == [waiting]
    assert [each["txid"] for each in desk("pending", "--group", "shop", "--json").documents] == [waiting, parked]


@pytest.mark.req("BEYOND-5")
def test_who_is_asked_is_named_and_what_was_answered_is_kept(desk: Desk) -> None:
    (txid,) = desk.doubts(b"a")
    desk.check()
    shown = desk("show", str(txid), "--json").document
    (remark,) = shown["checks"]["remarks"]
    assert (remark["who"], remark["answer"]) == (desk.broker.kernel.member, "UNKNOWN")
    assert remark["why"] == "the checker said UNKNOWN"
    assert [half["topic"] for half in shown["halves"]] == ["orders"]
    people = desk("show", str(txid)).out
    assert "the checker said UNKNOWN" in people
    assert "orders" in people
    stored = Stored(desk._url)
    stored.rows("INSERT INTO question (txid, pgroup, member, patience) SELECT txid, pgroup, 'anna', '3s' FROM doubt")
    assert desk("pending", "--json").documents[0]["state"] == "asked"
    assert "asked (anna)" in desk("pending").out


@pytest.mark.req("RMQ-79", "RMQ-27", "BEYOND-5")
def test_a_parked_one_is_resumed_and_asked_from_its_first_check_on(desk: Desk) -> None:
    (txid,) = desk.doubts(b"a")
    desk.check()
    desk.let_pass()
    desk.check()
    assert desk("show", str(txid), "--json").document["state"] == "parked"
    said = desk("resume", str(txid), "--reason", "the shop is back")
    assert (said.code, said.out) == (0, f"transaction {txid} is checked again\n")
    (pending,) = desk("pending", "--json").documents
    assert (pending["state"], pending["checks"], len(pending["remarks"])) == ("waiting", 0, 1)
    record = desk("show", str(txid), "--json").document["history"][-1]
    assert (record["what"], record["who"], record["why"]) == ("RESUMED", os_user(), "the shop is back")
    desk.check()
    assert desk("show", str(txid), "--json").document["checks"]["asked"] == 1
    assert desk("show", str(txid), "--json").document["decision"] is None


@pytest.mark.req("RMQ-79")
def test_all_parked_ones_of_a_group_are_resumed_and_no_others(desk: Desk) -> None:
    bank = desk.broker.producer("bank", checker=lambda _: None)
    one, waiting, two = desk.doubts(b"a", b"b", b"c")
    (other,) = desk.doubts(b"d", shop=bank)
    for txid in (one, two, other):
        park(desk.store, txid, "out of checks")
    assert desk("resume", "--all", "--group", "shop", "--reason", "r", "--json").document == {"resumed": [one, two]}
    assert desk("resume", "--all", "--group", "shop", "--reason", "r").out == "0 resumed\n"
    found = {each["txid"]: each["state"] for each in desk("pending", "--json").documents}
    assert found == {one: "waiting", waiting: "waiting", two: "waiting", other: "parked"}


@pytest.mark.req("BEYOND-5", "RMQ-92")
@pytest.mark.parametrize(("word", "decision"), [("commit", "COMMIT"), ("rollback", "ROLLBACK")])
def test_a_doubt_is_settled_as_a_transaction_is(desk: Desk, word: str, decision: str) -> None:
    (txid,) = desk.doubts(b"a")
    park(desk.store, txid, "out of checks")
    said = desk(word, str(txid), "--reason", "paid, ticket 9", "--json")
    assert (said.code, said.document) == (0, {"txid": txid, "decision": decision, "by_hand": True})
    assert desk("show", str(txid), "--json").document["decision"] == decision
    for late in (("resume", str(txid)), ("rollback" if word == "commit" else "commit", str(txid))):
        said = desk(*late, "--reason", "r")
        assert (said.code, said.out) == (5, "")
        assert said.complaint == f"txsaga: transaction {txid} is already decided: {decision}"
    assert desk("pending", "--json").documents == []


def test_what_is_not_parked_is_not_resumed_and_what_is_young_is_not_in_doubt(desk: Desk) -> None:
    (waiting,) = desk.doubts(b"a")
    said = desk("resume", str(waiting), "--reason", "r")
    assert (said.code, "is not parked; `txsaga tx pending --parked` lists" in said.complaint) == (5, True)
    desk.shop.prepare_now("orders", b"b")
    assert [each["txid"] for each in desk("pending", "--json").documents] == [waiting]


@pytest.mark.req("BEYOND-5")
def test_one_transaction_is_settled_or_it_is_said_why_not(desk: Desk) -> None:
    (old,) = desk.doubts(b"a")
    young = desk.shop.prepare_now("orders", b"b").txid
    for txid, why in ((young, "it changed seconds ago"), (old, "only a checker, or an operator, knows")):
        said = desk("settle", str(txid), "--json")
        assert (said.code, said.document["decision"], why in said.document["why"]) == (5, None, True)
    assert desk("settle", str(young)).out.startswith(f"transaction {young} is not settled: it changed seconds ago")
    desk("rollback", str(old), "--reason", "r")
    said = desk("settle", str(old))
    assert (said.code, said.out) == (0, f"transaction {old} is decided: ROLLBACK: it is decided\n")


def test_transactions_are_listed_by_state_group_key_topic_and_time(desk: Desk) -> None:
    bank = desk.broker.producer("bank")
    desk.broker.create_topic("bills", "transaction")
    desk.broker.create_topic("late", "delay")
    parked, waiting = desk.doubts(b"a", b"b")
    park(desk.store, parked, "out of checks")
    with bank.transaction(key="k-1") as tx:
        tx.send("bills", b"c")
    other = desk.shop.prepare_now("orders", b"d")
    desk.shop.roll_back(other)

    def found(*words: str) -> list[int]:
        return [each["txid"] for each in desk("list", "--json", *words).documents]

    assert found() == [other.txid, tx.txid, waiting, parked]
    assert found("--state", "parked") == [parked]
    assert found("--state", "committed") == [tx.txid]
    assert found("--state", "rolled_back", "--state", "parked") == [other.txid, parked]
    assert found("--state", "prepared", "--limit", "1") == [waiting]
    assert found("--undecided") == [waiting, parked]
    assert found("--group", "bank") == found("--key", "k-1") == found("--topic", "bills") == [tx.txid]
    assert found("--key", "k-2") == found("--group", "bank", "--topic", "orders") == []
    later = desk.shop.send("late", b"e", delay=timedelta(hours=1))
    assert found("--state", "scheduled") == [later.txid]
    several = ("--state", "scheduled", "--state", "committed", "--state", "parked")
    assert found(*several, "--limit", "2") == [later.txid, tx.txid]
    assert found("--undecided", "--state", "committed") == []
    assert found("--undecided", *several) == [later.txid, parked]
    assert "it is a delayed message" in desk("settle", str(later.txid)).out
    assert found("--since", "50s") == [later.txid, other.txid, tx.txid]
    assert found("--since", "2020-01-01T00:00:00Z", "--limit", "1") == [later.txid]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("show", "999"), 4, "999 is not in this store"),
        (("settle", "999"), 4, "999 is not in this store"),
        (("settle", "1", "--min-age", "5"), 2, "leave out the ID"),
        (("list", "--state", "lost"), 2, "'lost' is not one of active"),
        (("list", "--group", "nobody"), 4, "producer group 'nobody' does not exist"),
        (("list", "--topic", "nothing"), 3, "nothing"),
        (("list", "--since", "yesterday"), 2, "write 15m, 12h, 30d"),
        (("list", "--since", "2026"), 2, "write 15m, 12h, 30d"),
        (("list", "--since", "2999-01-01T00:00:00Z"), 2, "in the past"),
        (("show", "9" * 5_000), 4, "9 is not in this store"),
        (("resume", "999", "--reason", "r"), 4, "999 is not in this store"),
        (("commit", "999", "--reason", "r"), 4, "999 is not in this store"),
        (("pending", "--group", "nobody"), 4, "producer group 'nobody' does not exist"),
        (("resume", "--all", "--group", "nobody", "--reason", "r"), 4, "producer group 'nobody' does not exist"),
        (("resume", "--reason", "r"), 2, "name one transaction"),
        (("resume", "1", "--all", "--group", "shop", "--reason", "r"), 2, "name one transaction"),
        (("resume", "--all", "--reason", "r"), 2, "use --group with --all"),
        (("resume", "1", "--group", "shop", "--reason", "r"), 2, "use --group with --all"),
        (("resume", "1"), 2, "--reason"),
        (("resume", "1", "--reason", " "), 3, "give a reason"),
        (("pending", "--limit", "0"), 2, "--limit"),
    ],
)
def test_a_mistake_is_one_line(cli: Cli, words: tuple[str, ...], code: int, told: str) -> None:
    said = cli("tx", *words)
    assert (said.code, said.out) == (code, "")
    assert told in said.complaint
