"""R11: consumed offsets are bound to the transaction, durably and before local work.

Without it: the claim of a message runs out in an hour-long flow, another member takes it, both commit; or the
queue is handed over while an undecided transaction holds its offsets.
"""

from contextlib import suppress
from datetime import timedelta

import pytest
from sqlalchemy import Engine

from tests.contracts.samples import drain
from tests.scene.patience import eventually
from tests.scene.probe import Probe
from tests.scene.rules import OpenBroker, batch_of, check_back, entries_in, expire, read, write_entry
from txsaga import LocalState
from txsaga.broker import Broker
from txsaga.checkback.profile import LEASE
from txsaga.consume.stream import Stream
from txsaga.errors import DecidedOtherwise, LeaseLost, OutOfOrder
from txsaga.messages.producer import Producer
from txsaga.messages.transaction import Transaction

pytestmark = [pytest.mark.rule("R11"), pytest.mark.postgres]

INTENTS = 'SELECT qid, start, "end", txid FROM intent'


@pytest.fixture
def paid(broker: Broker) -> tuple[int, ...]:
    """Give the four queues of a topic, with two messages in each."""
    broker.create_topic("paid", queues=4)
    bank = broker.producer("bank")
    for turn in range(8):
        bank.send("paid", b"%d" % turn)
    drain(broker.kernel.store)
    return broker.kernel.store.registry.topic("paid").qids


def member(broker: Broker, name: str, ttl: float = 60) -> Stream:
    return broker.stream("billing", ["paid"], member=name, ttl=timedelta(seconds=ttl))


@pytest.fixture
def bound(broker: Broker, seller: Producer, paid: tuple[int, ...]) -> Transaction:
    """Give an open transaction of member anna that consumed the first message of the first queue."""
    anna = member(broker, "anna")
    tx = seller.transaction().__enter__()
    tx.consume(anna, batch_of(anna, paid[0]))
    tx.send("orders", b"a")
    return tx


def test_a_bound_queue_is_not_given_up_before_the_decision(
    open_broker: OpenBroker, broker: Broker, seller: Producer, paid: tuple[int, ...]
) -> None:
    anna, berta = member(broker, "anna", ttl=3), member(open_broker(), "berta", ttl=3)
    with seller.transaction() as tx:
        tx.consume(anna, batch_of(anna, paid[1]))
        eventually(lambda: (anna.poll(), berta.poll(), paid[3] in berta.claims)[2], "the free queue changes hands")
        assert sorted(berta.claims) == [paid[3]]
        assert paid[1] in anna.claims
    eventually(lambda: (anna.poll(), berta.poll(), paid[1] in berta.claims)[2], "the bound queue changes hands")
    assert berta.claims[paid[1]].offset == 1


def test_bound_offsets_are_durable_before_local_work(
    broker: Broker, seller: Producer, probe: Probe, paid: tuple[int, ...]
) -> None:
    anna = member(broker, "anna")
    with seller.transaction() as tx:
        tx.consume(anna, batch_of(anna, paid[0]))
        tx.send("orders", b"a")
        with tx.local("books"):
            assert probe.rows(INTENTS) == [(paid[0], 0, 1, tx.txid)]
    assert probe.rows(INTENTS) == []


def test_what_a_dead_member_left_open_is_rolled_back_before_the_next_starts(
    open_broker: OpenBroker, broker: Broker, probe: Probe, paid: tuple[int, ...], bound: Transaction
) -> None:
    expire(probe, "anna")
    berta = member(open_broker(), "berta")
    again = batch_of(berta, paid[0])
    assert (again.offset, probe.rows("SELECT state FROM tx")) == (0, [("rolled_back",)])
    berta.commit(again)
    with pytest.raises(DecidedOtherwise, match="ROLLBACK"):
        bound.__exit__(None, None, None)
    assert read(broker) == []


def test_what_a_member_is_still_at_work_on_is_left_to_it_though_its_lease_on_the_queue_is_over(
    open_broker: OpenBroker, broker: Broker, probe: Probe, paid: tuple[int, ...], bound: Transaction
) -> None:
    store = broker.kernel.store
    assert bound.txid is not None
    doubt = store.doubts.of(bound.txid)
    assert doubt is not None
    store.doubts.hold([doubt], LEASE)  # as the heartbeat of its process does
    expire(probe, "anna")
    berta = member(open_broker(), "berta")
    while berta.poll() is not None:
        pass
    assert (paid[0] in berta.claims, probe.rows("SELECT state FROM tx")) == (False, [("active",)])
    bound.__exit__(None, None, None)
    assert read(broker) == [b"a"]


