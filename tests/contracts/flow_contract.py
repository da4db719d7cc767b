"""What every store promises of flows: their steps by attempts, their lanes' units, their journals, what they hold."""

# The name of a test is a sentence.

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from tests.contracts.samples import COMMIT, ROLLBACK, decide_life, new_group
from tests.contracts.timing import IN_TIME, OVER, Later
from txsaga.core.decision import Decision
from txsaga.core.lifecycle import TxEvent
from txsaga.core.records import TxRecord
from txsaga.errors import TransactionClosed
from txsaga.flows.branch import BranchEvent, BranchState, Vote
from txsaga.flows.journal import JournalEntry, Journalled
from txsaga.flows.requests import BranchOutcome
from txsaga.flows.step import Amendment, Enrolled, Hold, Left, Step, StepState, Unit
from txsaga.store.store import Store

HOUR = timedelta(hours=1)
WHERE = (Enrolled("current"), Enrolled("mortgage", True, timedelta(seconds=0.5)))


def begun(store: Store, lease: timedelta = HOUR) -> TxRecord:
    """Begin a flow in two resources."""
    for at, name in enumerate(("current", "mortgage"), 1):
        store.registry.enlist(store.registry.resource(name, UUID(int=at)).id)
    with store.ledgers.open() as ledger:
        life = ledger.create(new_group(store), "transfer-7", 1, lease=lease)
        assert life is not None
        ledger.flows.enrol(life.txid, WHERE)
    return life


def step(life: TxRecord, number: int = 1, attempt: int = 1, **more: object) -> Step:
    """Make an attempt of a step that is held prepared."""
    made = Step(life.txid, number, attempt, f"step {number}", hold=Hold.PREPARED, resource="current")
    return made._replace(**more)  # type: ignore[arg-type]


def held(store: Store, life: TxRecord, number: int = 1, attempt: int = 1, *, lane: bool = False) -> Step:
    """Do a step and leave it prepared."""
    where = "mortgage" if lane else "current"
    recorded = store.registry.resource(where, UUID(int=2 if lane else 1))
    with store.ledgers.open() as ledger:
        flows = ledger.flows
        branch = flows.name(life.txid, recorded.id, attempt, aux=lane, number=None if attempt == 1 else number)
        work = step(life, number, attempt, branch=branch, resource=where, lane=lane, unit=int(lane))
        flows.start(work)
        flows.hold(life.txid, (branch, attempt), Vote.PREPARED)
        flows.end(work.finished())
    return work


def unfinished(store: Store) -> list[tuple[int, int, Decision]]:
    """Return what resources are to be told."""
    return [(each.number, each.attempt, decision) for each, decision in store.work.unfinished()]


