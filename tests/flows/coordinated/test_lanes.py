"""Auxiliary lanes: what is committed while main is open stays, what is open at the end follows the outcome."""

from __future__ import annotations

from datetime import timedelta
from unittest.mock import patch

import pytest

from tests.flows.coordinated.bank import START, TRANSFERS, Bank, pay
from txsaga.core.decision import Decision
from txsaga.core.lifecycle import TxState
from txsaga.errors import ConfigError, TransactionClosed
from txsaga.flows.branch import BranchState
from txsaga.flows.coordinated import Coordinated

pytestmark = pytest.mark.postgres


class Stop(Exception):
    """What the user's code raises."""


def units(bank: Bank, tx: Coordinated) -> list[BranchState]:
    """Return where the units of all lanes stand."""
    assert tx.txid is not None
    bank.states(tx.txid)
    return [each.state for each in bank.broker.kernel.store.work.branches(tx.txid) if each.aux]


@pytest.mark.req("IBM-15", "IBM-16", "IBM-18", "IBM-19")
def test_a_lane_begins_by_itself_and_commits_while_main_is_open(bank: Bank) -> None:
    with bank.producer.coordinated("current") as tx:
        with tx.on("current") as connection:
            pay(connection, -10)
        audit = tx.lane("mortgage")
        with audit as connection:
            pay(connection, 1)
        assert bank.balances() == {"current": START, "mortgage": START}
        assert units(bank, tx) == [BranchState.ACTIVE]
        audit.commit()
        assert bank.balances() == {"current": START, "mortgage": START + 1}
        assert units(bank, tx) == [BranchState.COMMITTED]
        with bank.broker.kernel.store.ledgers.open() as ledger:
            life = ledger.lock(tx.txid or 0)
        assert life is not None
        assert life.state is TxState.ACTIVE
    assert bank.balances() == {"current": START - 10, "mortgage": START + 1}


@pytest.mark.req("IBM-21", "IBM-66")
def test_what_a_lane_committed_stays_when_main_rolls_back(bank: Bank) -> None:
    with pytest.raises(Stop), bank.producer.coordinated("current") as tx:
        with tx.on("current") as connection:
            pay(connection, -10)
        with tx.lane("mortgage") as connection:
            pay(connection, 1)
        tx.lane("mortgage").commit()
        raise Stop
    assert bank.balances() == {"current": START, "mortgage": START + 1}
    assert units(bank, tx) == [BranchState.COMMITTED]


@pytest.mark.req("IBM-24", "IBM-29")
def test_a_lane_rolls_back_while_main_goes_on(bank: Bank) -> None:
    with bank.producer.coordinated("current") as tx:
        with tx.on("current") as connection:
            pay(connection, -10)
        with tx.lane("mortgage") as connection:
            pay(connection, 1)
        tx.lane("mortgage").roll_back()
        tx.send(TRANSFERS, b"without a trace in the audit")
    assert bank.balances() == {"current": START - 10, "mortgage": START}
    assert units(bank, tx) == [BranchState.ROLLED_BACK]


@pytest.mark.req("IBM-25")
def test_a_lane_is_used_again_each_unit_on_its_own(bank: Bank) -> None:
    with bank.producer.coordinated("current") as tx:
        lane = tx.lane("mortgage")
        for amount, settle in ((1, lane.commit), (10, lane.roll_back), (100, lane.commit)):
            with lane as connection:
                pay(connection, amount)
            settle()
        lane.commit()  # nothing is open
    assert bank.balances() == {"current": START, "mortgage": START + 101}
    assert units(bank, tx) == [BranchState.COMMITTED, BranchState.ROLLED_BACK, BranchState.COMMITTED]


@pytest.mark.req("IBM-28")
@pytest.mark.parametrize("fails", [False, True], ids=["main commits", "main fails"])
def test_an_open_unit_follows_the_outcome(bank: Bank, fails: bool) -> None:
    try:
        with bank.producer.coordinated("current") as tx:
            with tx.on("current") as connection:
                pay(connection, -10)
            with tx.lane("mortgage") as connection:
                pay(connection, 1)
            if fails:
                raise Stop
    except Stop:
        pass
    moved = {"current": START, "mortgage": START} if fails else {"current": START - 10, "mortgage": START + 1}
    assert bank.balances() == moved
    assert units(bank, tx) == [BranchState.ROLLED_BACK if fails else BranchState.COMMITTED]
    assert bank.prepared() == []


