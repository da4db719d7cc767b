"""Every code of a resource manager: what it makes of a transaction, and whether it is tried again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

import txsaga
from tests.errors.tree import every_error
from tests.flows.coordinated.actor import Actor
from tests.flows.coordinated.bank import START, Bank, pay
from txsaga.core.decision import Decision
from txsaga.errors import (
    AsyncPending,
    CommunicationFailed,
    ConfigError,
    Deadlocked,
    DuplicateBranch,
    Heuristic,
    HeuristicCommit,
    HeuristicHazard,
    HeuristicMixed,
    HeuristicRollback,
    IntegrityViolated,
    InvalidArguments,
    NoMigration,
    OtherReason,
    OutsideTransaction,
    ProtocolBroken,
    ProtocolError,
    ReadOnly,
    ResourceManagerError,
    ResourceManagerFailed,
    RetryLater,
    RolledBack,
    TimedOut,
    TransactionError,
    TransientFailure,
    Unfinished,
    UnknownBranch,
    XaError,
)
from txsaga.flows.branch import BranchState, Finish, Vote
from txsaga.flows.coordinated import Coordinated

pytestmark = pytest.mark.postgres

CODES = {kind.number: kind for kind in every_error(XaError) if issubclass(kind, XaError) and "number" in vars(kind)}
"""Each code with the most special class that has it."""
NO = {
    100: RolledBack,
    101: CommunicationFailed,
    102: Deadlocked,
    103: IntegrityViolated,
    104: OtherReason,
    105: ProtocolBroken,
    106: TimedOut,
    107: TransientFailure,
}
HEURISTIC = {
    5: (HeuristicMixed, Finish.MIXED, BranchState.HEURISTIC_MIXED),
    6: (HeuristicRollback, Finish.ROLLED_BACK, BranchState.HEURISTIC_ROLLED_BACK),
    7: (HeuristicCommit, Finish.COMMITTED, BranchState.HEURISTIC_COMMITTED),
    8: (HeuristicHazard, Finish.HAZARD, BranchState.HEURISTIC_HAZARD),
}
OTHERS = {
    3: (ReadOnly, False),
    4: (RetryLater, True),
    9: (NoMigration, False),
    -2: (AsyncPending, False),
    -3: (ResourceManagerError, False),
    -4: (UnknownBranch, False),
    -5: (InvalidArguments, False),
    -6: (ProtocolError, False),
    -7: (ResourceManagerFailed, True),
    -8: (DuplicateBranch, False),
    -9: (OutsideTransaction, False),
}


@pytest.fixture
def actor(bank: Bank) -> Actor:
    actor = Actor("actor")
    bank.broker.enlist("actor", actor)
    return actor


def work(tx: Coordinated) -> str:
    """Write in a database, and in the resource."""
    with tx.on("current") as connection:
        pay(connection, -10)
    with tx.on("actor"):
        return "done"


def opening(bank: Bank) -> Callable[[], Coordinated]:
    return lambda: bank.producer.coordinated("current", "actor")


@pytest.mark.req("WM-44", "WM-15")
@pytest.mark.parametrize(("number", "kind"), NO.items())
def test_a_code_of_roll_back_rolls_everything_back(bank: Bank, actor: Actor, number: int, kind: type[XaError]) -> None:
    actor.vote = [kind("no")]
    with pytest.raises(kind), bank.producer.coordinated("current", "actor") as tx:
        work(tx)
    assert kind.number == number
    assert tx.decision is Decision.ROLLBACK
    assert bank.balances()["current"] == START
    assert bank.stored.value("SELECT state FROM tx WHERE txid = :txid", txid=tx.txid) == "rolled_back"


@pytest.mark.req("WM-44")
@pytest.mark.parametrize("kind", NO.values())
def test_only_a_failure_that_will_pass_is_tried_again(bank: Bank, actor: Actor, kind: type[XaError]) -> None:
    actor.vote = [kind("not now"), kind("not now"), Vote.PREPARED]
    if kind is TransientFailure:
        assert txsaga.again(opening(bank), work) == "done"
        assert bank.balances()["current"] == START - 10
    else:
        with pytest.raises(kind):
            txsaga.again(opening(bank), work)
        assert bank.balances()["current"] == START
    assert kind.retryable is (kind is TransientFailure)


@pytest.mark.req("WM-44")
def test_it_is_not_tried_for_ever(bank: Bank, actor: Actor) -> None:
    actor.vote = [TransientFailure("never")]
    with pytest.raises(TransientFailure):
        txsaga.again(opening(bank), work, attempts=2)
    assert actor.told == [Decision.ROLLBACK] * 2
    with pytest.raises(ConfigError, match="attempts"):
        txsaga.again(opening(bank), work, attempts=0)


@pytest.mark.req("WM-45")
@pytest.mark.parametrize(("number", "found"), HEURISTIC.items())
def test_what_somebody_decided_over_a_head_is_kept_with_its_state(
    bank: Bank, actor: Actor, number: int, found: tuple[type[XaError], Finish, BranchState]
) -> None:
    kind, actor.end, state = found
    with suppress(Heuristic), bank.producer.coordinated("current", "actor") as tx:
        work(tx)
    assert tx.txid is not None
    assert kind.number == number
    assert bank.states(tx.txid)["actor"] is state
    assert [each.resource for each in bank.broker.kernel.store.work.branches_in([state])] == ["actor"]


@pytest.mark.req("WM-45")
@pytest.mark.parametrize(("_", "found", "state"), HEURISTIC.values())
def test_recovery_finds_it_too_and_sounds_an_alarm(
    bank: Bank, actor: Actor, _: object, found: Finish, state: BranchState, caplog: pytest.LogCaptureFixture
) -> None:
    actor.end = ResourceManagerFailed("away")
    with pytest.raises(Unfinished), bank.producer.coordinated("current", "actor") as tx:
        work(tx)
    actor.end = found
    bank.recover()
    assert tx.txid is not None
    assert bank.states(tx.txid)["actor"] is state
    said = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [record for record in said if "COMMIT was decided" in record.getMessage()]


@pytest.mark.req("WM-46")
@pytest.mark.parametrize(("number", "known"), OTHERS.items())
def test_every_other_code_has_one_class_and_one_policy(number: int, known: tuple[type[XaError], bool]) -> None:
    kind, retried = known
    assert CODES[number] is kind
    assert kind.retryable is retried
    assert kind.__doc__ is not None


@pytest.mark.req("WM-44", "WM-45", "WM-46")
def test_there_are_no_other_codes() -> None:
    assert set(CODES) == NO.keys() | HEURISTIC.keys() | OTHERS.keys()


@pytest.mark.req("WM-46")
def test_a_read_only_branch_hears_of_no_second_phase(bank: Bank, actor: Actor) -> None:
    actor.vote = [Vote.READ_ONLY]
    with bank.producer.coordinated("current", "actor") as tx:
        work(tx)
    assert (tx.decision, actor.told) == (Decision.COMMIT, [])


@pytest.mark.req("WM-46")
@pytest.mark.parametrize("kind", [ResourceManagerFailed, ResourceManagerError, OutsideTransaction])
def test_an_error_at_the_vote_is_never_a_yes(bank: Bank, actor: Actor, kind: type[XaError]) -> None:
    actor.vote = [kind("no answer")]
    with pytest.raises(TransactionError), bank.producer.coordinated("current", "actor") as tx:
        work(tx)
    assert tx.decision is Decision.ROLLBACK
    assert bank.balances()["current"] == START
