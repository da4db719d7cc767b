"""R14: batches are sorted, wait for no lock for long, decide only what is there, and are looked up when unanswered.

Without it: overlapping batches deadlock; one open decision stalls a whole batch; a decision for a number that
nobody has yet pre-decides its later owner; a batch whose COMMIT was not answered is stored twice.
"""

from collections.abc import Iterator

import pytest
from sqlalchemy import make_url, text

import txsaga
from tests.contracts.samples import COMMIT, PATIENCE, ROLLBACK, end_of, row, start
from tests.scene.gate import gate
from tests.scene.patience import eventually
from tests.scene.probe import Probe
from tests.scene.proxy import Proxy, proxied
from tests.scene.rules import OpenBroker, read
from txsaga.broker import Broker
from txsaga.core.decision import Decision
from txsaga.core.records import DecisionOutcome, End, Half
from txsaga.core.topic import SendKind
from txsaga.errors import EndRefused, OutcomeUnknown, StoreError, StoreUnavailable, UnknownTransaction
from txsaga.messages import halves_store as hot_batch
from txsaga.messages.hot_statements import TOKEN
from txsaga.messages.producer import Producer
from txsaga.store import connection

pytestmark = [pytest.mark.rule("R14"), pytest.mark.postgres]


@pytest.fixture
def wire(store_url: str) -> Iterator[Proxy]:
    """Give a wire to the server of the store."""
    port = make_url(store_url).port
    assert port is not None
    with proxied(port) as proxy:
        yield proxy


@pytest.fixture
def far(store_url: str, broker: Broker, wire: Proxy) -> Iterator[Broker]:
    """Give a broker at the other end of the wire; it has sent before, so its statements are prepared."""
    url = make_url(store_url).set(port=wire.port).render_as_string(hide_password=False)
    opened = txsaga.connect(url, roles=False, answering=False)
    opened.create_topic("paid", queues=1)
    yield opened
    opened.close()


@pytest.fixture
def far_shop(far: Broker) -> Producer:
    """Give a producer at the other end of the wire."""
    seller = far.producer("shop", checker=lambda _: None)
    seller.commit(seller.prepare_now("orders", b"first"))
    return seller


# The order


def test_batches_that_overlap_in_another_order_do_not_deadlock(
    open_broker: OpenBroker, seller: Producer, probe: Probe
) -> None:
    one, two = (end_of(seller.prepare_now("orders", body), COMMIT) for body in (b"a", b"b"))
    rivals = [open_broker().kernel.store.halves for _ in range(2)]
    with gate(probe, "INSERT", "op", first=False) as second_row:
        deciding = [start(lambda: rivals[0].write((), [one, two]))]
        (pid,) = second_row.wait()
        deciding.append(start(lambda: rivals[1].write((), [two, one])))
        eventually(lambda: probe.blocked_by(pid) or len(second_row.waiting()) == 2, "the rivals meet")
        second_row.open()
        answers = [decision.result(PATIENCE) for decision in deciding]
    won = [[isinstance(answer, DecisionOutcome) and answer.won for answer in each.standings] for each in answers]
    assert won == [[True, True], [False, False]]


def test_an_open_decision_of_somebody_else_holds_up_its_own_item_only(
    open_broker: OpenBroker, seller: Producer, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connection.SESSION, "lock_timeout", "700ms")
    busy, *receipts = [seller.prepare_now("orders", b"%d" % turn) for turn in range(4)]
    hasty = open_broker().producer("shop", checker=lambda _: None)
    with probe.session() as somebody, gate(probe, "INSERT", "op", when=f"NEW.txid = {busy.txid}") as shut:
        somebody.execute(text(f"INSERT INTO op (txid, decision) VALUES ({receipts[1].txid}, 1)"))
        first = hasty.decide(busy, COMMIT)
        shut.wait()
        batch = [hasty.decide(receipt, COMMIT) for receipt in receipts]
        shut.open()
        assert first.result(PATIENCE).won
        assert [batch[at].result(PATIENCE).won for at in (0, 2)] == [True, True]
        with pytest.raises(StoreUnavailable, match="lock timeout"):
            batch[1].result(PATIENCE)
    assert hasty.decide(receipts[1], ROLLBACK).result(PATIENCE).won


# What may be decided


def true_token(probe: Probe, group: int, txid: int) -> bytes:
    """Return what the store would give out for a group and a number."""
    token = probe.value(f"SELECT {TOKEN.format(s=probe.namespace, group=group, txid=txid)}")
    return bytes(token)


def test_a_number_that_nobody_has_yet_is_not_decided_beforehand(broker: Broker, seller: Producer, probe: Probe) -> None:
    known = seller.prepare_now("orders", b"known")
    txid = known.txid + 1
    future = End(txid, known.group, true_token(probe, known.group, txid), COMMIT)
    (refused,) = broker.kernel.store.halves.write((), [future]).standings
    assert isinstance(refused, EndRefused)
    assert seller.prepare_now("orders", b"later").txid == future.txid
    assert (read(broker), probe.value("SELECT count(*) FROM op")) == ([], 0)