@pytest.mark.req("IBM-23", "IBM-26", "IBM-27", "IBM-39")
def test_each_resource_has_a_lane_of_its_own_settled_by_itself(bank: Bank) -> None:
    with bank.producer.coordinated("current") as tx:
        assert tx.lane("current") is tx.lane("current")
        for name in ("current", "mortgage"):
            with tx.lane(name) as connection:
                connection.exec_driver_sql("insert into account values (2, 7)")
        tx.lane("current").commit()
        assert units(bank, tx) == [BranchState.COMMITTED, BranchState.ACTIVE]
        tx.lane("mortgage").roll_back()
    assert units(bank, tx) == [BranchState.COMMITTED, BranchState.ROLLED_BACK]


@pytest.mark.req("IBM-33")
def test_one_database_takes_statements_in_main_and_beside_it(bank: Bank) -> None:
    with pytest.raises(Stop), bank.producer.coordinated("current") as tx:
        with tx.on("current") as connection:
            connection.exec_driver_sql("insert into account values (2, 7)")
        with tx.lane("current") as connection:
            connection.exec_driver_sql("insert into account values (3, 7)")
        tx.lane("current").commit()
        raise Stop
    with bank.engines["current"].connect() as connection:
        assert connection.exec_driver_sql("select id from account order by id").scalars().all() == [1, 3]


@pytest.mark.req("IBM-34", "IBM-35")
def test_what_is_sent_beside_a_transaction_stays(bank: Bank) -> None:
    bank.broker.create_topic("news", queues=1)
    with pytest.raises(Stop), bank.producer.coordinated("current") as tx:
        bank.producer.send("news", b"first")
        tx.send(TRANSFERS, b"never")
        raise Stop
    assert bank.told() == []
    stream = bank.broker.stream("readers", ["news"], member="anna")
    assert [message.text() for batch in iter(stream.poll, None) for message in batch.messages()] == ["first"]


@pytest.mark.req("IBM-14", "IBM-36", "IBM-37", "IBM-40")
def test_a_queue_has_no_lane_and_the_reason_is_the_queue(bank: Bank) -> None:
    with pytest.raises(ConfigError, match="topics have no lanes"):
        with bank.producer.coordinated("current") as tx:
            tx.lane(TRANSFERS)
    assert tx.decision is Decision.ROLLBACK


@pytest.mark.rule("R17")
def test_a_lane_that_was_killed_behind_its_commit_is_found_committed(bank: Bank) -> None:
    tx = bank.producer.coordinated("current").__enter__()
    with tx.lane("mortgage") as connection:
        pay(connection, 1)
    with patch.object(bank.broker.kernel.notes, "add"):
        tx.lane("mortgage").commit()  # what became of it is never written down
    assert bank.balances()["mortgage"] == START + 1
    bank.recover()
    assert units(bank, tx) == [BranchState.COMMITTED]
    assert bank.balances()["mortgage"] == START + 1


def test_a_lane_is_closed_with_its_transaction(bank: Bank) -> None:
    with bank.producer.coordinated("current") as tx:
        lane = tx.lane("mortgage")
    with pytest.raises(TransactionClosed), lane:
        pytest.fail("entered")  # pragma: no cover
    with pytest.raises(TransactionClosed):
        lane.commit()


@pytest.mark.req("IBM-17", "IBM-22", "IBM-01")
def test_the_schedule_of_nine_events(bank: Bank, log_of: list[str]) -> None:
    bank.broker.create_topic("orders", queues=1)
    bank.producer.send("orders", b"move ten")
    bank.told()
    consumer = bank.broker.consumer("payments", ["orders"], invisible=timedelta(minutes=5))
    with bank.producer.coordinated("current", "mortgage") as tx:
        (message,) = consumer.receive(wait=5)
        tx.consume(message)  # 1
        with tx.on("current") as connection:
            pay(connection, -10)  # 2
        with tx.lane("mortgage") as connection:
            connection.exec_driver_sql("insert into account values (8, 3)")  # 3
        with tx.on("mortgage") as connection:
            pay(connection, 4)  # 4
            pay(connection, 6)  # 5
        with tx.lane("mortgage") as connection:
            connection.exec_driver_sql("insert into account values (9, 6)")  # 6
        tx.lane("mortgage").commit()  # 7
        tx.send(TRANSFERS, b"ten moved")  # 8
    # 9: the decision
    assert bank.balances() == {"current": START - 10, "mortgage": START + 10}
    assert bank.told() == ["ten moved"]
    assert consumer.receive(wait=0) == []
    with bank.engines["mortgage"].connect() as connection:
        assert connection.exec_driver_sql("select id from account order by id").scalars().all() == [1, 8, 9]
    steps = [name for name in log_of if name in ("Worked", "Voted", "Decided", "Finished")]
    assert steps == ["Worked", "Voted", "Voted", "Decided", "Finished", "Finished"]
    consumer.close()
