"""What every store promises of steps of flows that are to be undone: written down before they run, then a saga's."""

# The name of a test is a sentence.

from __future__ import annotations

from datetime import timedelta

from tests.contracts.flow_contract import begun
from tests.contracts.samples import COMMIT, ROLLBACK
from txsaga.core.lifecycle import TxEvent
from txsaga.flows.calls import Close, ReleaseSaga, SagaCall, Start
from txsaga.flows.saga_values import Action
from txsaga.flows.step import Left, StepEvent, StepKind, StepState
from txsaga.store.store import Store

NONE = timedelta(0)
STARTED = StepState.STARTED
UNDO = Action(kind=StepKind.CALL, what="refund").written()


def declared(number: int = 1, **more: object) -> Start:
    """Describe a step with what undoes it."""
    return Start(number, f"step {number}", StepKind.HELD, "mortgage", '{"amount": 10}', UNDO)._replace(**more)  # type: ignore[arg-type]


class DeclaredContract:
    """What undoes the steps of a flow, as the port `FlowLedger` promises it to a saga's driver."""

    def test_what_undoes_a_step_is_written_down_before_it_runs(self, store: Store) -> None:
        life = begun(store)
        with store.ledgers.open() as ledger:
            ledger.flows.declare(life.txid, declared(), 1)
        (found,) = store.steps.of(life.txid)
        assert (found.name, found.kind, found.resource, found.state) == ("step 1", StepKind.HELD, "mortgage", STARTED)
        assert (found.left, found.output, found.error, found.input) == (Left.UNKNOWN, None, "", '{"amount": 10}')
        assert found.compensation is not None and Action.read(found.compensation).what == "refund"
        (view,) = store.steps.listed()
        assert (view.txid, view.decision, view.stalled) == (life.txid, None, False)

    def test_what_became_of_it_is_noted_and_a_later_attempt_takes_its_place(self, store: Store) -> None:
        life = begun(store)
        with store.ledgers.open() as ledger:
            flows = ledger.flows
            flows.declare(life.txid, declared(), 1)
            flows.mark(life.txid, 1, StepEvent.FAIL, Left.UNKNOWN, None, "it rained")
            flows.mark(life.txid, 2, StepEvent.FINISH, Left.WORK, None, "")  # of a step that has none
        (found,) = store.steps.of(life.txid)
        assert (found.state, found.error) == (StepState.FAILED, "it rained")
        with store.ledgers.open() as ledger:
            ledger.flows.declare(life.txid, declared(kind=StepKind.CALL, resource=None, input='{"amount": 5}'), 2)
        (found,) = store.steps.of(life.txid)
        assert (found.attempt, found.kind, found.resource, found.state) == (2, StepKind.CALL, None, STARTED)
        assert (found.input, found.error) == ('{"amount": 5}', "")
        with store.ledgers.open() as ledger:
            ledger.flows.mark(life.txid, 1, StepEvent.FINISH, Left.WORK, '"a reference"', "")
        with store.ledgers.open() as ledger:
            ledger.flows.declare(life.txid, declared(), 3)
        (found,) = store.steps.of(life.txid)
        assert (found.state, found.left, found.output, found.attempt) == (
            StepState.DONE,
            Left.WORK,
            '"a reference"',
            2,
        )

    def test_a_flow_that_is_open_is_nobodys_to_drive(self, store: Store) -> None:
        life = begun(store)
        with store.ledgers.open() as ledger:
            ledger.flows.declare(life.txid, declared(), 1)
        _written(store, ReleaseSaga(life.txid, life.owner, NONE, ""))
        assert store.steps.claim("anna", limit=9) == []

    def test_once_rolled_back_its_last_owner_drives_it_and_then_anybody(self, store: Store) -> None:
        life = begun(store)
        with store.ledgers.open() as ledger:
            ledger.flows.declare(life.txid, declared(), 1)
            ledger.flows.mark(life.txid, 1, StepEvent.FINISH, Left.WORK, None, "")
        _written(store, ReleaseSaga(life.txid, life.owner, NONE, ""))
        with store.ledgers.open() as ledger:
            life = ledger.flows.take_over(life.txid)
            ledger.move(life.txid, TxEvent.ROLL_BACK)
            ledger.write_op(life.txid, ROLLBACK, from_check=False)
            assert ledger.compensates(life.txid)
        assert store.steps.claim("anna", limit=9) == []
        _written(store, ReleaseSaga(life.txid, life.owner, NONE, ""))
        (saga,) = store.steps.claim("anna", limit=9)
        assert (saga.txid, saga.owner, saga.decision, saga.key) == (life.txid, life.owner + 1, ROLLBACK, "transfer-7")
        assert [each.state for each in store.steps.of(life.txid)] == [StepState.COMPENSATING]

    def test_what_a_flow_that_commits_did_stays(self, store: Store) -> None:
        life = begun(store)
        with store.ledgers.open() as ledger:
            ledger.flows.declare(life.txid, declared(), 1)
            ledger.flows.let_stand(life.txid)
            ledger.move(life.txid, TxEvent.SEAL)
            ledger.move(life.txid, TxEvent.COMMIT)
            ledger.write_op(life.txid, COMMIT, from_check=False)
        assert store.steps.listed() == []

    def test_what_another_commits_is_let_stand_by_whoever_looks_for_work(self, store: Store) -> None:
        life = begun(store)
        with store.ledgers.open() as ledger:
            ledger.flows.declare(life.txid, declared(), 1)
            ledger.move(life.txid, TxEvent.SEAL)
            ledger.move(life.txid, TxEvent.COMMIT)
            ledger.write_op(life.txid, COMMIT, from_check=False)
        _written(store, ReleaseSaga(life.txid, life.owner, NONE, ""))
        (saga,) = store.steps.claim("anna", limit=9)
        assert saga.decision is COMMIT
        assert store.steps.write([Close(saga.txid, saga.owner)]) == [True]
        assert store.steps.listed() == []


def _written(store: Store, call: SagaCall) -> None:
    assert store.steps.write([call]) == [True]