def test_what_has_just_shown_that_it_is_at_work_is_left_to_it_though_nothing_holds_it_yet(
    open_broker: OpenBroker, broker: Broker, probe: Probe, paid: tuple[int, ...], bound: Transaction
) -> None:
    expire(probe, "anna")
    bound.later("orders")  # takes it off the list of doubts until the next beat of its heart
    berta = member(open_broker(), "berta")
    while berta.poll() is not None:
        pass
    assert (paid[0] in berta.claims, probe.rows("SELECT state FROM tx")) == (False, [("active",)])


def test_a_flow_between_two_steps_keeps_its_chunk_for_as_long_as_its_own_lease(
    open_broker: OpenBroker, broker: Broker, probe: Probe, paid: tuple[int, ...], seller: Producer
) -> None:
    anna, berta = member(broker, "anna"), member(open_broker(), "berta")
    flow = seller.begin_flow(key="run-7", lease=timedelta(hours=1))
    with flow.step("read"):
        flow.consume(anna, batch_of(anna, paid[0]))
    expire(probe, "anna")
    while berta.poll() is not None:
        pass
    assert paid[0] not in berta.claims
    assert probe.rows("SELECT state FROM tx") == [("active",)]
    probe.run("UPDATE tx SET touched = touched - interval '1 hour'")
    assert batch_of(berta, paid[0]).offset == 0


def test_a_rolled_back_zombie_does_no_local_work(
    open_broker: OpenBroker, probe: Probe, books: Engine, paid: tuple[int, ...], bound: Transaction
) -> None:
    expire(probe, "anna")
    batch_of(member(open_broker(), "berta"), paid[0])
    with pytest.raises(DecidedOtherwise), bound.local("books") as connection:
        write_entry(connection)
    assert entries_in(books) == 0


def test_what_a_dead_member_closed_is_committed_by_its_evidence_before_the_next_starts(
    open_broker: OpenBroker, broker: Broker, probe: Probe, books: Engine, paid: tuple[int, ...], bound: Transaction
) -> None:
    with bound.local("books") as connection:
        write_entry(connection)
    expire(probe, "anna")
    berta = member(open_broker(books=books), "berta")
    assert batch_of(berta, paid[0]).offset == 1
    assert (entries_in(books), read(broker)) == (1, [b"a"])


def test_what_a_dead_member_closed_without_evidence_is_fenced_before_the_next_starts(
    open_broker: OpenBroker, broker: Broker, probe: Probe, books: Engine, paid: tuple[int, ...], bound: Transaction
) -> None:
    with suppress(ZeroDivisionError), bound.local("books") as connection:
        write_entry(connection)
        raise ZeroDivisionError
    expire(probe, "anna")
    berta = member(open_broker(books=books), "berta")
    assert batch_of(berta, paid[0]).offset == 0
    assert (entries_in(books), read(broker)) == (0, [])


def test_a_queue_waits_while_the_local_work_of_a_dead_member_runs(
    open_broker: OpenBroker, probe: Probe, books: Engine, paid: tuple[int, ...], bound: Transaction
) -> None:
    berta = member(open_broker(books=books), "berta")
    with bound.local("books") as connection:
        write_entry(connection)
        expire(probe, "anna")
        assert berta.poll() is not None
        assert sorted(berta.claims) == sorted(paid[1:])
        assert probe.rows(INTENTS) == [(paid[0], 0, 1, bound.txid)]


@pytest.mark.parametrize("fails", [False, True])
def test_a_member_that_closes_in_an_open_block_keeps_what_it_bound(
    open_broker: OpenBroker, broker: Broker, seller: Producer, paid: tuple[int, ...], fails: bool
) -> None:
    anna, berta = member(broker, "anna"), member(open_broker(), "berta", ttl=1)
    with suppress(ZeroDivisionError), seller.transaction() as tx:
        tx.consume(anna, batch_of(anna, paid[0]))
        anna.close()
        for qid in paid[1::2]:
            assert batch_of(berta, qid).offset == 0
        assert paid[0] not in berta.claims
        tx.send("orders", b"a")
        if fails:
            raise ZeroDivisionError
    assert batch_of(berta, paid[0]).offset == (0 if fails else 1)
    assert read(broker) == ([] if fails else [b"a"])


