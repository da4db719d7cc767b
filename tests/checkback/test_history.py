"""Every check stays in the timeline of its transaction, whoever decides it in the end."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine

from tests.scene.members import Member, age, cover
from tests.scene.shop import Shop, order
from txsaga import COMMIT, UNKNOWN
from txsaga.checkback.by_hand import ByHand
from txsaga.core.decision import Decision
from txsaga.inspect.timeline_steps import steps_of

VAIN = ("check: UNKNOWN", "the checker said UNKNOWN")


def told(shop: Shop, txid: int) -> list[tuple[str, str]]:
    """Return the checks in a timeline."""
    trace = shop.store.overview.trace(txid)
    assert trace is not None
    return [(step.what, step.why) for step in steps_of(trace) if step.what.startswith("check: ")]


@pytest.mark.req("IBM-42", "RMQ-27")
@pytest.mark.hole("H10")
@pytest.mark.parametrize("key", [None, "order-42"])
@pytest.mark.parametrize("how", ["checker", "owner", "by hand"])
def test_what_came_of_each_check_is_told_when_it_is_decided(any_shop: Shop, key: str | None, how: str) -> None:
    word = [UNKNOWN]
    member = Member(any_shop)
    tx = member.producer(checker=lambda _: word[0]).transaction(key=key).__enter__()
    tx.send(order())
    tx.prepare()
    assert tx.txid is not None
    age(any_shop)
    for _ in range(2):
        member.beat()
        member.lead()
        member.answer()
    assert told(any_shop, tx.txid) == [VAIN, VAIN]
    answer = []
    if how == "checker":
        word[0] = COMMIT
        member.beat()
        member.lead()
        member.answer()
        answer = [("check: COMMIT", "the checker said COMMIT")]
    elif how == "owner":
        tx.__exit__(None, None, None)
    else:
        ByHand(member.kernel).decide(tx.txid, Decision.COMMIT, who="anna", why="asked")
    cover(any_shop)
    any_shop.later(60)
    any_shop.round()  # also what only a sweep takes off
    any_shop.store.doubts.sweep(timedelta(0))
    assert any_shop.state(tx.txid) == "committed"
    assert told(any_shop, tx.txid) == [VAIN, VAIN, *answer]
    asked = {each.who for each in any_shop.store.overview.history(tx.txid) if each.what.startswith("CHECK ")}
    assert asked == {member.name}


@pytest.mark.req("IBM-42")
@pytest.mark.parametrize("key", [None, "order-42"])
def test_checks_that_nobody_could_answer_are_told_when_the_evidence_speaks(
    any_shop: Shop, tmp_path: Path, key: str | None
) -> None:
    till = create_engine(f"sqlite:///{tmp_path / 'till.db'}", poolclass=NullPool)
    owner = Member(any_shop, till=till)
    tx = owner.producer().transaction(key=key).__enter__()
    tx.send(order())
    tx._close(owner.kernel.resource("till")[0].id)
    assert tx.txid is not None
    age(any_shop)
    Member(any_shop).lead()
    ((vain, _),) = told(any_shop, tx.txid)
    owner.lead()
    assert any_shop.state(tx.txid) == "rolled_back"
    assert ([what for what, _ in told(any_shop, tx.txid)], vain) == (["check: NO_ANSWER"], "check: NO_ANSWER")
