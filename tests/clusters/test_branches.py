"""A transaction over a cluster: a branch everywhere, votes of participants alone, one outcome."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

import pytest

from tests.clusters.town import ORDERS, Town
from txsaga.core.decision import Decision
from txsaga.core.records import Row, TxRecord
from txsaga.errors import (
    CommunicationFailed,
    ConfigError,
    InvalidMessage,
    ProtocolError,
    ResourceManagerFailed,
    StoreUnavailable,
    TransactionClosed,
    TransactionError,
    Unfinished,
    VotedNo,
    XaError,
)
from txsaga.flows.branch import BranchState
from txsaga.resources import broker as handle
from txsaga.resources.broker import BranchRecords

pytestmark = pytest.mark.postgres


class Stop(Exception):
    """What the user's code raises."""


@pytest.mark.req("WM-05")
def test_a_transaction_opens_a_branch_with_the_same_xid_on_every_broker(town: Town) -> None:
    with town.cluster().producer("shop").transaction() as tx:
        assert [town.lives(name) for name in town.direct] == [["active"]] * 3
        assert {xid for name in town.direct for xid in town.xids(name)} == {tx.id}


def test_within_a_loop_it_is_refused_before_anything_is_begun(town: Town) -> None:
    async def work() -> None:
        async with town.cluster().producer("shop").transaction():
            pytest.fail("entered")  # pragma: no cover

    with pytest.raises(ConfigError, match=r"asyncio\.to_thread"):
        asyncio.run(work())
    assert [town.lives(name) for name in town.direct] == [[]] * 3


@pytest.mark.req("WM-06", "WM-01")
def test_who_took_the_messages_takes_part(town: Town) -> None:
    with town.cluster().producer("shop").transaction() as tx:
        assert not tx.participants
        for n in range(5):
            tx.send(ORDERS, f"{n}".encode())
        assert tx.participants == ("b1",)
    assert tx.participants == ("b1",)
    assert town.all_told() == [["0", "1", "2", "3", "4"], [], []]


@pytest.mark.req("WM-16", "WM-17")
def test_commit_shows_the_messages_and_leaves_no_branch_anywhere(town: Town) -> None:
    with town.cluster().producer("shop").transaction() as tx:
        tx.send(ORDERS, b"one")
        assert town.told("b1") == []
    assert [town.lives(name) for name in town.direct] == [["committed"], ["rolled_back"], ["rolled_back"]]
    assert town.told("b1") == ["one"]
    assert tx.decision is Decision.COMMIT
    assert set(town.states(tx.txid).values()) == {BranchState.COMMITTED, BranchState.ROLLED_BACK}


@pytest.mark.req("WM-14")
def test_only_participants_are_asked_for_their_votes(town: Town, log_of: list[str]) -> None:
    with town.cluster().producer("shop").transaction() as tx:
        tx.send(ORDERS, b"one")
    assert [each for each in log_of if each.startswith("Voting")] == ["Voting b1"]
    assert [each for each in log_of if each.startswith("Finishing")] == ["Finishing b1"]


@pytest.mark.req("WM-13")
def test_a_transaction_is_ended_before_it_is_prepared(town: Town) -> None:
    with town.cluster().producer("shop").transaction() as tx:
        tx.send(ORDERS, b"one")
        with pytest.raises(ProtocolError, match="end"):
            tx.prepare()
        tx.end()
        with pytest.raises(TransactionClosed):
            tx.send(ORDERS, b"two")
        with pytest.raises(TransactionClosed):
            tx.end()
        tx.prepare()
        assert town.lives("b1") == ["prepared"]
        tx.commit()
        assert town.lives("b1") == ["committed"]
    assert town.told("b1") == ["one"]


@pytest.mark.req("WM-11")
def test_a_participant_that_is_down_before_the_commit_is_a_failure(town: Town) -> None:
    producer = town.cluster().producer("shop")
    with pytest.raises(CommunicationFailed) as told, producer.transaction() as tx:
        tx.send(ORDERS, b"one")
        town.down("b1")
    assert "b1" in "".join(told.value.__notes__)
    assert tx.decision is Decision.ROLLBACK
    town.up("b1")
    town.recover()
    assert town.all_told() == [[], [], []]
    assert town.lives("b1") == ["rolled_back"]


@pytest.mark.req("WM-11")
def test_a_participant_that_is_lost_behind_its_vote_is_told_later_and_the_caller_hears_of_it(town: Town) -> None:
    producer = town.cluster().producer("shop")
    with pytest.raises(Unfinished, match="'b1'"), producer.transaction() as tx:
        tx.send(ORDERS, b"one")
        tx.end()
        tx.prepare()
        town.down("b1")
    assert tx.decision is Decision.COMMIT
    assert town.lives("b1") == ["prepared"]
    town.up("b1")
    town.recover()
    assert town.told("b1") == ["one"]
    assert set(town.states(tx.txid).values()) == {BranchState.COMMITTED, BranchState.ROLLED_BACK}


@pytest.mark.req("WM-12", "WM-18")
def test_a_bystander_that_is_down_changes_nothing_for_the_caller(town: Town, caplog: pytest.LogCaptureFixture) -> None:
    cluster = town.cluster()
    with caplog.at_level(logging.WARNING), cluster.producer("shop").transaction() as tx:
        tx.send(ORDERS, b"one")
        town.down("b3")
    assert tx.decision is Decision.COMMIT
    assert town.told("b1") == ["one"]
    assert cluster.failures == {"b3": 1}
    assert "'b3' kept its branch" in caplog.text
    town.up("b3")
    town.recover()
    assert town.lives("b3") == ["rolled_back"]