def test_nobody_but_its_transaction_moves_a_bound_cursor(
    open_broker: OpenBroker, broker: Broker, seller: Producer, probe: Probe, paid: tuple[int, ...]
) -> None:
    anna = member(broker, "anna")
    tx = seller.transaction().__enter__()
    batch = batch_of(anna, paid[0])
    claim = anna.claims[paid[0]]
    tx.consume(anna, batch)
    with pytest.raises(LeaseLost):
        anna.commit(batch)
    with pytest.raises(LeaseLost):
        broker.kernel.store.queues.advance(claim, "anna", 1)
    assert broker.kernel.store.queues.acquire("billing", "anna", paid[0]) is None
    assert probe.value('SELECT "off" FROM cursor WHERE qid = :qid', qid=paid[0]) == 0


def test_a_member_whose_queue_was_taken_binds_nothing(
    open_broker: OpenBroker, broker: Broker, seller: Producer, probe: Probe, paid: tuple[int, ...]
) -> None:
    anna = member(broker, "anna")
    batch = batch_of(anna, paid[0])
    expire(probe, "anna")
    batch_of(member(open_broker(), "berta"), paid[0])
    with pytest.raises(LeaseLost), seller.transaction() as tx:
        tx.consume(anna, batch)
    assert probe.rows(INTENTS) == []


def test_the_messages_of_a_rollback_come_again_in_full(broker: Broker, seller: Producer, paid: tuple[int, ...]) -> None:
    anna = member(broker, "anna")
    with suppress(ZeroDivisionError), seller.transaction() as tx:
        for _ in range(2):
            tx.consume(anna, batch_of(anna, paid[0]))
        raise ZeroDivisionError
    assert batch_of(anna, paid[0]).offset == 0


def test_a_chunk_that_is_tried_again_is_consumed_once(broker: Broker, seller: Producer, paid: tuple[int, ...]) -> None:
    anna, tries = member(broker, "anna"), 0
    for batch in anna.batches(wait=0):
        for _ in range(1 if tries else 2):  # the first block fails, and the same batch is tried in another
            tries += 1
            with suppress(ZeroDivisionError), seller.transaction() as tx:
                tx.consume(anna, batch)
                tx.send_many("orders", list(batch.bodies))
                if tries == 1:
                    raise ZeroDivisionError
    assert sorted(read(broker)) == [b"%d" % turn for turn in range(8)]


def test_a_chunk_out_of_turn_is_refused_and_nothing_is_consumed(
    broker: Broker, seller: Producer, probe: Probe, paid: tuple[int, ...]
) -> None:
    anna = member(broker, "anna")
    first, second = batch_of(anna, paid[0]), batch_of(anna, paid[0])
    with pytest.raises(OutOfOrder), seller.transaction() as tx:
        tx.consume(anna, second)
    assert probe.value("SELECT count(*) FROM tx") == 0
    assert batch_of(anna, paid[0]).offset == first.offset
    with seller.transaction() as tx:
        tx.consume(anna, first)
        tx.consume(anna, second)
    with pytest.raises(OutOfOrder), seller.transaction() as tx:
        tx.consume(anna, first)
    assert probe.value('SELECT "off" FROM cursor WHERE qid = :qid', qid=paid[0]) == 2


def test_messages_that_others_rolled_back_later_are_not_skipped(
    broker: Broker, seller: Producer, probe: Probe, paid: tuple[int, ...]
) -> None:
    anna = member(broker, "anna")
    with suppress(ZeroDivisionError), seller.transaction() as tx:
        tx.consume(anna, batch_of(anna, paid[0]))
        tx.send("orders", b"a")
        tx.prepare()
        raise ZeroDivisionError
    second = batch_of(anna, paid[0])
    assert second.offset == 1
    broker.producer("shop", checker=lambda _: LocalState.ROLLBACK)
    assert check_back(broker) == 1
    with pytest.raises(LeaseLost):
        anna.commit(second)
    assert probe.value('SELECT "off" FROM cursor WHERE qid = :qid', qid=paid[0]) == 0
    assert batch_of(anna, paid[0]).offset == 0


def test_messages_that_others_committed_later_do_not_come_again(
    broker: Broker, seller: Producer, probe: Probe, paid: tuple[int, ...]
) -> None:
    anna = member(broker, "anna")
    with suppress(ZeroDivisionError), seller.transaction() as tx:
        tx.consume(anna, batch_of(anna, paid[0]))
        tx.send("orders", b"a")
        tx.prepare()
        raise ZeroDivisionError
    second = batch_of(anna, paid[0])
    broker.producer("shop", checker=lambda _: LocalState.COMMIT)
    assert check_back(broker) == 1
    anna.commit(second)
    assert probe.value('SELECT "off" FROM cursor WHERE qid = :qid', qid=paid[0]) == 2
