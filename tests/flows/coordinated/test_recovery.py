"""Recovery as a role: what is decided comes to its resources, whoever is dead, away, slow or mistaken."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.flows.coordinated.fakes import COMMIT, ROLLBACK, Desk, FakeResource, desk
from txsaga.core.identity import StoreId
from txsaga.errors import RetryLater, RightsMissing, StoreUnavailable
from txsaga.flows import recovery as reach
from txsaga.flows.branch import BranchId, BranchState, Vote
from txsaga.flows.requests import Begin, BranchVote, Decide

NEITHER = [BranchState.COMMITTED, BranchState.COMMITTED]


@pytest.fixture
def bank() -> Iterator[Desk]:
    with desk("current", "mortgage") as opened:
        yield opened


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Give the hands of the clock by which a resource rests after a failure."""
    hands = [1_000.0]
    monkeypatch.setattr("time.monotonic", lambda: hands[0])
    return hands


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was logged as an error."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


def test_what_is_decided_is_told_and_noted(bank: Desk) -> None:
    kept, gone = bank.decided("current", "mortgage"), bank.decided("current", "mortgage", decision=ROLLBACK)
    assert bank.recovery().run_once() == 4
    assert bank.resources["current"].committed == {bank.id(kept, 1)}
    assert bank.resources["mortgage"].committed == {bank.id(kept, 2)}
    assert not bank.resources["current"].held | bank.resources["mortgage"].held
    assert bank.states(kept) == NEITHER
    assert bank.states(gone) == [BranchState.ROLLED_BACK, BranchState.ROLLED_BACK]
    assert bank.recovery().run_once() == 0


@pytest.mark.rule("R1")
@pytest.mark.rule("R9")
def test_what_nobody_decided_is_left_to_its_owner(bank: Desk) -> None:
    life = bank.begun("current", "mortgage")
    bank.clock.advance(3_600)
    assert bank.recovery().run_once() == 0
    assert bank.resources["current"].held == {bank.id(life, 1)}
    assert bank.states(life) == [BranchState.ACTIVE, BranchState.ACTIVE]


def test_what_was_decided_just_now_is_its_owners_to_tell(bank: Desk) -> None:
    life = bank.begun("current")
    bank.store.work.write([Decide(life, COMMIT, "owner 1", "", votes=[bank.voted(1)])])
    assert bank.recovery().run_once() == 0
    bank.clock.advance(2)
    assert bank.recovery().run_once() == 1


@pytest.mark.req("WM-22")
def test_the_first_thing_that_recovery_does_is_to_ask_resources_what_they_hold(bank: Desk) -> None:
    bank.decided("current", "mortgage")
    for resource in bank.resources.values():
        resource.calls.clear()
    bank.recovery().run_once()
    assert [resource.calls[0] for resource in bank.resources.values()] == ["prepared", "prepared"]


@pytest.mark.parametrize("told", [(), ("current",), ("current", "mortgage")])
def test_an_owner_that_died_between_its_acknowledgements_is_gone_on_for(bank: Desk, told: tuple[str, ...]) -> None:
    life = bank.decided("current", "mortgage")
    for number, name in enumerate(told, 1):
        bank.resources[name].finish(bank.id(life, number), COMMIT)
    assert bank.recovery().run_once() == 2
    assert bank.states(life) == NEITHER


def test_a_resource_that_is_away_rests_longer_and_longer_and_the_other_is_told_at_once(
    bank: Desk, now: list[float]
) -> None:
    away, recovery = bank.resources["current"], bank.recovery()
    life = bank.decided("current", "mortgage")
    away.failure = StoreUnavailable("nobody listens")
    away.calls.clear()
    tried = []
    for _ in range(200):
        recovery.run_once()
        if away.calls:
            tried.append(now[0])
            away.calls.clear()
        now[0] += 1
    assert bank.states(life) == [BranchState.PREPARED, BranchState.COMMITTED]
    assert recovery.seen["current"].away
    assert not recovery.seen["mortgage"].away
    pauses = [later - earlier for earlier, later in pairwise(tried)]
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    away.failure = None
    now[0] += reach.LONGEST
    assert recovery.run_once() == 1
    assert bank.states(life) == NEITHER
    assert not recovery.seen["current"].away


def test_a_resource_that_is_back_is_not_called_away_though_nothing_waits_for_it(bank: Desk, now: list[float]) -> None:
    away, recovery = bank.resources["current"], bank.recovery()
    bank.decided("current", "mortgage")
    recovery.run_once()
    away.failure = StoreUnavailable("nobody listens")
    now[0] += reach.LONGEST
    recovery.run_once()
    assert (recovery.seen["current"].away, recovery.seen["current"].why) == (True, "nobody listens")
    away.failure = None
    now[0] += reach.LONGEST
    recovery.run_once()
    assert (recovery.seen["current"].away, recovery.seen["current"].why) == (False, "")


