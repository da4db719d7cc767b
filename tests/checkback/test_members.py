"""Who is asked, what a checker is told and may say, and what its answer comes to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from sqlalchemy import Engine, NullPool, create_engine, text

from tests.scene.elsewhere import Elsewhere
from tests.scene.members import Member, age, counted, remarks
from tests.scene.shop import ORDERS, QUEUES, Shop, order, says
from txsaga import COMMIT, ROLLBACK, UNKNOWN, Decision, LocalState, Message
from txsaga.checkback.checkers import Question
from txsaga.core.message import TRANSACTION_ID
from txsaga.core.records import Content
from txsaga.rocketmq import EndRequest, TransactionMQProducer

Seen = list[Question]


@pytest.mark.req("RMQ-08", "RMQ-12", "RMQ-11")
@pytest.mark.conf("BRK-11", "CLI-02")
def test_a_lost_end_is_asked_for_and_what_is_settled_is_not(any_shop: Shop) -> None:
    seen: list[int] = []

    def checker(question: Question) -> LocalState:
        seen.append(question.txid)
        return COMMIT

    producer = any_shop.producer(checker=checker)
    settled, lost = (producer.prepare_now(ORDERS, text) for text in (b"settled", b"lost"))
    producer.commit(settled)
    for _ in range(3):
        any_shop.check()
    assert seen == [lost.txid]
    assert sorted(any_shop.bodies()) == ["lost", "settled"]


@pytest.mark.req("RMQ-11", "RMQ-05")
@pytest.mark.conf("BRK-02", "BRK-04")
@pytest.mark.parametrize("answer", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("key", [None, "order-42"])
def test_an_answer_ends_a_transaction_like_its_owner(any_shop: Shop, answer: LocalState, key: str | None) -> None:
    producer = any_shop.producer(checker=says(answer))
    left = producer.transaction(key=key).__enter__()
    left.send(order())
    left.prepare()
    assert left.txid is not None
    direct = producer.prepare_now(ORDERS, b"a chair")
    (producer.commit if answer is COMMIT else producer.roll_back)(direct)
    assert any_shop.check() == 1
    ended, checked = any_shop.transaction(direct.txid), any_shop.transaction(left.txid)
    assert (checked.state, checked.decision) == (ended.state, ended.decision)
    assert (ended.from_check, checked.from_check) == (False, True)
    halves = [any_shop.view(txid) for txid in (direct.txid, left.txid)]
    assert len({(h.topic, h.flag, h.prepared, h.real_topic) for h in halves}) == 1
    assert len(any_shop.bodies()) == (2 if answer is COMMIT else 0)
    assert any_shop.store.overview.checks(left.txid) is None


@pytest.mark.req("RMQ-09", "RMQ-25")
@pytest.mark.conf("INT-03")
def test_any_live_member_of_the_group_answers(any_shop: Shop) -> None:
    dead, alive, stranger = (Member(any_shop) for _ in range(3))
    receipt = dead.producer(checker=says(None)).prepare_now(ORDERS, b"a chair")
    other = stranger.producer("bank", checker=says(ROLLBACK)).prepare_now(ORDERS, b"money")
    alive.producer()
    age(any_shop)
    for member in (alive, stranger):
        member.beat()
    assert stranger.lead() == 2  # who leads need not be who is asked
    dead.take_up()
    stranger.answer()
    assert (any_shop.state(receipt.txid), any_shop.state(other.txid)) == ("prepared", "rolled_back")
    alive.answer()
    assert any_shop.state(receipt.txid) == "committed"
    assert any_shop.bodies() == ["a chair"]


@pytest.mark.req("RMQ-85")
@pytest.mark.conf("BRK-54")
def test_live_members_are_asked_by_turns(any_shop: Shop) -> None:
    first, second, third = (Member(any_shop) for _ in range(3))
    asked: Counter[str] = Counter()

    def counting(member: Member) -> None:
        def checker(_: Question) -> LocalState:
            asked[member.name] += 1
            return COMMIT

        member.producer(checker=checker)

    for member in (first, second, third):
        counting(member)
    for n in range(4):
        first.producer().prepare_now(ORDERS, b"%d" % n)
    age(any_shop)
    second.beat()
    third.beat()
    second.lead()
    for member in (first, second, third):
        member.answer()
    assert asked == {second.name: 2, third.name: 2}


@pytest.mark.req("RMQ-85", "RMQ-60")
@pytest.mark.conf("BRK-35", "PRX-24")
@pytest.mark.hole("H8")
def test_where_nobody_lives_nothing_is_counted_and_it_is_said(any_shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    owner, engine = Member(any_shop), Member(any_shop)
    receipt = owner.producer().prepare_now(ORDERS, b"a chair")
    age(any_shop)
    for _ in range(20):
        engine.lead()
    assert (counted(any_shop, receipt.txid), any_shop.state(receipt.txid)) == (0, "prepared")
    assert remarks(any_shop, receipt.txid)[-1] == ("NO_ANSWER", "no live member of group 'shop' has a checker")
    said = [r.message for r in caplog.records if r.levelname == "WARNING"]
    assert "no live member of group 'shop' has a checker; 1 transactions wait for one" in said


@pytest.mark.req("RMQ-60")
def test_a_member_without_a_checker_is_asked_in_vain_and_that_counts(
    any_shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    member = Member(any_shop)
    receipt = member.producer().prepare_now(ORDERS, b"a chair")
    member.kernel.checkers._by_name.pop("shop")
    age(any_shop)
    member.beat()
    member.lead()
    member.answer()
    assert (any_shop.state(receipt.txid), counted(any_shop, receipt.txid)) == ("prepared", 1)
    why = "the member that was asked has no checker for group 'shop'"
    assert remarks(any_shop, receipt.txid) == [("UNKNOWN", why)]
    assert any(why in r.message for r in caplog.records if r.levelname == "WARNING")


@pytest.mark.req("RMQ-60", "RMQ-38")
@pytest.mark.conf("BRK-63")
def test_the_checker_is_asked_before_the_listener(any_shop: Shop) -> None:
    class Listener:
        def execute_local_transaction(self, message: Message, arg: object) -> LocalState:
            return UNKNOWN

        def check_local_transaction(self, question: Question) -> LocalState:
            return ROLLBACK

    producer = TransactionMQProducer(any_shop.broker, "shop", Listener(), checker=says(COMMIT))
    alone = TransactionMQProducer(any_shop.broker, "bank", Listener())
    both, one = producer.prepare_now(ORDERS, b"both"), alone.prepare_now(ORDERS, b"one")
    any_shop.check()
    assert (any_shop.state(both.txid), any_shop.state(one.txid)) == ("committed", "rolled_back")


NO_ANSWERS: tuple[object, ...] = ("perhaps", "commit", True, 1, [], False, 0, "")
RETURN = "return COMMIT, ROLLBACK or UNKNOWN"


def _raises(_: Question) -> LocalState:
    raise OSError("the books are closed")


@pytest.mark.req("RMQ-61")
@pytest.mark.conf("CLI-03")
@pytest.mark.parametrize(
    ("checker", "why"),
    [
        (says(None), "the checker said UNKNOWN"),
        (_raises, "the checker raised OSError: the books are closed"),
        *((lambda _, it=it: it, f"the checker returned {it!r}, not an answer; {RETURN}") for it in NO_ANSWERS),
    ],
    ids=["none", "raises", *map(repr, NO_ANSWERS)],
)
def test_what_is_no_answer_is_unknown_with_a_remark(any_shop: Shop, checker: object, why: str) -> None:
    receipt = any_shop.producer(checker=checker).prepare_now(ORDERS, b"a chair")  # type: ignore[arg-type]
    any_shop.check()
    assert (any_shop.state(receipt.txid), counted(any_shop, receipt.txid)) == ("prepared", 1)
    assert remarks(any_shop, receipt.txid) == [("UNKNOWN", why)]


@pytest.mark.req("RMQ-11")
@pytest.mark.parametrize("decision", Decision)
def test_a_decision_is_taken_for_the_answer(any_shop: Shop, decision: Decision) -> None:
    producer = any_shop.mq_producer(checker=lambda _: decision)
    receipt = producer.prepare_now(ORDERS, b"a chair")
    any_shop.check()
    sent = producer.send_message_in_transaction(order(), executor=lambda *_: decision)
    assert (any_shop.transaction(receipt.txid).decision, sent.local_state) == (decision, LocalState[decision.name])


def test_a_damaged_half_is_not_blamed_on_the_checker(any_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    receipt = any_shop.producer(checker=lambda question: question.messages and COMMIT).prepare_now(ORDERS, b"a chair")
    queue = any_shop.view(receipt.txid).real_queue
    monkeypatch.setattr(type(any_shop.store.halves), "contents", lambda *_: [Content(ORDERS, b"torn")])
    any_shop.check()
    ((answer, why),) = remarks(any_shop, receipt.txid)
    assert (answer, any_shop.state(receipt.txid)) == ("UNKNOWN", "prepared")
    told = f"the messages of transaction {receipt.txid} for topic 'orders', queue {queue}, can't be read: "
    assert why.startswith(told) and why.endswith(f"roll it back: `txsaga tx rollback {receipt.txid}`")


@pytest.mark.req("RMQ-62")
@pytest.mark.conf("CLI-08")
def test_an_answer_echoes_what_it_was_asked_about(any_shop: Shop) -> None:
    ends: list[EndRequest] = []
    seen: Seen = []

    def checker(question: Question) -> LocalState:
        seen.append(question)
        return COMMIT

    producer = any_shop.mq_producer(checker=checker, end_hooks=[ends.append])
    sent = producer.send_message_in_transaction(order(key="42"), executor=says(UNKNOWN))
    any_shop.check()
    direct, reply = ends
    (question,) = seen
    assert (reply.from_check, reply.state, reply.topic) == (True, COMMIT, ORDERS)
    assert (
        (reply.transaction_id, reply.message_id)
        == (sent.transaction_id, sent.message_id)
        == (
            question.id,
            question.halves[0].id,
        )
    )
    assert (reply.commit_log_offset, reply.state_table_offset) == (sent.queue_offset, sent.queue_offset)
    assert (reply.broker, reply.group, reply.token) == (direct.broker, "shop", direct.token)


@pytest.mark.req("RMQ-86")
@pytest.mark.conf("BRK-45", "RC-J11", "RC-G4", "RC-R5")
@pytest.mark.parametrize("key", [None, "order-42"])
def test_a_question_names_the_real_topic_and_queue_and_holds_the_messages(any_shop: Shop, key: str | None) -> None:
    seen: Seen = []
    producer = any_shop.producer(checker=seen.append)
    left = producer.transaction(key=key).__enter__()
    left.send(order("a chair", key="7", tag="wood", headers={"colour": "red"}))
    left.send_many(ORDERS, [b"a", b"b"], keys=["1", "2"])
    left.prepare()
    any_shop.check()
    (question,) = seen
    assert (question.txid, question.id, question.group, question.key) == (left.txid, left.id, "shop", key)
    assert {half.real_topic for half in question.halves} == {ORDERS}
    assert {half.real_queue for half in question.halves} <= set(range(QUEUES))
    assert {half.topic for half in question.halves} == {"RMQ_SYS_TRANS_HALF_TOPIC"}
    found = sorted(question.messages, key=lambda message: message.body)
    assert [(m.topic, m.body, m.key) for m in found] == [
        (ORDERS, b"a", "1"),
        (ORDERS, b"a chair", "7"),
        (ORDERS, b"b", "2"),
    ]
    chair = found[1]
    assert (chair.tag, chair.headers) == ("wood", {"colour": "red", TRANSACTION_ID: left.id})


@pytest.mark.req("RMQ-86")
@pytest.mark.rule("R4")
def test_of_a_transaction_that_was_tried_again_only_the_last_try_is_shown(any_shop: Shop) -> None:
    seen: Seen = []
    producer = any_shop.producer(checker=seen.append)
    for body in (b"first try", b"second try"):
        tx = Elsewhere(producer.transaction(key="order-42")).__enter__()
        tx.send(ORDERS, body)
        tx.join_life()
    tx.prepare()
    any_shop.check()
    (question,) = seen
    assert [message.body for message in question.messages] == [b"second try"]


@pytest.fixture
def till(tmp_path: Path) -> Engine:
    engine = create_engine(f"sqlite:///{tmp_path / 'till.db'}", poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE sale (id text, done int)"))
    return engine


@pytest.mark.req("RMQ-69", "RMQ-10")
def test_the_four_cases_that_a_checker_tells_apart(any_shop: Shop, till: Engine) -> None:
    """What the guide says: no key, still running, there, absent."""

    def checker(question: Question) -> LocalState:
        key = question.messages[0].key
        if key is None:
            return ROLLBACK
        with till.connect() as connection:
            sale = connection.execute(text("SELECT done FROM sale WHERE id = :id"), {"id": key}).first()
        if sale is None:
            return ROLLBACK
        return COMMIT if sale[0] else UNKNOWN

    producer = any_shop.producer(checker=checker)
    with till.begin() as connection:
        connection.execute(text("INSERT INTO sale VALUES ('running', 0), ('there', 1)"))
    txids = {key: producer.prepare_now(ORDERS, b"", key=key).txid for key in (None, "running", "there", "absent")}
    any_shop.check()
    assert {key: any_shop.state(txid) for key, txid in txids.items()} == {
        None: "rolled_back",
        "running": "prepared",
        "there": "committed",
        "absent": "rolled_back",
    }


@pytest.mark.req("RMQ-69", "RMQ-10")
def test_the_built_in_answer_follows_the_local_work_and_bars_it_when_it_is_absent(any_shop: Shop, till: Engine) -> None:
    """Evidence: there is COMMIT, absent is ROLLBACK behind the barrier, so late work is refused."""
    member = Member(any_shop, till=till)
    heard: Seen = []
    producer = member.producer(checker=heard.append)
    there = producer.transaction().__enter__()
    there.send(order("there"))
    with there.local("till") as connection:
        connection.execute(text("INSERT INTO sale VALUES ('there', 1)"))
    absent = producer.transaction(key="absent").__enter__()
    absent.send(order("absent"))
    late = absent.local("till")
    resource, evidence = member.kernel.resource("till")
    absent._close(resource.id)  # as a process that was killed before its local work
    age(any_shop)
    assert member.lead() == 2
    assert there.txid is not None and absent.txid is not None
    assert (any_shop.state(there.txid), any_shop.state(absent.txid)) == ("committed", "rolled_back")
    assert heard == []
    assert absent.id is not None
    outcome = evidence.read(absent.id)
    assert outcome is not None and not outcome.committed
    del late
