"""What was rolled back is replayed once, in a transaction that is linked to it; nothing else is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine

from tests.contracts.samples import PATIENCE, start
from tests.oracle import MemoryStore
from tests.scene.fake_store import FakeStore, broker_on
from tests.scene.shop import ORDERS, Shop, order
from tests.scene.stored import Stored
from txsaga.core.decision import Decision
from txsaga.errors import (
    AlreadyCommitted,
    ConfigError,
    InDoubt,
    InvalidMessage,
    NotCarried,
    OutcomeUnknown,
    TransactionError,
    TransactionsRejected,
    UnknownTransaction,
)
from txsaga.flows.ballot import Ballot, CastVote
from txsaga.messages.decide import DecidedBy
from txsaga.messages.ledger_store import Ledger, Ledgers
from txsaga.messages.replay import Replays, Resent

pytestmark = [pytest.mark.req("IBM-65"), pytest.mark.postgres]


class Failed(Exception):
    """What a block raises."""


@pytest.fixture
def billed(shop: Shop, tmp_path: Path) -> Iterator[Shop]:
    """Give a shop with a database for local work."""
    engine = create_engine(f"sqlite:///{tmp_path}/billing.db", poolclass=NullPool)
    shop.broker.register("billing", engine)
    yield shop
    engine.dispose()


def failed_half(shop: Shop, text: str = "a chair") -> int:
    """Roll a half back."""
    receipt = shop.producer().prepare_now(ORDERS, text.encode())
    shop.producer().roll_back(receipt)
    return receipt.txid


def failed_work(shop: Shop, key: str | None = "order-42") -> int:
    """Fail in local work, behind the end of a transaction."""
    with suppress(Failed), shop.producer().transaction(key=key) as tx:
        tx.send(order("a chair", tag="wood"))
        tx.send(order("a table"))
        with tx.local("billing"):
            raise Failed
    assert tx.txid is not None
    assert tx.decision is Decision.ROLLBACK
    return tx.txid


def test_the_messages_of_a_half_come_again_in_a_new_transaction(shop: Shop) -> None:
    txid = failed_half(shop)
    assert shop.bodies() == []
    done = shop.broker.replay(txid, who="anna", why="the shop called")
    assert (done.txid, done.again, done.key) == (txid, False, None)
    assert [resent.topic for resent in done.messages] == [ORDERS]
    assert done.replayed_as is not None
    (message,) = shop.read()
    assert (message.text(), message.half.txid) == ("a chair", done.replayed_as)
    assert (shop.state(txid), shop.state(done.replayed_as)) == ("rolled_back", "committed")


def test_either_transaction_leads_to_the_other_and_says_who_and_why(shop: Shop) -> None:
    txid = failed_half(shop)
    new = shop.broker.replay(txid, who="anna", why="the shop called").replayed_as
    assert new is not None
    old, made = shop.store.overview.trace(txid), shop.store.overview.trace(new)
    assert old is not None and made is not None
    assert (old.replayed_as, made.replays) == (new, txid)
    said = {(each.what, each.who, each.why) for each in (*old.audits, *made.audits)}
    assert said == {(what, "anna", "the shop called") for what in ("REPLAYED", "REPLAY", "COMMIT")}


def test_a_second_replay_is_told_of_the_first_and_sends_nothing(shop: Shop) -> None:
    txid = failed_half(shop)
    first = shop.broker.replay(txid)
    second = shop.broker.replay(txid, key="another")
    assert (second.replayed_as, second.again, second.key) == (first.replayed_as, True, None)
    assert shop.bodies() == ["a chair"]


@pytest.mark.req("CARD-08")
def test_messages_that_a_gate_or_a_voter_refused_are_not_replayed(billed: Shop) -> None:
    txid = failed_work(billed)
    with billed.store.ledgers.open() as ledger:
        ledger.call(txid, Ballot(name="rows", voters=("gate",)))
        ledger.cast(txid, "rows", CastVote(voter="gate", yes=False, evidence={"why": "two rows are the same"}))
    for dry_run in (True, False):
        with pytest.raises(NotCarried, match="ballot 'rows' is not carried: gate did not vote yes"):
            billed.broker.replay(txid, dry_run=dry_run)
    assert billed.bodies() == []


def test_what_is_undecided_is_refused_before_its_ballots_are_looked_at(billed: Shop) -> None:
    receipt = billed.producer().prepare_now(ORDERS, b"a chair")
    with billed.store.ledgers.open() as ledger:
        ledger.call(receipt.txid, Ballot(name="rows", voters=("gate",)))
    with pytest.raises(TransactionError, match="is undecided; only rolled-back transactions"):
        billed.broker.replay(receipt.txid)


@pytest.mark.rule("R14")
def test_many_replays_at_once_are_one(shop: Shop) -> None:
    txid = failed_half(shop)
    calls = [start(lambda: shop.broker.replay(txid)) for _ in range(8)]
    done = [call.result(PATIENCE) for call in calls]
    assert len({each.replayed_as for each in done}) == 1
    assert [each.again for each in done].count(False) == 1
    assert shop.bodies() == ["a chair"]


@pytest.mark.rule("R14")
@pytest.mark.parametrize("turn", range(3))
def test_many_replays_of_one_key_at_once_are_one(billed: Shop, turn: int) -> None:
    txid = failed_work(billed)
    calls = [start(lambda: billed.broker.replay(txid)) for _ in range(12)]
    assert len({call.result(PATIENCE).replayed_as for call in calls}) == 1
    assert sorted(billed.bodies()) == ["a chair", "a table"]


@pytest.mark.rule("R14")
def test_a_replay_whose_answer_was_lost_is_found_and_not_done_twice() -> None:
    class Forgetful(Ledgers):
        """Ledgers that lose the answer of their first COMMIT behind which a replay stands."""

        def __init__(self, real: Ledgers) -> None:
            self._real, self.lost = real, 0

        @contextmanager
        def open(self) -> Iterator[Ledger]:
            with self._real.open() as ledger:
                yield ledger
                done = ledger.replay_of(receipt.txid) is not None
            if done and not self.lost:
                self.lost += 1
                raise OutcomeUnknown("the connection broke at COMMIT")

    store = FakeStore(MemoryStore())
    shop = Shop(broker_on(store), lambda _: None)
    receipt = shop.producer().prepare_now(ORDERS, b"a chair")
    shop.producer().roll_back(receipt)
    store.ledgers = forgetful = Forgetful(store.ledgers)
    done = shop.broker.replay(receipt.txid)
    assert (forgetful.lost, shop.bodies()) == (1, ["a chair"])
    assert [view.txid for view in shop.listed() if view.txid != receipt.txid] == [done.replayed_as]
    shop.broker.close()


@pytest.mark.rule("R4")
def test_a_key_goes_on_so_a_retry_of_the_program_adds_nothing(billed: Shop) -> None:
    txid = failed_work(billed)
    done = billed.broker.replay(txid)
    assert done.key == "order-42"
    assert sorted(billed.bodies()) == ["a chair", "a table"]
    with pytest.raises(AlreadyCommitted), billed.producer().transaction(key="order-42"):
        pass


def test_another_key_leaves_the_old_one_to_a_retry(billed: Shop) -> None:
    done = billed.broker.replay(failed_work(billed), key="order-42-by-hand")
    assert done.key == "order-42-by-hand"
    with billed.producer().transaction(key="order-42") as tx:
        tx.send(order("a bench"))
    assert sorted(billed.bodies()) == ["a bench", "a chair", "a table"]


def test_what_a_retry_has_done_meanwhile_is_not_replayed(billed: Shop) -> None:
    txid = failed_work(billed)
    with billed.producer().transaction(key="order-42") as tx:
        tx.send(order("a chair"))
    with pytest.raises(AlreadyCommitted):
        billed.broker.replay(txid)
    assert billed.bodies() == ["a chair"]


def test_a_key_that_somebody_works_under_is_left_to_them(billed: Shop) -> None:
    txid = failed_work(billed)
    billed.producer().transaction(key="order-42").__enter__()
    with pytest.raises(InDoubt, match="order-42"):
        billed.broker.replay(txid)


def test_what_a_replay_can_not_do_is_said_before(billed: Shop) -> None:
    with suppress(Failed), billed.producer().transaction() as tx:
        tx.send(order("a chair"))
        tx.later(ORDERS)
        with tx.local("billing"):
            raise Failed
    assert tx.txid is not None
    left = "\n".join(billed.broker.replay(tx.txid, dry_run=True).left_out)
    assert all(what in left for what in ("local work in billing", "late body 1 to orders/", "offsets it consumed"))


def test_a_dry_run_only_tells(shop: Shop) -> None:
    txid = failed_half(shop)
    before = shop.listed()
    plan = shop.broker.replay(txid, dry_run=True)
    assert (plan.replayed_as, plan.again) == (None, False)
    assert plan.messages == (Resent(ORDERS, plan.messages[0].queue, 1),)
    assert shop.listed() == before
    assert shop.bodies() == []


def test_only_what_was_rolled_back_is_replayed(shop: Shop) -> None:
    producer = shop.producer()
    committed, undecided = (producer.prepare_now(ORDERS, body) for body in (b"good", b"open"))
    producer.commit(committed)
    for txid, why in ((committed.txid, "was committed"), (undecided.txid, "is undecided")):
        with pytest.raises(TransactionError, match=why):
            shop.broker.replay(txid)
    with pytest.raises(UnknownTransaction):
        shop.broker.replay(99_999)
    assert shop.bodies() == ["good"]


@pytest.mark.rule("R1")
def test_what_its_owner_never_closed_is_not_replayed(shop: Shop) -> None:
    tx = shop.producer().transaction(key="order-42")
    tx.__enter__()
    tx.send_many(ORDERS, [b"a chair" * 100_000] * 12)  # some of it is stored before the end
    with pytest.raises(Failed):
        try:
            raise Failed
        except Failed as failed:
            tx.__exit__(Failed, failed, None)
            raise
    assert tx.txid is not None and shop.store.halves.views(tx.txid)
    with pytest.raises(TransactionError, match="never sealed"):
        shop.broker.replay(tx.txid)


def test_a_message_for_later_that_was_recalled_is_not_replayed(shop: Shop) -> None:
    shop.broker.create_topic("reminders", "delay", queues=1)
    calendar = shop.broker.producer("calendar")
    receipt = calendar.send("reminders", b"the dentist", delay=timedelta(hours=1))
    calendar.recall(receipt)
    with pytest.raises(TransactionError, match="was a delayed message"):
        shop.broker.replay(receipt.txid)


def test_a_store_that_takes_no_transactions_takes_no_replay(shop: Shop) -> None:
    txid = failed_half(shop)
    shop.broker.reject_transactions(True)
    with pytest.raises(TransactionsRejected):
        shop.broker.replay(txid)
    shop.broker.reject_transactions(False)
    assert not shop.broker.replay(txid).again


def test_a_replay_wants_a_reason_a_number_and_a_key_that_is_one(shop: Shop) -> None:
    txid = failed_half(shop)
    with pytest.raises(ConfigError, match="give a reason"):
        shop.broker.replay(txid, why=" ")
    with pytest.raises(ConfigError, match="txid"):
        shop.broker.replay("7")  # type: ignore[arg-type]
    with pytest.raises(InvalidMessage, match="key"):
        shop.broker.replay(txid, key="")
    assert shop.bodies() == []


def test_messages_that_go_in_this_moment_are_not_replayed(shop: Shop, stored: Stored) -> None:
    txid = failed_half(shop)
    trace = shop.store.overview.trace(txid)
    assert trace is not None
    replays = Replays(shop.broker.kernel)
    plan = replays.plan(txid)
    stored.rows("DELETE FROM half WHERE txid = :t", t=txid)  # as a dropped partition does
    with pytest.raises(UnknownTransaction, match="were deleted"):
        replays.make(trace, plan, DecidedBy(who="anna", why="the shop called"))
    assert [view.txid for view in shop.listed()] == []