class FlowContract:
    """Flows, as the ports `FlowLedger` and `Flows` promise them."""

    def test_a_flow_keeps_its_lease_and_where_it_may_work(self, store: Store) -> None:
        life = begun(store)
        with store.ledgers.open() as ledger:
            assert ledger.lock(life.txid) == life
            assert life.lease == HOUR
            assert tuple(ledger.flows.enrolled(life.txid)) == WHERE

    def test_a_flow_is_found_with_all_that_a_step_has_to_know(self, store: Store) -> None:
        life, entry = begun(store), JournalEntry("insert into t values (:a)", {"a": "1"}, None)
        with store.ledgers.open() as ledger:
            assert ledger.flows.look(life.txid + 1) is None
            assert ledger.flows.enter(life.txid + 1) is None
            ledger.flows.start(step(life))
            ledger.flows.end(step(life).finished(), [entry])
            assert list(ledger.flows.journal(life.txid)) == [Journalled(1, 1, "current", 0, *entry)]
            ledger.flows.amend(life.txid, Amendment("run 2", 7))
            for found in (ledger.flows.look(life.txid), ledger.flows.enter(life.txid)):
                assert found is not None
                assert (found.life, found.standing, found.amendment) == (life, None, Amendment("run 2", 7))
                assert tuple(found.enrolled) == WHERE
                assert list(found.steps) == list(ledger.flows.steps(life.txid))
                assert [(each.state, each.statements) for each in found.steps] == [(StepState.DONE, 1)]

    def test_a_flow_that_is_decided_is_found_with_its_decision(self, store: Store) -> None:
        life = begun(store)
        with store.ledgers.open() as ledger:
            decide_life(ledger, life.txid, ROLLBACK)
        with store.ledgers.open() as ledger:
            for found in (ledger.flows.look(life.txid), ledger.flows.enter(life.txid)):
                assert found is not None
                assert found.standing is Decision.ROLLBACK

    def test_whoever_enters_a_flow_is_heard_of(self, store: Store, later: Later) -> None:
        life = begun(store, timedelta(seconds=IN_TIME))
        later(OVER)
        store.doubts.sweep(timedelta(0))
        assert [doubt.txid for doubt in store.doubts.due(10)] == [life.txid]
        with store.ledgers.open() as ledger:
            ledger.flows.look(life.txid)
        assert [doubt.txid for doubt in store.doubts.due(10)] == [life.txid]
        with store.ledgers.open() as ledger:
            ledger.flows.enter(life.txid)
        assert list(store.doubts.due(10)) == []

    def test_steps_are_kept_by_their_attempts(self, store: Store) -> None:
        life = begun(store)
        with store.ledgers.open() as ledger:
            ledger.flows.start(step(life))
            ledger.flows.end(step(life).failed("it rained"))
            ledger.flows.start(step(life, attempt=2))
            ledger.flows.start(step(life, 2, resource=None, hold=None, mark="app-1"))
            ledger.flows.end(step(life, 2, mark="app-2").finished(output='"a reference"'))
        with store.ledgers.open() as ledger:
            found = ledger.flows.steps(life.txid)
            assert ledger.flows.steps(life.txid, "step 2") == found[2:]
        assert [(each.name, each.attempt, each.state, each.left, each.error) for each in found] == [
            ("step 1", 1, StepState.FAILED, Left.UNKNOWN, "it rained"),
            ("step 1", 2, StepState.STARTED, Left.UNKNOWN, ""),
            ("step 2", 1, StepState.DONE, Left.WORK, ""),
        ]
        assert all(each.started is not None and each.at is not None for each in found)
        assert (found[2].resource, found[2].hold) == (None, None)
        assert (found[2].mark, found[2].output) == ("app-2", '"a reference"')
        assert store.work.steps(life.txid) == []  # there is nothing to undo

    @pytest.mark.rule("R4", "R17")
    def test_a_new_attempt_drops_what_the_one_before_journalled(self, store: Store) -> None:
        life = begun(store)
        said = [
            JournalEntry(f"insert into t values ({at})", {"a": at, "b": {"$date": "2026-01-01"}}, at) for at in (2, 1)
        ]
        with store.ledgers.open() as ledger:
            for number, entries in ((1, said), (2, said[:1])):
                work = step(life, number, hold=Hold.JOURNAL)
                ledger.flows.start(work)
                ledger.flows.end(work.finished(), entries)
            places = [(1, 1, said[0]), (1, 2, said[1]), (2, 1, said[0])]
            expected = [Journalled(number, seq, "current", 0, *entry) for number, seq, entry in places]
            assert list(ledger.flows.journal(life.txid)) == expected
            ledger.flows.start(step(life, 2, 2, hold=Hold.JOURNAL))
            assert list(ledger.flows.journal(life.txid)) == expected[:2]

    def test_branches_are_numbered_on_and_an_attempt_keeps_its_number(self, store: Store) -> None:
        life = begun(store)
        first, second, again = held(store, life), held(store, life, 2), held(store, life, 1, 2)
        assert (first.branch, second.branch, again.branch) == (1, 2, 1)
        found = [(each.number, each.attempt, each.state) for each in store.work.branches(life.txid)]
        assert found == [(1, 1, BranchState.ENDED), (1, 2, BranchState.ENDED), (2, 1, BranchState.ENDED)]

    @pytest.mark.rule("R4", "R9")
    def test_what_is_settled_by_itself_is_told_before_the_flow_is_decided(self, store: Store) -> None:
        life = begun(store)
        held(store, life), held(store, life, 2, lane=True), held(store, life, 3)
        with store.ledgers.open() as ledger:
            ledger.flows.settle(life.txid, [(1, 1)], ROLLBACK)
            ledger.flows.settle(life.txid, [(2, 1)], COMMIT)
        assert unfinished(store) == [(1, 1, ROLLBACK), (2, 1, COMMIT)]
        assert store.work.write([BranchOutcome(life.txid, 1, 1, BranchEvent.ROLL_BACK)]) == [True]
        assert store.work.write([BranchOutcome(life.txid, 2, 1, BranchEvent.COMMIT)]) == [True]
        assert store.work.write([BranchOutcome(life.txid, 3, 1, BranchEvent.ROLL_BACK)]) == [False]
        assert unfinished(store) == []

    def test_a_unit_that_committed_is_not_undone_by_the_flow(self, store: Store) -> None:
        life = begun(store)
        held(store, life, lane=True), held(store, life, 2)
        with store.ledgers.open() as ledger:
            ledger.flows.settle(life.txid, [(1, 1)], COMMIT)
        with store.ledgers.open() as ledger:
            ledger.write_op(life.txid, ROLLBACK, from_check=False)
        assert unfinished(store) == [(1, 1, COMMIT), (2, 1, ROLLBACK)]

    def test_units_are_kept_as_they_are_now(self, store: Store) -> None:
        life, unit = begun(store), Unit("mortgage", 1)
        with store.ledgers.open() as ledger:
            ledger.flows.put(life.txid, unit)
            ledger.flows.put(life.txid, Unit("mortgage", 2))
            ledger.flows.put(life.txid, unit._replace(branch=3, attempt=2, decision=COMMIT))
        with store.ledgers.open() as ledger:
            found = ledger.flows.units(life.txid)
        assert [each[:5] for each in found] == [("mortgage", 1, 3, 2, COMMIT), ("mortgage", 2, None, 0, None)]
        assert all(each.at is not None for each in found)

    @pytest.mark.rule("R3")
    def test_whoever_ends_a_flow_raises_its_owner_and_only_while_it_is_open(self, store: Store) -> None:
        life = begun(store)
        with store.ledgers.open() as ledger:
            assert ledger.flows.take_over(life).owner == 2
            assert ledger.flows.take_over(life).owner == 3
        with store.ledgers.open() as ledger:
            ledger.lock(life.txid)
            ledger.write_op(life.txid, ROLLBACK, from_check=False)
            ledger.move(life.txid, TxEvent.ROLL_BACK)
        with pytest.raises(TransactionClosed), store.ledgers.open() as ledger:
            ledger.flows.take_over(life)

    def test_locks_are_counted_by_resource(self, store: Store) -> None:
        life = begun(store)
        held(store, life), held(store, life, 2, lane=True)
        assert [each[:2] for each in store.flows.held()] == [("current", 1), ("mortgage", 1)]
        assert [each.resource for each in store.flows.overdue()] in ([], ["mortgage"])
        with store.ledgers.open() as ledger:
            ledger.flows.settle(life.txid, [(1, 1)], ROLLBACK)
        assert [each[:2] for each in store.flows.held()] == [("mortgage", 1)]

    def test_a_step_that_holds_its_locks_for_too_long_is_overdue_until_that_is_noted(
        self, store: Store, later: Later
    ) -> None:
        life = begun(store)
        held(store, life, lane=True)
        later(1)
        (late,) = store.flows.overdue()
        assert late[:6] == (life.txid, 1, 1, "step 1", "mortgage", True)
        assert late.held > late.budget == timedelta(seconds=0.5)
        assert [each[:3] for each in store.flows.held()] == [("mortgage", 1, 1)]
        with store.ledgers.open() as ledger:
            assert ledger.flows.alarm(life.txid, 1, 1)
            assert not ledger.flows.alarm(life.txid, 1, 1)
        assert store.flows.overdue() == []

    def test_a_flow_is_traced_with_its_steps_and_units(self, store: Store) -> None:
        life = begun(store)
        held(store, life)
        with store.ledgers.open() as ledger:
            ledger.flows.put(life.txid, Unit("mortgage", 1))
        trace = store.overview.trace(life.txid)
        assert trace is not None
        assert [each.name for each in trace.steps] == ["step 1"]
        assert [each.number for each in trace.units] == [1]
        assert trace.life is not None
        assert trace.life.flow

    def test_why_a_life_was_begun_is_kept_and_both_are_shown_what_amends_them(self, store: Store) -> None:
        first = begun(store)
        with store.ledgers.open() as ledger:
            assert ledger.flows.amendment(first.txid) is None
            ledger.flows.amend(first.txid, Amendment("monday"))
            decide_life(ledger, first.txid, COMMIT)
            second = ledger.create(first.group, first.key, 2, lease=HOUR)
            assert second is not None
            for word in ("tuesday", "wednesday"):
                ledger.flows.amend(second.txid, Amendment(word, first.txid))
        with store.ledgers.open() as ledger:
            assert ledger.flows.amendment(first.txid) == Amendment("monday", None)
            assert ledger.flows.amendment(second.txid) == Amendment("wednesday", first.txid)
        assert amended(store, first, second) == [(None, None), (first.txid, None)]
        with store.ledgers.open() as ledger:
            decide_life(ledger, second.txid, COMMIT)
        assert amended(store, first, second) == [(None, second.txid), (first.txid, None)]


def amended(store: Store, *lives: TxRecord) -> list[tuple[int | None, int | None]]:
    """Return what lives amend, and what amends them, as they are shown."""
    found = []
    for life in lives:
        trace = store.overview.trace(life.txid)
        assert trace is not None
        found.append((trace.amends, trace.amended_as and trace.amended_as.txid))
    return found
