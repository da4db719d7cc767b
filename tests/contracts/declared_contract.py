"""What every store promises of steps of flows that are to be undone: written down before they run, then a saga's."""

# The name of a test is a sentence.

from __future__ import annotations

from datetime import timedelta

from tests.contracts.flow_contract import begun, step
from tests.contracts.samples import COMMIT, ROLLBACK
from txsaga.core.lifecycle import TxEvent
from txsaga.core.records import TxRecord
from txsaga.flows.actions import Action
from txsaga.flows.requests import Close, Release, Request
from txsaga.flows.step import Left, Step, StepKind, StepState
from txsaga.store.store import Store

NONE = timedelta(0)
STARTED = StepState.STARTED
UNDO = Action(kind=StepKind.CALL, what="refund").written()


def declared(life: TxRecord, attempt: int = 1, **more: object) -> Step:
    """Make an attempt of a step with what undoes it."""
    undone: dict[str, object] = {"kind": StepKind.HELD, "input": '{"amount": 10}', "compensation": UNDO}
    return step(life, 1, attempt, **{"resource": "mortgage", "lane": True} | undone | more)


class DeclaredContract:
    """What undoes the steps of a flow, as the port `FlowLedger` promises it to a saga's driver."""

    def test_what_undoes_a_step_is_written_down_before_it_runs(self, store: Store) -> None:
        life = begun(store)
        with store.ledgers.open() as ledger:
            ledger.flows.start(declared(life))
        (found,) = store.work.steps(life.txid)
        assert (found.name, found.kind, found.resource, found.state) == ("step 1", StepKind.HELD, "mortgage", STARTED)
        assert (found.left, found.output, found.error, found.input) == (Left.UNKNOWN, None, "", '{"amount": 10}')
        assert found.compensation is not None and Action.read(found.compensation).what == "refund"
        (view,) = store.work.sagas()
        assert (view.txid, view.decision, view.stalled) == (life.txid, None, False)

    def test_what_became_of_it_is_noted_and_a_later_attempt_takes_its_place(self, store: Store) -> None:
        life = begun(store)
        with store.ledgers.open() as ledger:
            ledger.flows.start(declared(life))
            ledger.flows.end(declared(life).failed("it rained"))
        (found,) = store.work.steps(life.txid)
        assert (found.state, found.error) == (StepState.FAILED, "it rained")
        with store.ledgers.open() as ledger:
            ledger.flows.start(declared(life, 2, kind=StepKind.CALL, resource=None, input='{"amount": 5}'))
        (found,) = store.work.steps(life.txid)
        assert (found.attempt, found.kind, found.resource, found.state) == (2, StepKind.CALL, None, STARTED)
        assert (found.input, found.error) == ('{"amount": 5}', "")

    def test_what_undoes_a_step_moves_on_to_an_attempt_that_does_not_say_it(self, store: Store) -> None:
        life = begun(store)
        with store.ledgers.open() as ledger:
            for attempt in (1, 2, 3):
                ledger.flows.start(declared(life) if attempt == 1 else step(life, 1, attempt))
                assert [each.kind for each in ledger.flows.steps(life.txid)] == [None] * (attempt - 1) + [StepKind.HELD]
        (found,) = store.work.steps(life.txid)
        assert (found.attempt, found.input) == (3, '{"amount": 10}')
        assert found.compensation is not None and Action.read(found.compensation).what == "refund"
        with store.ledgers.open() as ledger:
            *superseded, last = ledger.flows.steps(life.txid)
        assert [(each.input, each.compensation) for each in superseded] == [("{}", None)] * 2
        assert last == found

    def test_a_flow_that_is_open_is_nobodys_to_drive(self, store: Store) -> None:
        life = begun(store)
        with store.ledgers.open() as ledger:
            ledger.flows.start(declared(life))
        _written(store, Release(life.txid, life.owner, NONE, ""))
        assert store.work.claim("anna", limit=9) == []

    def test_once_rolled_back_its_last_owner_drives_it_and_then_anybody(self, store: Store) -> None:
        life = begun(store)
        with store.ledgers.open() as ledger:
            ledger.flows.start(declared(life))
            ledger.flows.end(declared(life).finished())
        _written(store, Release(life.txid, life.owner, NONE, ""))
        with store.ledgers.open() as ledger:
            life = ledger.flows.take_over(life)
            ledger.move(life.txid, TxEvent.ROLL_BACK)
            ledger.write_op(life.txid, ROLLBACK, from_check=False)
            assert ledger.has_open_saga(life.txid)
        assert store.work.claim("anna", limit=9) == []
        _written(store, Release(life.txid, life.owner, NONE, ""))
        (saga,) = store.work.claim("anna", limit=9)
        assert (saga.txid, saga.owner, saga.decision, saga.key) == (life.txid, life.owner + 1, ROLLBACK, "transfer-7")
        assert [each.state for each in store.work.steps(life.txid)] == [StepState.COMPENSATING]

    def test_what_a_flow_that_commits_did_stays(self, store: Store) -> None:
        life = begun(store)
        with store.ledgers.open() as ledger:
            ledger.flows.start(declared(life))
            ledger.flows.drop_compensations(life.txid)
            ledger.move(life.txid, TxEvent.SEAL)
            ledger.move(life.txid, TxEvent.COMMIT)
            ledger.write_op(life.txid, COMMIT, from_check=False)
        assert store.work.sagas() == []

    def test_what_another_commits_is_let_stand_by_whoever_looks_for_work(self, store: Store) -> None:
        life = begun(store)
        with store.ledgers.open() as ledger:
            ledger.flows.start(declared(life))
            ledger.move(life.txid, TxEvent.SEAL)
            ledger.move(life.txid, TxEvent.COMMIT)
            ledger.write_op(life.txid, COMMIT, from_check=False)
        _written(store, Release(life.txid, life.owner, NONE, ""))
        (saga,) = store.work.claim("anna", limit=9)
        assert saga.decision is COMMIT
        assert store.work.write([Close(saga.txid, saga.owner)]) == [True]
        assert store.work.sagas() == []


def _written(store: Store, call: Request) -> None:
    assert store.work.write([call]) == [True]
