"""R15: a branch that voted yes is its coordinator's; its own broker neither checks it nor rolls it back."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.contracts.samples import read
from tests.scene.rules import AT_ONCE, OpenBroker
from tests.scene.stored import Stored
from txsaga import Broker
from txsaga.checkback.by_hand import ByHand
from txsaga.checkback.doubt_context import DoubtContext
from txsaga.checkback.profile import Exhausted
from txsaga.checkback.round import Exhaustion
from txsaga.core.decision import Decision
from txsaga.core.identity import StoreId
from txsaga.errors import InDoubt, ProtocolError, VotedNo
from txsaga.flows.branch import BranchId, Finish, Vote
from txsaga.resources.broker import BrokerWork, StoreParticipant
from txsaga.resources.participant import EnlistedBranch
from txsaga.testing.checking import check_once

pytestmark = [pytest.mark.postgres, pytest.mark.rule("R15")]

COMMIT, ROLLBACK = Decision.COMMIT, Decision.ROLLBACK
LONG_AGO = 30 * 86_400.0


@pytest.fixture
def broker(open_broker: OpenBroker) -> Broker:
    broker = open_broker()
    broker.create_topic("orders", "transaction", queues=1)
    return broker


@pytest.fixture
def participant(broker: Broker) -> StoreParticipant:
    return StoreParticipant(broker, name="shop")


@pytest.fixture
def stored(store_url: str) -> Stored:
    return Stored(store_url)


def named() -> BranchId:
    return BranchId(StoreId(uuid4(), 1).transaction(7), 1)


def working(participant: StoreParticipant, branch: BranchId) -> EnlistedBranch:
    enlisted = participant.enlist(branch)
    assert isinstance(enlisted.handle, BrokerWork)
    enlisted.handle.send("orders", b"one")
    return enlisted


def voted(participant: StoreParticipant, branch: BranchId) -> None:
    enlisted = working(participant, branch)
    assert enlisted.prepare()() is Vote.PREPARED
    enlisted.leave()


def txid_of(stored: Stored) -> int:
    found = stored.value("SELECT max(txid) FROM tx")
    assert isinstance(found, int)
    return found


def seen(broker: Broker) -> list[str]:
    return read(broker.kernel.store, broker.kernel.store.registry.topic("orders").qids[0])


def test_no_check_of_its_own_touches_what_voted_yes(
    broker: Broker, participant: StoreParticipant, stored: Stored
) -> None:
    branch = named()
    voted(participant, branch)
    for _ in range(3):
        stored.let_pass(LONG_AGO)
        check_once(broker, AT_ONCE)
    assert list(participant.prepared(branch.store)) == [branch]
    assert stored.rows("SELECT * FROM doubt") == []
    assert seen(broker) == []
    assert participant.finish(branch, COMMIT) is Finish.DONE
    assert seen(broker) == ["one"]


def test_what_was_listed_before_it_voted_is_neither_counted_nor_given_up(
    broker: Broker, participant: StoreParticipant, stored: Stored
) -> None:
    branch = named()
    voted(participant, branch)
    stored.rows("INSERT INTO doubt (txid, pgroup, keyed) SELECT txid, pgroup, true FROM tx")
    for _ in range(3):
        stored.let_pass(LONG_AGO)
        check_once(broker, AT_ONCE)
    assert stored.rows("SELECT checks, parked FROM doubt") == [(0, None)]
    assert list(participant.prepared(branch.store)) == [branch]


def test_its_group_is_never_asked_to_give_it_up(broker: Broker, participant: StoreParticipant, stored: Stored) -> None:
    branch, asked = named(), list[object]()
    voted(participant, branch)
    broker.when_exhausted(f"coordinator-{branch.store}", asked.append)
    stored.rows("INSERT INTO doubt (txid, pgroup, keyed) SELECT txid, pgroup, true FROM tx")
    stored.let_pass(LONG_AGO)
    check_once(broker, AT_ONCE)
    assert asked == []


@pytest.mark.parametrize("on_exhausted", list(Exhausted))
def test_whatever_its_group_says_it_is_not_given_up(
    broker: Broker, participant: StoreParticipant, stored: Stored, on_exhausted: Exhausted
) -> None:
    branch = named()
    voted(participant, branch)
    doubt = broker.kernel.store.doubts.of(txid_of(stored))
    assert doubt is not None
    stored.rows("INSERT INTO doubt (txid, pgroup, keyed) SELECT txid, pgroup, true FROM tx")
    with pytest.raises(InDoubt):
        Exhaustion(broker.kernel)(DoubtContext(broker.kernel.store, doubt), "out of checks", on_exhausted)
    assert list(participant.prepared(branch.store)) == [branch]


def test_until_it_voted_a_silent_owner_is_taken_for_dead_and_its_later_vote_is_a_no(
    broker: Broker, participant: StoreParticipant, stored: Stored
) -> None:
    branch = named()
    enlisted = working(participant, branch)
    stored.let_pass(LONG_AGO)
    check_once(broker, AT_ONCE)
    with pytest.raises(VotedNo):
        enlisted.prepare()()
    assert participant.finish(branch, ROLLBACK) is Finish.DONE
    assert participant.guests() == []
    assert seen(broker) == []


def test_a_person_must_force_it_and_its_coordinator_hears_of_that(
    broker: Broker, participant: StoreParticipant, stored: Stored
) -> None:
    branch = named()
    voted(participant, branch)
    hands, txid = ByHand(broker.kernel), txid_of(stored)
    for decision in (COMMIT, ROLLBACK):
        with pytest.raises(InDoubt, match="force"):
            hands.decide(txid, decision, who="anna", why="it waits for days")
    hands.decide(txid, ROLLBACK, who="anna", why="it waits for days", force=True)
    assert participant.finish(branch, COMMIT) is Finish.ROLLED_BACK
    assert [guest.txid for _, guest in participant.guests()] == [txid]
    participant.forget(branch)
    assert participant.guests() == []


def test_force_that_was_right_is_no_heuristic(broker: Broker, participant: StoreParticipant, stored: Stored) -> None:
    branch = named()
    voted(participant, branch)
    ByHand(broker.kernel).decide(txid_of(stored), COMMIT, who="anna", why="it waits for days", force=True)
    assert participant.finish(branch, COMMIT) is Finish.DONE
    assert participant.guests() == []


@pytest.mark.req("WM-48")
def test_what_is_not_decided_can_not_be_forgotten(participant: StoreParticipant) -> None:
    branch = named()
    voted(participant, branch)
    with pytest.raises(ProtocolError):
        participant.forget(branch)
    assert list(participant.prepared(branch.store)) == [branch]
