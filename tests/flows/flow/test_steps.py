"""Steps in processes of their own: what is done is held, what is tried again takes the place of the try before."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest

from tests.flows.coordinated.bank import START, TRANSFERS
from tests.flows.flow.conftest import OpenDesks
from tests.flows.flow.desks import BOTH, KEY, Desks, pay_by_update
from txsaga.errors import (
    AlreadyCommitted,
    ConfigError,
    DecidedOtherwise,
    FlowUnknown,
    InvalidMessage,
    RolledBack,
    StepDone,
    StepsOpen,
    Superseded,
    TransactionClosed,
    TransactionError,
)
from txsaga.flows.branch import BranchState
from txsaga.flows.step import StepState

pytestmark = [pytest.mark.postgres, pytest.mark.core]


class Stop(Exception):
    """What the user's code raises."""


def states(desks: Desks, txid: int) -> list[tuple[str, int, StepState]]:
    """Return where the attempts of all steps stand."""
    with desks.bank.broker.kernel.store.ledgers.open() as ledger:
        return [(each.name, each.attempt, each.state) for each in ledger.flows.steps(txid)]


@pytest.mark.req("IBM-38")
@pytest.mark.parametrize("hold", ["prepared", "journal"])
def test_steps_of_many_processes_have_one_outcome(desks: Desks, hold: str) -> None:
    txid = desks.begin(*BOTH)
    step = desks.pay if hold == "prepared" else desks.write
    step(txid, "debit", -10, on="current")
    step(txid, "credit", 10, on="mortgage")
    with desks.joined(txid) as flow, flow.step("tell"):
        flow.send(TRANSFERS, b"ten moved")
    assert desks.bank.balances() == {"current": START, "mortgage": START}
    assert desks.bank.told() == []
    desks.end(txid)
    assert desks.bank.balances() == {"current": START - 10, "mortgage": START + 10}
    assert desks.bank.told() == ["ten moved"]
    assert desks.bank.prepared() == []


def test_a_flow_that_is_rolled_back_leaves_nothing(desks: Desks) -> None:
    txid = desks.begin(*BOTH)
    desks.pay(txid, "debit", -10, on="current")
    desks.write(txid, "credit", 10, on="mortgage")
    with desks.joined(txid) as flow, flow.step("tell"):
        flow.send(TRANSFERS, b"never")
    with desks.joined(txid) as flow:
        flow.roll_back("the customer left")
    assert desks.bank.balances() == {"current": START, "mortgage": START}
    assert desks.bank.prepared() == []
    assert desks.bank.told() == []
    with pytest.raises(DecidedOtherwise), desks.joined(txid):
        pytest.fail("joined")  # pragma: no cover


@pytest.mark.req("IBM-64")
def test_a_step_that_is_done_is_not_run_again(desks: Desks) -> None:
    txid = desks.begin("current")
    desks.pay(txid, "debit", -10, on="current")
    with desks.joined(txid) as flow:
        assert flow.is_done("debit")
        assert not flow.is_done("credit")
        with pytest.raises(StepDone, match=r"done \(attempt 1\)"), flow.step("debit", on="current"):
            pytest.fail("run again")  # pragma: no cover
        flow.end()
    assert desks.bank.balances()["current"] == START - 10


@pytest.mark.rule("R4")
def test_a_step_that_failed_is_tried_again_and_its_last_try_counts(desks: Desks) -> None:
    txid = desks.begin("current")
    with pytest.raises(Stop), desks.joined(txid) as flow, flow.step("debit", on="current") as connection:
        pay_by_update(connection, -50)
        flow.send(TRANSFERS, b"never")
        raise Stop
    with desks.joined(txid) as flow, pytest.raises(StepsOpen, match="step 'debit' is not done"):
        flow.end()
    desks.pay(txid, "debit", -10, on="current")
    assert states(desks, txid) == [("debit", 1, StepState.FAILED), ("debit", 2, StepState.DONE)]
    desks.end(txid)
    assert desks.bank.balances()["current"] == START - 10
    assert desks.bank.told() == []


@pytest.mark.rule("R4", "R9")
def test_a_try_that_was_superseded_while_it_worked_leaves_nothing(desks: Desks) -> None:
    txid = desks.begin("current")
    with desks.joined(txid) as zombie, pytest.raises(Superseded):
        with zombie.step("debit", on="current") as connection:
            pay_by_update(connection, -50, account=1)
            with desks.joined(txid) as flow, flow.step("debit", on="current") as other:
                other.exec_driver_sql("insert into account values (2, 1)")
    desks.end(txid)
    assert desks.bank.balances() == {"current": START, "mortgage": START}
    assert desks.bank.balances(account=2)["current"] == 1
    assert desks.bank.prepared() == []


