"""What becomes of a transaction that is out of checks: parked, seen by nobody, resumed or settled by a person."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine, text

from tests.scene.members import QUICK, Member, age, checks, counted, remarks
from tests.scene.shop import ORDERS, Shop, order, says
from txsaga import COMMIT, ROLLBACK, UNKNOWN
from txsaga.checkback.by_hand import ByHand
from txsaga.checkback.checkers import Question
from txsaga.checkback.profile import Exhausted
from txsaga.core.decision import Decision
from txsaga.errors import ConfigError, DecidedOtherwise, NotParked, UnknownTransaction
from txsaga.testing.checking import check_once

MOST = 2


def exhausted(shop: Shop, key: str | None = None) -> int:
    """Leave a transaction that nobody can answer for until it is out of checks."""
    tx = shop.producer(checker=says(UNKNOWN)).transaction(key=key).__enter__()
    tx.send(order())
    tx.prepare()
    age(shop)
    for _ in range(MOST + 1):
        shop.round(MOST)
    assert tx.txid is not None
    return tx.txid


def history(shop: Shop, txid: int) -> list[tuple[str, str, str]]:
    return [(each.what, each.who, each.why) for each in shop.store.overview.history(txid)]


@pytest.mark.req("RMQ-27", "RMQ-78", "RMQ-26")
@pytest.mark.conf("BRK-10", "BRK-36", "BRK-37")
@pytest.mark.hole("H6")
@pytest.mark.parametrize("key", [None, "order-42"])
def test_out_of_checks_is_parked_once_with_its_reason_and_never_delivered(
    any_shop: Shop, caplog: pytest.LogCaptureFixture, key: str | None
) -> None:
    txid = exhausted(any_shop, key)
    why = f"out of checks ({MOST}): the checker said UNKNOWN"
    for _ in range(3):
        any_shop.round(MOST)
    assert (any_shop.state(txid), checks(any_shop, txid).parked, any_shop.pending()) == ("parked", why, [txid])
    assert [each for each in history(any_shop, txid) if each[0] == "PARKED"] == [("PARKED", "check-back", why)]
    assert [r.message for r in caplog.records if r.levelname == "ERROR"] == [f"transaction {txid} is parked: {why}"]
    assert remarks(any_shop, txid) == [("UNKNOWN", "the checker said UNKNOWN")] * MOST
    assert any_shop.bodies() == []
    assert any_shop.view(txid).prepared


@pytest.mark.req("RMQ-67", "RMQ-78")
@pytest.mark.parametrize("key", [None, "order-42"])
def test_a_group_may_say_that_out_of_checks_is_rolled_back(any_shop: Shop, key: str | None) -> None:
    any_shop.producer()
    any_shop.broker.set_checks("shop", on_exhausted=Exhausted.ROLL_BACK)
    txid = exhausted(any_shop, key)
    assert any_shop.state(txid) == "rolled_back"
    decided = any_shop.transaction(txid)
    assert (decided.decision, decided.from_check) == (Decision.ROLLBACK, True)
    why = f"out of checks ({MOST}): the checker said UNKNOWN"
    assert ("ROLLBACK", "check-back", why) in history(any_shop, txid)
    assert (any_shop.pending(), any_shop.bodies()) == ([], [])


@pytest.mark.req("RMQ-67")
@pytest.mark.parametrize(("on_exhausted", "state"), [(Exhausted.PARK, "parked"), (Exhausted.ROLL_BACK, "rolled_back")])
def test_past_the_total_time_it_counts_as_rolled_back_though_nobody_ever_answered(
    any_shop: Shop, on_exhausted: Exhausted, state: str
) -> None:
    owner, engine = Member(any_shop), Member(any_shop)
    receipt = owner.producer().prepare_now(ORDERS, b"a chair")
    any_shop.broker.set_checks("shop", total_limit=timedelta(hours=1), on_exhausted=on_exhausted)
    age(any_shop)
    engine.lead()
    assert any_shop.state(receipt.txid) == "prepared"
    any_shop.later(3700)
    engine.lead()
    assert any_shop.state(receipt.txid) == state
    assert any_shop.bodies() == []


@pytest.mark.req("RMQ-78")
def test_a_handler_of_the_group_is_called_and_may_roll_back(any_shop: Shop) -> None:
    called: list[tuple[int, str, bytes]] = []

    def handler(question: Question) -> Decision | None:
        (message,) = question.messages
        called.append((question.txid, question.group, message.body))
        return Decision.ROLLBACK

    any_shop.broker.when_exhausted("shop", handler)
    txid = exhausted(any_shop)
    assert called == [(txid, "shop", b"a chair")]
    assert any_shop.state(txid) == "rolled_back"


def _broken(_: Question) -> Decision | None:
    raise OSError("the pager is off")


@pytest.mark.req("RMQ-78")
@pytest.mark.parametrize("handler", [_broken, lambda _: None, lambda _: Decision.COMMIT], ids=["raises", "none", "yes"])
def test_a_handler_that_has_nothing_to_say_leaves_it_parked(any_shop: Shop, handler: object) -> None:
    """It may not commit: nobody knows that the local work did."""
    any_shop.broker.when_exhausted("shop", handler)  # type: ignore[arg-type]
    txid = exhausted(any_shop)
    assert (any_shop.state(txid), any_shop.bodies()) == ("parked", [])


@pytest.mark.req("RMQ-78")
@pytest.mark.parametrize(
    ("said", "state", "warned"),
    [
        (Decision.ROLLBACK, "rolled_back", False),
        (ROLLBACK, "rolled_back", False),
        ("ROLLBACK", "rolled_back", False),
        (None, "parked", False),
        ("rollback, please", "parked", True),
        (Decision.COMMIT, "parked", True),
        (True, "parked", True),
    ],
)
def test_a_handler_may_say_rollback_in_any_way_and_what_else_it_says_is_warned_about(
    moody_shop: Shop, caplog: pytest.LogCaptureFixture, said: object, state: str, warned: bool
) -> None:
    moody_shop.broker.when_exhausted("shop", lambda _: said)  # type: ignore[arg-type,return-value]
    txid = exhausted(moody_shop)
    assert moody_shop.state(txid) == state
    assert (f"the handler of group 'shop' returned {said!r} for transaction {txid}" in caplog.text) is warned


def test_a_handler_of_a_group_that_nobody_has_heard_of_is_warned_about(
    moody_shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    moody_shop.producer()
    for group in ("shop", "shpo"):
        moody_shop.broker.when_exhausted(group, says(None))  # type: ignore[arg-type]
    (warning,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert "'shpo'" in warning


@pytest.mark.req("RMQ-67")
@pytest.mark.rule("R10")
def test_where_evidence_is_recorded_nobody_rolls_back_unseen(any_shop: Shop, tmp_path: Path) -> None:
    """The local work may have committed: a group's wish to roll back does not count there."""
    till = create_engine(f"sqlite:///{tmp_path / 'till.db'}", poolclass=NullPool)
    with till.begin() as connection:
        connection.execute(text("CREATE TABLE sale (id int)"))
    owner, engine = Member(any_shop, till=till), Member(any_shop)
    tx = owner.producer().transaction().__enter__()
    tx.send(order())
    with tx.local("till") as connection:
        connection.execute(text("INSERT INTO sale VALUES (1)"))
    any_shop.broker.set_checks("shop", total_limit=timedelta(hours=1), on_exhausted=Exhausted.ROLL_BACK)
    age(any_shop)
    engine.lead()
    any_shop.later(3700)
    engine.lead()
    assert tx.txid is not None
    assert any_shop.state(tx.txid) == "parked"
    ByHand(owner.kernel).resume(tx.txid, who="anna", why="the till is back")
    owner.lead()
    assert any_shop.state(tx.txid) == "committed"