@pytest.mark.parametrize("decision", list(Decision))
def test_a_half_is_decided_with_its_own_group_and_token_only(
    broker: Broker, seller: Producer, probe: Probe, decision: Decision
) -> None:
    mine, other = seller.prepare_now("orders", b"mine"), seller.prepare_now("orders", b"other")
    stranger = broker.producer("stranger", checker=lambda _: None).group.id
    strange = end_of(mine, decision)._replace(group=stranger, token=true_token(probe, stranger, mine.txid))
    wrong_group, wrong_token, right = broker.kernel.store.halves.write(
        (),
        [
            strange,
            end_of(mine, decision)._replace(token=other.token),
            end_of(other, decision),
        ],
    ).standings
    assert isinstance(wrong_group, EndRefused)
    assert isinstance(wrong_token, UnknownTransaction)
    assert isinstance(right, DecisionOutcome)
    assert probe.rows("SELECT txid FROM op") == [(other.txid,)]


# Unanswered


def test_a_half_whose_answer_was_lost_is_stored_once(wire: Proxy, far_shop: Producer, probe: Probe) -> None:
    wire.lose_answer()
    receipt = far_shop.prepare_now("orders", b"a")
    assert wire.lost.is_set()
    assert probe.rows("SELECT txid FROM half ORDER BY txid") == [(receipt.txid - 1,), (receipt.txid,)]
    assert far_shop.commit(receipt).won


def test_a_plain_message_whose_answer_was_lost_is_stored_once(wire: Proxy, far: Broker) -> None:
    bank = far.producer("bank")
    bank.send("paid", b"first")
    wire.lose_answer()
    bank.send("paid", b"a")
    assert wire.lost.is_set()
    assert read(far, "paid") == [b"first", b"a"]


def test_a_decision_whose_answer_was_lost_stands(wire: Proxy, far: Broker, far_shop: Producer) -> None:
    receipt = far_shop.prepare_now("orders", b"a")
    wire.lose_answer()
    assert far_shop.commit(receipt).decision is COMMIT
    assert wire.lost.is_set()
    assert read(far) == [b"first", b"a"]


def test_a_keyed_decision_whose_commit_was_not_answered_is_asked_for_again(
    wire: Proxy, far: Broker, far_shop: Producer, probe: Probe
) -> None:
    with far_shop.transaction(key="order-1") as tx:
        tx.send("orders", b"a")
        tx.prepare()
        wire.lose_answer(b"Q\x00\x00\x00\x0bCOMMIT")  # the statement, not the word in the audit row
    assert wire.lost.is_set()
    assert tx.decision is COMMIT
    assert probe.value("SELECT count(*) FROM event") == 1
    assert read(far) == [b"first", b"a"]


def test_a_statement_that_was_killed_before_its_commit_is_run_again(far_shop: Producer, probe: Probe) -> None:
    with gate(probe, "INSERT", "half") as shut:
        preparing = start(lambda: far_shop.prepare_now("orders", b"a"))
        (pid,) = shut.wait()
        probe.run("SELECT pg_terminate_backend(:pid, 5000)", pid=pid)
        shut.open()
        receipt = preparing.result(PATIENCE)
    assert probe.value("SELECT count(*) FROM half WHERE txid >= :txid", txid=receipt.txid) == 1
    assert probe.value("SELECT count(*) FROM half") == 2


def test_a_backend_that_works_on_a_lost_batch_is_ended_before_anybody_looks(
    wire: Proxy, far_shop: Producer, probe: Probe
) -> None:
    with gate(probe, "INSERT", "half") as shut:
        preparing = start(lambda: far_shop.prepare_now("orders", b"a"))
        (lost,) = shut.wait()
        wire.cut_clients()
        eventually(lambda: [pid for pid in shut.waiting() if pid != lost], "the batch is sent again")
        shut.open()
        preparing.result(PATIENCE)
        busy = "SELECT FROM pg_stat_activity WHERE pid = :pid AND state <> 'idle'"
        eventually(lambda: not probe.rows(busy, pid=lost), "the lost backend is done")
    assert probe.value("SELECT count(*) FROM half") == 2


def test_a_batch_that_could_not_be_looked_up_is_unknown_and_not_stored_item_by_item(
    wire: Proxy, far: Broker, far_shop: Producer, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hot_batch, "PATIENCE", 0.0)
    two = Half(far_shop.group.id, [row(far.kernel.topics.open("orders", SendKind.HALF).qids[0], "before")])
    far.kernel.store.halves.write([two, two], ())  # from now on the statement for many is prepared, too
    with gate(probe, "INSERT", "half") as shut:
        wire.lose_answer(skip=1)
        wire.refuse(1)
        busy = far_shop.prepare("orders", b"busy")
        shut.wait()
        batch = [far_shop.prepare("orders", body) for body in (b"a", b"b")]
        shut.open()
        assert busy.result(PATIENCE).txid
    for call in batch:
        with pytest.raises(OutcomeUnknown):
            call.result(PATIENCE)
    assert probe.value("SELECT count(*) FROM half") == 6


def test_an_error_with_a_state_of_somebodys_own_is_told_in_its_words(seller: Producer, probe: Probe) -> None:
    raising = "BEGIN RAISE EXCEPTION 'not on my table' USING ERRCODE = 'ZZ123'; END"
    probe.run(f"CREATE FUNCTION {probe.namespace}.mine() RETURNS trigger LANGUAGE plpgsql AS $$ {raising} $$")
    probe.run(f"CREATE TRIGGER mine BEFORE INSERT ON half FOR EACH ROW EXECUTE FUNCTION {probe.namespace}.mine()")
    with pytest.raises(StoreError, match="not on my table"):
        seller.prepare_now("orders", b"a")
    probe.run("DROP TRIGGER mine ON half")
    assert seller.commit(seller.prepare_now("orders", b"b")).won