@pytest.mark.rule("R4", "R9")
def test_what_a_try_left_prepared_when_it_died_is_rolled_back_by_the_next(desks: Desks) -> None:
    txid = desks.begin("current")
    with desks.process() as broker:
        flow = broker.flow(txid)
        work = flow.step("debit", on="current")
        pay_by_update(work.__enter__(), -50)
        work._prepared(work._session)  # type: ignore[attr-defined]  # it dies before it can say that it is done
        work._over()  # type: ignore[attr-defined]
    assert len(desks.bank.prepared()) == 1
    desks.pay(txid, "debit", -10, on="current")  # it would wait for that lock
    assert len(desks.bank.prepared()) == 1
    desks.end(txid)
    assert desks.bank.balances()["current"] == START - 10
    assert desks.bank.prepared() == []


def test_a_failure_that_was_handled_does_not_stand_in_the_way(desks: Desks) -> None:
    txid = desks.begin(*BOTH)
    with pytest.raises(Stop), desks.joined(txid) as flow, flow.step("credit", on="mortgage") as connection:
        pay_by_update(connection, 10)
        raise Stop
    desks.pay(txid, "debit", -10, on="current")
    with desks.joined(txid) as flow:
        flow.end(handled=["credit"])
    assert desks.bank.balances() == {"current": START - 10, "mortgage": START}


def test_a_flow_is_begun_once_and_joined_by_key_or_number(desks: Desks) -> None:
    txid = desks.begin(*BOTH, lanes=["mortgage"])
    assert desks.begin(*BOTH, lanes=["mortgage"]) == txid
    with desks.producer() as producer, producer.flow(KEY) as flow:
        assert flow.txid == txid
        with desks.process() as broker:
            assert broker.flow(flow.id).txid == txid
    with pytest.raises(ConfigError, match="was begun with current, mortgage, mortgage \\(lane\\)"):
        desks.begin("current")
    with desks.producer() as producer:
        with pytest.raises(FlowUnknown, match="begin it with"):
            producer.flow("another")
        with pytest.raises(ConfigError, match="need different keys"), producer.coordinated("current", key=KEY):
            pytest.fail("entered")  # pragma: no cover
        with producer.coordinated("current", key="block") as tx:
            with pytest.raises(ConfigError, match="not a flow"):
                producer.flow("block")
            assert tx.txid is not None
            with pytest.raises(ConfigError, match="not a flow"):
                desks.bank.broker.flow(tx.txid)


def test_a_key_that_is_done_is_not_begun_again_and_one_that_was_rolled_back_is(desks: Desks) -> None:
    first = desks.begin("current")
    with desks.joined(first) as flow:
        flow.roll_back()
    second = desks.begin("current")
    assert second != first
    desks.pay(second, "debit", -10, on="current")
    desks.end(second)
    with pytest.raises(AlreadyCommitted):
        desks.begin("current")
    with desks.producer() as producer, pytest.raises(AlreadyCommitted):
        producer.flow(KEY)
    with pytest.raises(AlreadyCommitted):
        desks.end(second)
    assert desks.bank.balances()["current"] == START - 10


def test_no_step_is_added_once_a_flow_is_being_ended(desks: Desks) -> None:
    txid = desks.begin("current")
    desks.pay(txid, "debit", -10, on="current")
    with desks.joined(txid) as late:
        with desks.bank.broker.kernel.store.ledgers.open() as ledger:
            ledger.flows.take_over(late.join_life())
        with pytest.raises(TransactionClosed, match="being ended"), late.step("more", on="current"):
            pytest.fail("entered")  # pragma: no cover


@pytest.mark.req("IBM-64")
@pytest.mark.parametrize("kind", ["postgresql", "sqlite"])
def test_who_runs_a_flow_again_whose_end_was_killed_finds_its_steps_done_and_ends_it(
    open_desks: OpenDesks, kind: str
) -> None:
    desks = open_desks(mortgage=kind)
    txid = desks.begin("current", lanes=["mortgage"])
    desks.pay(txid, "debit", -10, on="current")
    desks.write(txid, "audit", 1, lane="mortgage")
    desks.commit(txid, "mortgage")
    with desks.bank.broker.kernel.store.ledgers.open() as ledger:
        life = ledger.lock(txid)
        assert life is not None
        ledger.flows.take_over(life)  # it died there
    with pytest.raises(StepDone):
        desks.pay(txid, "debit", -10, on="current")
    desks.commit(txid, "mortgage")  # nothing is open
    with desks.joined(txid) as flow:
        flow.touch()
    desks.end(txid)
    assert desks.bank.balances() == {"current": START - 10, "mortgage": START + 1}


