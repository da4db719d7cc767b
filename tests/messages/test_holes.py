"""
Weaknesses of half messages as they are known elsewhere, each shown closed; more of them lie beside their subject.

The docstring of a test says what happens elsewhere: the test fails on that.
"""

from __future__ import annotations

from collections import Counter
from itertools import cycle, islice
from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine

from tests.scene.fake_store import FakeHalves
from tests.scene.members import Member, age, counted
from tests.scene.shop import NEWS, ORDERS, Shop, order, says
from tests.scene.stored import Stored
from txsaga import COMMIT, ROLLBACK, UNKNOWN, LocalState, Message
from txsaga.checkback.checkers import Question
from txsaga.core.decision import Decision
from txsaga.core.records import End
from txsaga.errors import DecidedOtherwise, EndRefused, StoreError, UnknownTransaction

SIZE = """
SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c
 WHERE c.relkind = 'r' AND c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())"""
ROW = "SELECT ctid::text, xmin::text FROM half WHERE txid = :t"
WAYS = {
    "commit": (COMMIT, None),
    "roll back": (ROLLBACK, None),
    "commit when asked": (UNKNOWN, COMMIT),
    "roll back when asked": (UNKNOWN, ROLLBACK),
    "never known": (UNKNOWN, UNKNOWN),
}


@pytest.mark.conf("INT-01", "INT-07", "BRK-34")
@pytest.mark.req("RMQ-12", "RMQ-92")
@pytest.mark.hole("H1")
def test_of_all_ways_to_end_consumers_see_what_was_committed_and_nobody_is_asked_in_vain(any_shop: Shop) -> None:
    """Elsewhere what was committed is asked about again, and an answer delivers it twice."""
    asked: Counter[str] = Counter()

    def checker(question: Question) -> LocalState | None:
        way = question.messages[0].key or ""
        asked[f"{way} {question.txid}"] += 1
        return WAYS[way][1]

    producer = any_shop.mq_producer(checker=checker)
    ways = list(islice(cycle(WAYS), 120))
    for n, way in enumerate(ways):
        producer.send_message_in_transaction(order(str(n), key=way), executor=says(WAYS[way][0]))
    for _ in range(3):
        any_shop.check(most=2)
    committed = [str(n) for n, way in enumerate(ways) if way.startswith("commit")]
    assert sorted(any_shop.bodies()) == sorted(committed)
    unexpected = [name for name in asked if name.split()[0] in ("commit", "roll") and "when asked" not in name]
    assert unexpected == []
    assert {name.rpartition(" ")[0]: times for name, times in asked.items()} == {
        "commit when asked": 1,
        "roll back when asked": 1,
        "never known": 2,
    }
    assert len(any_shop.pending()) == 24


@pytest.mark.hole("H2")
@pytest.mark.req("RMQ-92")
def test_an_end_is_answered_with_what_stands_and_its_errors_reach_the_caller(
    moody_shop: Shop, halves: FakeHalves
) -> None:
    """Elsewhere an end is one-way: the caller never hears that it failed, or that another one stands."""
    producer = moody_shop.producer()
    receipt = producer.prepare_now(ORDERS, b"a chair")
    halves.open.clear()
    ending = producer.decide(receipt, Decision.COMMIT)
    assert halves.entered.wait(10)
    assert not ending.done()
    halves.open.set()
    assert ending.result(10).won
    assert not producer.commit(receipt).won  # once more is success
    with pytest.raises(DecidedOtherwise):
        producer.roll_back(receipt)
    failing = producer.prepare_now(ORDERS, b"a table")
    halves.broken.append(StoreError("the disk is full"))
    with pytest.raises(StoreError, match="the disk is full"):
        producer.commit(failing)
    assert producer.commit(failing).won


@pytest.mark.hole("H9")
@pytest.mark.conf("PRX-06")
def test_what_an_end_needs_lies_in_the_store_for_every_process_and_for_as_long_as_it_takes(any_shop: Shop) -> None:
    """Elsewhere a proxy keeps it in memory for 30 seconds, gives it out once, and forgets it when it restarts."""
    receipt = Member(any_shop).producer().prepare_now(ORDERS, b"a chair")
    any_shop.later(7 * 24 * 3600)
    elsewhere = Member(any_shop)
    elsewhere.producer(checker=says(UNKNOWN))
    elsewhere.beat()
    elsewhere.lead()
    elsewhere.answer()
    another = Member(any_shop).producer()
    assert another.commit(receipt).won
    assert another.commit(receipt).decision is Decision.COMMIT
    assert any_shop.bodies() == ["a chair"]


@pytest.mark.hole("H11")
@pytest.mark.rule("R16")
def test_many_messages_their_order_and_a_late_body_share_one_decision(any_shop: Shop, tmp_path: Path) -> None:
    """Elsewhere a transaction is one message, without order, its body known before the local work."""
    till = create_engine(f"sqlite:///{tmp_path / 'till.db'}", poolclass=NullPool)
    member = Member(any_shop, till=till)
    any_shop.broker.create_topic("steps", "fifo", queues=4)
    tx = member.producer().transaction(key="order-42").__enter__()
    tx.send_many(ORDERS, [b"%d" % n for n in range(600)])
    for n in range(3):
        tx.send(Message("steps", b"step %d" % n, ordering_key="42"))
    slot = tx.later(ORDERS, key="receipt")
    with tx.local("till") as connection:
        slot.fill(connection, b"the receipt")
    age(any_shop)
    assert any_shop.bodies() == []
    member.lead()
    assert any_shop.bodies("steps") == ["step 0", "step 1", "step 2"]
    assert len(any_shop.bodies()) == 601