@pytest.mark.req("WM-15")
def test_a_vote_of_no_is_raised_and_everything_is_rolled_back(town: Town) -> None:
    with pytest.raises(VotedNo), town.cluster().producer("shop").transaction() as tx:
        tx.send(ORDERS, b"one")
        town.recover()  # the broker takes its owner for dead
    assert tx.decision is Decision.ROLLBACK
    assert town.all_told() == [[], [], []]


@pytest.mark.req("WM-19")
def test_roll_back_reaches_every_branch(town: Town) -> None:
    with town.cluster().producer("shop").transaction() as tx:
        tx.send(ORDERS, b"one")
        tx.roll_back()
        assert [town.lives(name) for name in town.direct] == [["rolled_back"]] * 3
    assert tx.decision is Decision.ROLLBACK
    assert tx.participants == ("b1",)
    assert town.all_told() == [[], [], []]


@pytest.mark.req("WM-19")
def test_an_exception_rolls_every_branch_back_and_comes_out(town: Town) -> None:
    with pytest.raises(Stop), town.cluster().producer("shop").transaction() as tx:
        tx.send(ORDERS, b"one")
        raise Stop
    assert [town.lives(name) for name in town.direct] == [["rolled_back"]] * 3
    assert tx.participants == ("b1",)
    assert set(town.states(tx.txid).values()) == {BranchState.ROLLED_BACK}


@pytest.mark.req("WM-20")
@pytest.mark.parametrize(("name", "raised"), [("b3", False), ("b1", True)])
def test_errors_of_a_roll_back_are_raised_for_participants_only(town: Town, name: str, raised: bool) -> None:
    with town.cluster().producer("shop").transaction() as tx:
        tx.send(ORDERS, b"one")
        town.down(name)
        if raised:
            with pytest.raises(ResourceManagerFailed, match="b1"):
                tx.roll_back()
        else:
            tx.roll_back()
    assert tx.decision is Decision.ROLLBACK
    town.up(name)
    town.recover()
    assert town.lives(name) == ["rolled_back"]


@pytest.mark.req("WM-10")
def test_every_broker_that_gave_a_message_takes_part(town: Town) -> None:
    cluster = town.cluster()
    for name in ("b1", "b2"):
        town.direct[name].producer("sellers").send("plain", name.encode())
    town.tick()
    with cluster.consumer("readers", ["plain"]) as consumer:
        found = consumer.receive(2, wait=5)
        assert {each.broker for each in found} == {"b1", "b2"}
        with cluster.producer("shop").transaction() as tx:
            for each in found:
                tx.consume(each.message)
            assert set(tx.participants) == {"b1", "b2"}
        assert set(tx.participants) == {"b1", "b2"}
        assert consumer.receive(2, wait=0) == []
    for name in ("b1", "b2"):
        assert town.stored[name].rows("SELECT * FROM claim") == []


@pytest.mark.req("WM-11", "WM-10")
def test_one_of_two_participants_that_is_down_fails_both(town: Town) -> None:
    cluster = town.cluster()
    for name in ("b1", "b2"):
        town.direct[name].producer("sellers").send("plain", name.encode())
    town.tick()
    with cluster.consumer("readers", ["plain"]) as consumer:
        found = consumer.receive(2, wait=5)
        with pytest.raises(CommunicationFailed), cluster.producer("shop").transaction() as tx:
            for each in found:
                tx.consume(each.message)
            tx.send(ORDERS, b"both read")
            town.down("b2")
    town.up("b2")
    town.recover()
    assert tx.decision is Decision.ROLLBACK
    assert set(tx.participants) >= {"b1", "b2"}
    assert town.all_told() == [[], [], []]
    assert [len(town.stored[name].rows("SELECT * FROM claim WHERE txid IS NULL")) for name in ("b1", "b2")] == [1, 1]


def test_messages_that_a_broker_could_not_store_are_not_left_out(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    add, cut = BranchRecords.add, [True]

    def once(lives: BranchRecords, life: TxRecord, rows: Sequence[Row]) -> None:
        if cut.pop():
            raise StoreUnavailable("the line is cut")
        add(lives, life, rows)

    monkeypatch.setattr(handle, "FLUSH", 0)
    monkeypatch.setattr(BranchRecords, "add", once)
    with pytest.raises(XaError, match="could not be stored"), town.cluster().producer("shop").transaction() as tx:
        with pytest.raises(StoreUnavailable):
            tx.send(ORDERS, b"one")
        with pytest.raises(TransactionError, match="could not be stored"):
            tx.send(ORDERS, b"two")
    assert tx.decision is Decision.ROLLBACK
    assert town.all_told() == [[], [], []]


def test_who_takes_no_part_is_let_go_where_the_decision_is_not_known(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object) -> None:
        raise StoreUnavailable("nobody is there")

    with pytest.raises(StoreUnavailable), town.cluster().producer("shop").transaction() as tx:
        tx.send(ORDERS, b"one")
        monkeypatch.setattr(tx._branches, "decide", silent)
    assert [town.lives(name) for name in town.direct] == [["prepared"], ["rolled_back"], ["rolled_back"]]


@pytest.mark.parametrize("others", [(), (b"small",)], ids=["nothing else", "beside another"])
def test_a_branch_that_grew_too_big_votes_no_even_if_that_error_is_dropped(
    town: Town, monkeypatch: pytest.MonkeyPatch, others: Sequence[bytes]
) -> None:
    monkeypatch.setattr("txsaga.messages.message_buffer.MOST", 1_000)
    with pytest.raises(VotedNo), town.cluster().producer("shop").transaction() as tx:
        for body in others:
            tx.send(ORDERS, body)
        with suppress(InvalidMessage):
            tx.send(ORDERS, b"x" * 2_000)
    assert town.all_told() == [[], [], []]