@pytest.mark.rule("R9")
def test_what_an_administrator_rolled_back_is_a_no_and_not_a_surprise(desks: Desks) -> None:
    txid = desks.begin(*BOTH)
    desks.pay(txid, "debit", -10, on="current")
    desks.pay(txid, "credit", 10, on="mortgage")
    (gid,) = [each for each in desks.bank.prepared() if each.endswith(":1.1")]
    with desks.engines["current"].connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(f"ROLLBACK PREPARED '{gid}'")
    with desks.joined(txid) as flow, pytest.raises(RolledBack, match=r"branch .* of step 'debit' is no longer in"):
        flow.end()
    assert desks.bank.balances() == {"current": START, "mortgage": START}
    assert desks.bank.prepared() == []


def test_a_flow_waits_as_long_as_its_lease_says(desks: Desks) -> None:
    txid = desks.begin("current", lease=timedelta(hours=2))
    desks.pay(txid, "debit", -10, on="current")
    desks.stored.let_pass(3_600)
    check(desks)
    with desks.joined(txid) as flow:
        flow.touch()
    desks.stored.let_pass(2 * 3_600 - 60)
    check(desks)
    assert len(desks.bank.prepared()) == 1
    desks.stored.let_pass(120)
    check(desks)
    assert desks.bank.prepared() == []
    assert desks.bank.balances()["current"] == START
    with pytest.raises(DecidedOtherwise):
        desks.end(txid)


def test_what_was_held_while_a_step_ran_does_not_cut_the_lease_short(desks: Desks) -> None:
    txid = desks.begin("current")
    desks.pay(txid, "debit", -10, on="current")
    held = "INSERT INTO doubt (txid, pgroup, keyed, check_at) SELECT txid, pgroup, true, now() FROM tx WHERE txid = :t"
    desks.stored.rows(held, t=txid)  # what a heartbeat leaves behind that writes after the step's end
    desks.stored.let_pass(60)
    check(desks)
    assert len(desks.bank.prepared()) == 1
    desks.end(txid)


def test_a_step_says_where_it_works_and_can_only_work_where_the_flow_may(desks: Desks) -> None:
    txid = desks.begin("current", lanes=["mortgage"])
    with desks.joined(txid) as flow:
        with pytest.raises(ConfigError, match="name it in begin_flow"):
            flow.step("x", on="mortgage")
        with pytest.raises(ConfigError, match="name it in begin_flow"):
            flow.step("x", lane="current")
        with pytest.raises(ConfigError, match="not both"):
            flow.step("x", on="current", lane="mortgage")
        with pytest.raises(TransactionError, match='use "prepared" or "journal"'):
            flow.step("x", on="current", hold="loosely")
        with pytest.raises(ConfigError, match='hold them with "journal"'):
            flow.step("x", on="home", hold="prepared")
        with pytest.raises(TransactionError, match="sends in its steps"):
            flow.send(TRANSFERS, b"")
        with flow.step("x", on="current"), pytest.raises(TransactionError, match="leave it first"):
            flow.step("y", on="current")


def test_a_ballot_that_is_not_carried_rolls_the_flow_back(desks: Desks) -> None:
    txid = desks.begin("current")
    with desks.joined(txid) as flow:
        flow.ballot("approval", "anna")
    desks.pay(txid, "debit", -10, on="current")
    with desks.joined(txid) as flow, pytest.raises(TransactionError, match="not carried"):
        flow.end()
    assert desks.bank.balances()["current"] == START
    assert desks.bank.prepared() == []


def test_branches_stand_where_their_steps_left_them(desks: Desks) -> None:
    txid = desks.begin(*BOTH)
    desks.pay(txid, "debit", -10, on="current")
    with desks.joined(txid) as flow, flow.step("look", on="mortgage") as connection:
        assert connection.exec_driver_sql("select balance from account").scalar() == START
    found = desks.bank.states(txid)
    assert found == {"current": BranchState.ENDED, "mortgage": BranchState.COMMITTED}
    desks.end(txid)
    assert set(desks.bank.states(txid).values()) == {BranchState.COMMITTED}


def check(desks: Desks) -> None:
    """Let check-back and recovery have a round."""
    from txsaga.checkback.profile import CheckProfile
    from txsaga.flows.recovery import Recovery
    from txsaga.testing.checking import check_once

    kernel = desks.bank.broker.kernel
    check_once(desks.bank.broker, CheckProfile(interval=timedelta(0)))
    desks.stored.rows("UPDATE branch SET at = at - interval '1 minute'")
    Recovery(kernel).run_once()


def test_a_step_that_grew_too_big_is_not_done_even_if_that_error_is_dropped(
    desks: Desks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txsaga.messages.message_buffer.MOST", 1_000)
    txid = desks.begin(*BOTH)
    with pytest.raises(TransactionError, match="no room"), desks.joined(txid) as flow, flow.step("tell"):
        flow.send(TRANSFERS, b"small")
        with suppress(InvalidMessage):
            flow.send(TRANSFERS, b"x" * 2_000)
    with desks.joined(txid) as flow, flow.step("tell"):
        flow.send(TRANSFERS, b"in a new attempt")
    desks.end(txid)
    assert desks.bank.told() == ["in a new attempt"]