@pytest.mark.req("RMQ-79")
@pytest.mark.conf("CLI-06")
@pytest.mark.hole("H10")
@pytest.mark.parametrize("key", [None, "order-42"])
def test_a_parked_one_that_is_resumed_is_asked_about_from_the_first_check_on(any_shop: Shop, key: str | None) -> None:
    txid = exhausted(any_shop, key)
    ByHand(any_shop.broker.kernel).resume(txid, who="anna", why="the books are back")
    assert any_shop.transaction(txid).decision is None
    assert counted(any_shop, txid) == 0
    assert ("RESUMED", "anna", "the books are back") in history(any_shop, txid)
    assert any_shop.bodies() == []  # accepted is not committed
    seen: list[int] = []

    def checker(question: Question) -> object:
        seen.append(question.checks)
        return COMMIT if len(seen) == 2 else UNKNOWN

    any_shop.producer(checker=checker)  # type: ignore[arg-type]
    any_shop.round(MOST)
    assert counted(any_shop, txid) == 1
    any_shop.round(MOST)
    assert (seen, any_shop.state(txid), any_shop.bodies()) == ([1, 2], "committed", ["a chair"])


@pytest.mark.req("RMQ-79")
@pytest.mark.conf("BRK-47", "CLI-05")
@pytest.mark.parametrize(
    ("case", "told"), [("unknown", UnknownTransaction), ("pending", NotParked), ("decided", DecidedOtherwise)]
)
def test_what_is_not_parked_can_not_be_resumed(any_shop: Shop, case: str, told: type[Exception]) -> None:
    producer = any_shop.producer(checker=says(UNKNOWN))
    receipt = producer.prepare_now(ORDERS, b"")
    if case == "decided":
        producer.commit(receipt)
    txid = 4711 if case == "unknown" else receipt.txid
    with pytest.raises(told):
        ByHand(any_shop.broker.kernel).resume(txid, who="anna", why="who knows")
    assert "RESUMED" not in [what for what, *_ in history(any_shop, txid)]