@pytest.mark.hole("H13")
@pytest.mark.conf("AUT-03")
def test_only_who_holds_the_token_of_a_half_ends_it(any_shop: Shop) -> None:
    """Elsewhere an empty topic in the header passes the authorization, and anybody who may publish ends anything."""
    producer = any_shop.producer()
    receipt = producer.prepare_now(ORDERS, b"a chair")
    other = any_shop.producer("bank").prepare_now(ORDERS, b"money")
    attempts = [
        End(receipt.txid, receipt.group, b"", Decision.COMMIT),
        End(receipt.txid, receipt.group, other.token, Decision.COMMIT),
        End(receipt.txid, other.group, receipt.token, Decision.COMMIT),
        End(receipt.txid, receipt.group, b"guess", Decision.ROLLBACK, from_check=True),
    ]
    for attempt in attempts:
        (answer,) = any_shop.store.halves.write((), [attempt]).standings
        assert isinstance(answer, (EndRefused, UnknownTransaction)), attempt
    assert any_shop.state(receipt.txid) == "prepared"
    assert producer.commit(receipt).won


@pytest.mark.hole("H14")
@pytest.mark.req("RMQ-13", "RMQ-81")
@pytest.mark.conf("BRK-29", "BRK-30")
def test_a_check_writes_a_counter_and_a_commit_one_row_but_never_a_body(shop: Shop, stored: Stored) -> None:
    """Elsewhere each check appends the whole message again, and the commit does so once more."""
    big = b"x" * 100_000
    receipt = shop.producer(checker=says(UNKNOWN)).prepare_now(ORDERS, big)
    size = stored.value(SIZE)
    age(shop)
    aged = stored.rows(ROW, t=receipt.txid)
    for _ in range(10):
        shop.round()
    assert counted(shop, receipt.txid) == 10
    assert stored.rows(ROW, t=receipt.txid) == aged
    shop.producer(checker=says(COMMIT))
    shop.round()
    assert shop.bodies() == [big.decode()]
    assert stored.rows(ROW, t=receipt.txid) == aged
    grown = stored.value(SIZE)
    # Letting time pass rewrote the row once, in the test: nothing else did.
    assert grown - size < 5 * len(big)


@pytest.mark.conf("BRK-48", "BRK-49", "BRK-50", "BRK-52", "BRK-53")
@pytest.mark.req("RMQ-85")
@pytest.mark.hole("H8")
def test_a_member_is_one_from_its_first_beat_until_it_leaves_or_is_silent(any_shop: Shop) -> None:
    """Elsewhere a producer that is silent counts for two more minutes, and what it is asked meanwhile is lost."""
    leases = any_shop.store.leases
    quiet, leaving, alive = (Member(any_shop) for _ in range(3))
    groups = {member.producer().group.id for member in (quiet, leaving, alive)}
    kind = f"checker:{groups.pop()}"
    for member in (quiet, leaving, alive):
        member.beat()
    assert set(leases.alive([kind])[kind]) == {quiet.name, leaving.name, alive.name}
    leaving.broker._resign()
    any_shop.later(10)
    alive.beat()
    assert set(leases.alive([kind])[kind]) == {quiet.name, alive.name}
    any_shop.later(10)
    assert list(leases.alive([kind])[kind]) == [alive.name]
    any_shop.later(10)
    assert list(leases.alive([kind]).get(kind, ())) == []


@pytest.mark.conf("BRK-51")
@pytest.mark.req("RMQ-60")
def test_who_sends_plainly_is_no_member_and_who_has_a_checker_is(any_shop: Shop) -> None:
    """The case registers no producer where transactions are refused: here nobody who can't answer is asked."""
    member = Member(any_shop)
    plain = member.broker.producer("press")
    plain.send(NEWS, b"")
    member.beat()
    assert not any_shop.store.leases.alive([f"checker:{plain.group.id}"]).get(f"checker:{plain.group.id}")
    group = member.producer().group.id
    member.beat()
    assert list(any_shop.store.leases.alive([f"checker:{group}"])[f"checker:{group}"]) == [member.name]


@pytest.mark.conf("BRK-39", "BRK-40", "BRK-41", "BRK-42")
@pytest.mark.req("RMQ-70")
@pytest.mark.hole("H10")
def test_checks_are_counted_by_group_and_answer_and_what_is_settled_is_no_backlog(any_shop: Shop) -> None:
    """Elsewhere a gauge in a file drifts with every end that comes twice, and checks are not counted at all."""
    answers = cycle([COMMIT, ROLLBACK, UNKNOWN])
    producer = any_shop.producer(checker=lambda _: next(answers))
    any_shop.producer("bank")
    for _ in range(9):
        producer.prepare_now(ORDERS, b"")
    age(any_shop)
    any_shop.round()
    found = {each.group: each for each in any_shop.store.overview.backlogs()}
    assert (found["shop"].answers, found["shop"].undecided) == ({"COMMIT": 3, "ROLLBACK": 3, "UNKNOWN": 3}, 3)
    assert (found["bank"].answers, found["bank"].undecided) == ({}, 0)
    assert found["shop"].members == 1
    any_shop.producer(checker=says(COMMIT))
    any_shop.check()
    again = {each.group: each for each in any_shop.store.overview.backlogs()}["shop"]
    assert (again.undecided, again.asked, again.parked, again.answers["COMMIT"]) == (0, 0, 0, 6)