def test_a_resource_that_does_not_answer_keeps_nobody_waiting(bank: Desk) -> None:
    life = bank.decided("current", "mortgage")
    slow, recovery = bank.resources["current"], bank.recovery(patience=0.01)
    slow.open.clear()
    while bank.states(life)[1] is not BranchState.COMMITTED:
        recovery.run_once()
    before = len(slow.calls)
    recovery.run_once()
    assert len(slow.calls) == before  # it is not asked again while it is being asked
    slow.open.set()
    while bank.states(life)[0] is not BranchState.COMMITTED:
        recovery.run_once()


def test_one_branch_that_is_refused_does_not_keep_those_behind_it(bank: Desk, caplog: pytest.LogCaptureFixture) -> None:
    first, second = bank.decided("current"), bank.decided("current")
    bank.resources["current"].refused[bank.id(first, 1)] = RightsMissing("only carol may finish it")
    recovery = bank.recovery()
    assert recovery.run_once() == 1
    assert (bank.states(first), bank.states(second)) == ([BranchState.PREPARED], [BranchState.COMMITTED])
    recovery.run_once()
    assert errors(caplog) == ["1 branches in resource 'current' are not finished: only carol may finish it"]
    bank.resources["current"].refused.clear()
    assert recovery.run_once() == 1


def test_whatever_a_resource_raises_is_its_own_failure(bank: Desk) -> None:
    life = bank.decided("current", "mortgage")
    bank.resources["current"].failure = ZeroDivisionError("a driver's own")
    assert bank.recovery().run_once() == 1
    assert bank.states(life) == [BranchState.PREPARED, BranchState.COMMITTED]


@pytest.mark.req("WM-46")
def test_what_its_session_still_holds_is_told_later_and_nobody_rests(bank: Desk) -> None:
    life = bank.decided("current")
    bank.resources["current"].refused[bank.id(life, 1)] = RetryLater("busy")
    recovery = bank.recovery()
    assert recovery.run_once() == 0
    assert bank.states(life) == [BranchState.PREPARED]
    bank.resources["current"].refused.clear()
    assert recovery.run_once() == 1