@pytest.mark.hole("H10")
@pytest.mark.req("RMQ-79", "RMQ-27")
@pytest.mark.parametrize("decision", Decision)
def test_a_person_settles_what_is_parked_and_says_why(any_shop: Shop, decision: Decision) -> None:
    txid = exhausted(any_shop)
    by_hand = ByHand(any_shop.broker.kernel)
    with pytest.raises(ConfigError, match="give a reason"):
        by_hand.decide(txid, decision, who="anna", why=" ")
    assert by_hand.decide(txid, decision, who="anna", why="asked the shop").won
    assert (f"{decision.name} BY HAND", "anna", "asked the shop") in history(any_shop, txid)
    assert len(any_shop.bodies()) == (decision is Decision.COMMIT)
    other = Decision.ROLLBACK if decision is Decision.COMMIT else Decision.COMMIT
    with pytest.raises(DecidedOtherwise):
        by_hand.decide(txid, other, who="bert", why="no, the other")
    any_shop.round(MOST)
    assert any_shop.store.overview.checks(txid) is None


@pytest.mark.req("RMQ-70")
def test_backlog_and_age_are_told_by_group(any_shop: Shop) -> None:
    bank, shop = Member(any_shop).producer("bank"), any_shop.producer(checker=says(UNKNOWN))
    for _ in range(30):
        shop.prepare_now(ORDERS, b"")
    bank.prepare_now(ORDERS, b"")
    age(any_shop)
    check_once(any_shop.broker, QUICK)
    undecided = any_shop.store.overview.undecided()
    assert undecided.count == 31
    assert undecided.oldest is not None and undecided.oldest >= timedelta(seconds=110)
    backlog = {each.group: each for each in any_shop.store.overview.backlogs()}
    assert (backlog["shop"].undecided, backlog["bank"].undecided) == (30, 1)
    assert (backlog["shop"].answers.get("UNKNOWN"), backlog["bank"].answers.get("NO_ANSWER")) == (30, 1)
