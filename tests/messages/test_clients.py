"""What clients of half messages in other languages rely on, each in its shape here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from queue import Queue
from typing import TypeVar

import pytest

from tests.scene.fake_store import FakeHalves
from tests.scene.shop import NEWS, ORDERS, Shop, order, says
from txsaga import COMMIT, Decision
from txsaga.core.batch_future import BatchFuture
from txsaga.core.batcher import Batcher
from txsaga.core.records import DecisionOutcome, End, Receipt
from txsaga.errors import EndRefused, StoreBusy, TopicTypeMismatch, TransactionClosed
from txsaga.messages.producer import Producer

T = TypeVar("T")
Way = Callable[[Producer, Receipt], DecisionOutcome]
ENDS: dict[Decision, Way] = {
    Decision.COMMIT: lambda producer, receipt: producer.commit(receipt),
    Decision.ROLLBACK: lambda producer, receipt: producer.roll_back(receipt),
}
STATES = {Decision.COMMIT: "committed", Decision.ROLLBACK: "rolled_back"}


@pytest.mark.conf("RC-J1", "RC-C1", "RC-R3")
def test_a_message_added_to_a_transaction_is_a_half(shop: Shop) -> None:
    with shop.producer().transaction() as tx:
        tx.send(ORDERS, b"a chair", key="42")
        tx.prepare()
        assert tx.txid is not None
        assert (shop.view(tx.txid).flag, shop.view(tx.txid).prepared) == ("NOT", True)
    with pytest.raises(TopicTypeMismatch), shop.producer().transaction() as tx:
        tx.send(NEWS, b"fresh chairs")
    assert len(shop.listed()) == 1


@pytest.mark.conf("RC-J2", "RC-C2")
def test_a_transaction_holds_any_number_of_messages(shop: Shop) -> None:
    """Elsewhere the second message is an error; here all of them stand under one decision."""
    with shop.producer().transaction() as tx:
        for n in range(3):
            tx.send(ORDERS, str(n).encode())
        tx.send_many(ORDERS, [b"3", b"4"])
    assert sorted(shop.bodies()) == ["0", "1", "2", "3", "4"]
    assert len(shop.listed()) == 1


@pytest.mark.conf("RC-J3", "RC-J7", "RC-J8", "RC-C3", "RC-C7", "RC-C8", "RC-G1", "RC-G2", "RC-G3", "RC-R1", "RC-R2")
@pytest.mark.parametrize("decision", Decision)
def test_a_receipt_ends_its_half_and_the_answer_is_passed_on(shop: Shop, decision: Decision) -> None:
    producer = shop.producer()
    receipt = producer.prepare_now(ORDERS, b"a chair")
    assert ENDS[decision](producer, receipt) == DecisionOutcome(receipt.txid, decision, True)
    assert ENDS[decision](producer, receipt) == DecisionOutcome(receipt.txid, decision, False)
    assert shop.state(receipt.txid) == STATES[decision]
    assert len(shop.read()) == (decision is Decision.COMMIT)


@pytest.mark.conf("RC-J4", "RC-C4")
@pytest.mark.parametrize("decision", Decision)
def test_a_foreign_receipt_is_refused(shop: Shop, decision: Decision) -> None:
    bank, receipt = shop.producer("bank"), shop.producer("shop").prepare_now(ORDERS, b"a chair")
    with pytest.raises(EndRefused, match="producer group wrong"):
        ENDS[decision](bank, receipt)
    assert shop.state(receipt.txid) == "prepared"


@pytest.mark.conf("RC-J5", "RC-J6", "RC-C5", "RC-C6", "RC-G5")
@pytest.mark.parametrize("decision", Decision)
def test_there_is_no_end_before_a_send(shop: Shop, decision: Decision) -> None:
    """Elsewhere an illegal state; here an end needs a receipt, and an empty block decides nothing."""
    producer = shop.producer()
    receipt = producer.prepare_now(ORDERS, b"a chair")
    with pytest.raises(EndRefused, match="half not found"):
        ENDS[decision](producer, receipt._replace(txid=receipt.txid + 1))
    with producer.transaction() as tx:
        pass
    assert (tx.decision, tx.txid) == (None, None)
    assert len(shop.listed()) == 1


@pytest.mark.conf("RC-P1", "RC-R4")
def test_begin_send_commit_is_one_end(moody_shop: Shop, halves: FakeHalves) -> None:
    producer = moody_shop.mq_producer()
    with producer.transaction() as tx:
        tx.send(order())
    producer.send_message_in_transaction(order(), executor=says(COMMIT))
    assert tx.decision is Decision.COMMIT
    assert [end.decision for end in halves.ends] == [Decision.COMMIT, Decision.COMMIT]
    with pytest.raises(TransactionClosed):
        tx.send(order())


@pytest.mark.conf("RC-X2", "CLI-04")
def test_the_answer_of_an_end_calls_back(shop: Shop) -> None:
    producer = shop.producer()
    called: Queue[DecisionOutcome] = Queue()
    receipt = producer.prepare_now(ORDERS, b"a chair")
    producer.decide(receipt, Decision.COMMIT).add_done_callback(lambda done: called.put(done.result()))
    assert called.get(timeout=10) == DecisionOutcome(receipt.txid, Decision.COMMIT, True)


@pytest.mark.conf("RC-X2")
def test_an_end_can_be_awaited(shop: Shop) -> None:
    producer = shop.producer()

    async def sell(count: int) -> list[DecisionOutcome]:
        receipts = await asyncio.gather(*(wait(producer.prepare(ORDERS, b"")) for _ in range(count)))
        return await asyncio.gather(*(wait(producer.decide(each, Decision.COMMIT)) for each in receipts))

    standings = asyncio.run(sell(20))
    assert all(standing.won for standing in standings)
    assert len(shop.read()) == 20


async def wait(pending: BatchFuture[T]) -> T:
    return await pending


@pytest.mark.conf("BRK-12")
def test_a_decision_that_finds_no_place_is_refused_and_not_dropped(moody_shop: Shop, halves: FakeHalves) -> None:
    """A full buffer of ops writes past itself elsewhere; here the caller is told, and may try again."""
    producer = moody_shop.producer()
    receipts = [producer.prepare_now(ORDERS, b"") for _ in range(3)]
    batcher: Batcher[End, DecisionOutcome] = Batcher(
        "decide", lambda ends: halves.write((), ends).standings, limit=1, capacity=1, patience=0.05
    )
    ends = [End(each.txid, each.group, each.token, Decision.COMMIT) for each in receipts]
    halves.open.clear()
    taken = [batcher.submit(ends[0])]
    assert halves.entered.wait(10)
    taken.append(batcher.submit(ends[1]))
    with pytest.raises(StoreBusy, match="1 calls wait"):
        batcher.submit(ends[2])
    halves.open.set()
    assert [pending.result(10).won for pending in taken] == [True, True]
    assert moody_shop.pending() == [receipts[2].txid]
    assert producer.commit(receipts[2]).won
    batcher.close()