def test_branches_of_a_resource_that_is_not_known_here_wait_for_a_process_that_knows_it(
    bank: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    life = bank.decided("current", "mortgage")
    unknown = bank.resources.pop("current")
    recovery = bank.recovery()
    assert recovery.run_once() == 1
    assert bank.states(life) == [BranchState.PREPARED, BranchState.COMMITTED]
    assert "resource 'current' is not registered here" in caplog.text
    bank.resources["current"] = unknown
    assert bank.recovery().run_once() == 1


@pytest.mark.rule("R10")
def test_a_name_that_leads_to_another_database_is_not_believed(bank: Desk, caplog: pytest.LogCaptureFixture) -> None:
    life, recorded = bank.decided("current"), bank.resources["current"]
    other = bank.resources["current"] = FakeResource("current")
    recovery = bank.recovery()
    assert recovery.run_once() == 0
    assert (bank.states(life), other.calls) == ([BranchState.PREPARED], [])
    assert "points to another database than the recorded one" in errors(caplog)[0]
    assert recorded.held == {bank.id(life, 1)}


@pytest.mark.rule("R9")
def test_an_attempt_that_the_decision_does_not_name_is_rolled_back(bank: Desk) -> None:
    life = bank.begun("current")
    with bank.store.ledgers.open() as ledger:
        later = ledger.take_over(life.txid)
        ledger.name(later, [bank.kernel.participant("current")[0].id])
    named = bank.id(life, 1, attempt=2)
    bank.resources["current"].held.add(named)
    bank.store.work.write([Decide(later, COMMIT, "owner 2", "", votes=[BranchVote(1, 2, Vote.PREPARED)])])
    bank.clock.advance(60)
    assert bank.recovery().run_once() == 2
    assert (bank.resources["current"].committed, bank.resources["current"].held) == ({named}, set())
    assert bank.states(life) == [BranchState.ROLLED_BACK, BranchState.COMMITTED]


@pytest.mark.rule("R4")
def test_an_attempt_that_was_taken_over_gives_its_locks_back_before_the_decision(bank: Desk) -> None:
    life = bank.begun("current")
    with bank.store.ledgers.open() as ledger:
        ledger.name(ledger.take_over(life.txid), [bank.kernel.participant("current")[0].id])
    living = bank.id(life, 1, attempt=2)
    bank.resources["current"].held.add(living)
    assert bank.recovery().run_once() == 1
    assert bank.resources["current"].held == {living}


@pytest.mark.rule("R9")
def test_what_was_prepared_again_after_its_end_is_rolled_back(bank: Desk) -> None:
    life = bank.decided("current", decision=ROLLBACK)
    bank.recovery().run_once()
    bank.resources["current"].held.add(bank.id(life, 1))  # a zombie's
    assert bank.recovery().run_once() == 1
    assert not bank.resources["current"].held


@pytest.mark.rule("R9")
def test_what_nobody_named_is_rolled_back_once_its_transaction_can_not_name_it_any_more(bank: Desk) -> None:
    life = bank.begun("current")
    unnamed = bank.id(life, 7)
    bank.resources["current"].held.add(unnamed)
    assert bank.recovery().run_once() == 0
    bank.store.work.write([Decide(life, ROLLBACK, "owner 1", "")])
    assert bank.recovery().run_once() == 1
    assert unnamed not in bank.resources["current"].held


def test_what_others_finish_while_recovery_looks_is_no_orphan(bank: Desk, caplog: pytest.LogCaptureFixture) -> None:
    life = bank.decided("current")
    one, current = bank.recovery(), bank.resources["current"]

    def finished() -> None:
        current.meanwhile = lambda: None
        bank.recovery().run_once()

    current.meanwhile = finished
    assert one.run_once() == 0
    assert bank.states(life) == [BranchState.COMMITTED]
    assert "belongs to no decision" not in caplog.text


@pytest.mark.rule("R8")
def test_what_other_stores_prepared_is_not_touched(bank: Desk) -> None:
    bank.begun("current")
    other = BranchId(StoreId(bank.resources["current"].database, 1).transaction(7), 1)
    bank.resources["current"].held.add(other)
    bank.recovery().run_once()
    assert other in bank.resources["current"].held


@pytest.mark.rule("R8")
def test_what_an_earlier_life_of_the_store_prepared_is_listed_and_never_presumed(
    bank: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    bank.begun("current")
    earlier = BranchId(StoreId(bank.store.registry.identity.uuid, 9).transaction(7), 1)
    bank.resources["current"].held.add(earlier)
    recovery = bank.recovery()
    recovery.run_once()
    recovery._scan_at = 0.0
    recovery.run_once()
    assert earlier in bank.resources["current"].held
    assert recovery.seen["current"].earlier == (earlier.gid,)
    assert [line for line in errors(caplog) if "earlier incarnation" in line] == [
        f"branch {earlier.gid} in 'current' is of an earlier incarnation: settle it by hand"
    ]


def test_two_recoveries_finish_each_branch_once(bank: Desk) -> None:
    lives = [bank.decided("current", "mortgage") for _ in range(5)]
    one, two = bank.recovery(), bank.recovery()
    current = bank.resources["current"]
    found: list[int] = []

    def beside() -> None:
        current.meanwhile = lambda: None
        found.append(two.run_once())

    current.meanwhile = beside
    assert one.run_once() + found[0] == 10
    assert all(bank.states(life) == NEITHER for life in lives)


@pytest.mark.req("WM-45")
def test_a_heuristic_is_recorded_once_and_logged_as_an_error_once(bank: Desk, caplog: pytest.LogCaptureFixture) -> None:
    life = bank.decided("current", "mortgage")
    current = bank.resources["current"]
    current.held.clear()  # an administrator rolled it back

    def beside() -> None:
        current.behind = lambda: None
        bank.recovery().run_once()

    current.behind = beside
    bank.recovery().run_once()
    bank.recovery().run_once()
    assert bank.states(life) == [BranchState.HEURISTIC_ROLLED_BACK, BranchState.COMMITTED]
    assert errors(caplog) == [
        f"branch 1 of transaction {life.txid}: found rolled_back while COMMIT was decided; "
        "see `txsaga branch heuristics`"
    ]


@pytest.mark.req("WM-45")
def test_each_way_to_decide_over_our_head_has_a_state_of_its_own(bank: Desk) -> None:
    hazard, lost, kept = bank.decided("current"), bank.decided("current"), bank.decided("current", decision=ROLLBACK)
    current = bank.resources["current"]
    current.hazards.add(bank.id(hazard, 1))
    current.held.discard(bank.id(lost, 1))
    current.committed.add(bank.id(kept, 1))
    bank.recovery().run_once()
    assert [bank.states(life) for life in (hazard, lost, kept)] == [
        [BranchState.HEURISTIC_HAZARD],
        [BranchState.HEURISTIC_ROLLED_BACK],
        [BranchState.HEURISTIC_COMMITTED],
    ]
    assert bank.recovery().run_once() == 0
    assert bank.id(hazard, 1) in current.held


def test_more_branches_than_a_page_holds_are_all_finished(bank: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txsaga.flows.recovery.PAGE", 2)
    lives = [bank.decided("current", "mortgage") for _ in range(4)]
    bank.resources["mortgage"].failure = StoreUnavailable("nobody listens")
    assert bank.recovery().run_once() == 4
    assert all(bank.states(life) == [BranchState.COMMITTED, BranchState.PREPARED] for life in lives)


def test_each_step_of_recovery_is_announced(bank: Desk) -> None:
    bank.decided("current")
    bank.facts.clear()
    bank.recovery().run_once()
    assert bank.facts == ["Finishing", "Finished", "Noting", "Noted"]


def test_a_transaction_without_branches_is_none_of_its_business(bank: Desk) -> None:
    (life,) = bank.store.work.write([Begin(bank.group, [])])
    bank.store.work.write([Decide(life, COMMIT, "owner 1", "")])
    bank.clock.advance(60)
    assert bank.recovery().run_once() == 0
