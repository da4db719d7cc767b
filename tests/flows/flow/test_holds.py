"""How work is held: prepared with its locks, or in the journal without any."""

from __future__ import annotations

import threading
import time
from unittest.mock import patch

import pytest
from sqlalchemy import event

from tests.flows.coordinated.bank import START, TRANSFERS
from tests.flows.flow.conftest import OpenDesks
from tests.flows.flow.desks import BOTH, CHANGE, Desks, pay_by_update
from txsaga.errors import ConfigError, IntegrityViolated, OwnLock, RowsDiffer, TxSagaError
from txsaga.flows.branch import BranchState
from txsaga.flows.flow import Flow
from txsaga.flows.flow_end import FlowEnding

pytestmark = pytest.mark.postgres

KINDS = pytest.mark.parametrize(
    "kind", ["postgresql", pytest.param("mariadb", marks=pytest.mark.mariadb)], ids=["postgresql", "mariadb"]
)


@KINDS
@pytest.mark.parametrize("hold", ["prepared", "journal"])
def test_both_holds_work_in_every_database(open_desks: OpenDesks, kind: str, hold: str) -> None:
    desks = open_desks(mortgage=kind)
    txid = desks.begin(*BOTH, lanes=["mortgage"])
    work = desks.pay if hold == "prepared" else desks.write
    work(txid, "debit", -10, on="current")
    work(txid, "credit", 10, on="mortgage")
    with desks.joined(txid) as flow, flow.step("audit", lane="mortgage", hold=hold) as into:
        (into.execute if hold == "journal" else into.exec_driver_sql)("insert into account values (2, 1)")
    desks.commit(txid, "mortgage")
    assert desks.bank.balances() == {"current": START, "mortgage": START}
    assert desks.bank.balances(account=2)["mortgage"] == 1
    desks.end(txid)
    assert desks.bank.balances() == {"current": START - 10, "mortgage": START + 10}
    desks.bank.recover()
    assert set(desks.bank.states(txid).values()) == {BranchState.COMMITTED}


@KINDS
@pytest.mark.rule("R17")
def test_a_step_that_waits_for_its_own_flow_is_refused_at_once(open_desks: OpenDesks, kind: str) -> None:
    desks = open_desks(mortgage=kind)
    txid = desks.begin("mortgage")
    desks.pay(txid, "first", 1, on="mortgage")
    began = time.monotonic()
    with pytest.raises(OwnLock, match="its own flow holds in step 'first'; hold both with hold=\"journal\""):
        desks.pay(txid, "second", 1, on="mortgage")
    assert time.monotonic() - began < 10  # two seconds of waiting, and a process that opens and closes
    desks.pay(txid, "second", 1, account=2, on="mortgage")  # another row
    desks.end(txid)
    assert desks.bank.balances()["mortgage"] == START + 1


@pytest.mark.rule("R17")
def test_a_step_that_waits_behind_somebody_who_waits_for_its_flow_is_refused_too(desks: Desks) -> None:
    txid = desks.begin("mortgage")
    desks.pay(txid, "first", 1, on="mortgage")
    other = threading.Thread(target=_wait_in, args=(desks,))
    with desks.joined(txid) as flow, pytest.raises(OwnLock), flow.step("second", on="mortgage") as connection:
        other.start()
        _until_somebody_waits(desks)
        pay_by_update(connection, 1)
    with desks.joined(txid) as flow:
        flow.roll_back()
    other.join(30)
    assert desks.bank.balances()["mortgage"] == START + 7


@KINDS
def test_a_step_that_waits_for_somebody_else_waits(open_desks: OpenDesks, kind: str) -> None:
    desks = open_desks(mortgage=kind)
    txid = desks.begin("mortgage")
    desks.pay(txid, "first", 1, account=2, on="mortgage")
    other = desks.engines["mortgage"].connect()
    pay_by_update(other, 5)
    freed = threading.Timer(2.5, other.commit)
    freed.start()
    desks.pay(txid, "second", 1, on="mortgage")
    freed.join()
    other.close()
    desks.end(txid)
    assert desks.bank.balances()["mortgage"] == START + 6


@pytest.mark.rule("R17")
def test_a_journal_that_waits_for_its_own_flow_rolls_it_back(desks: Desks) -> None:
    txid = desks.begin("mortgage")
    desks.pay(txid, "first", 1, on="mortgage")
    desks.write(txid, "second", 1, on="mortgage")
    with pytest.raises(OwnLock, match="the journal would wait forever"):
        desks.end(txid)
    assert desks.bank.balances()["mortgage"] == START
    assert desks.bank.prepared() == []


def test_any_number_of_journalled_steps_work_on_the_same_rows_in_their_order(desks: Desks) -> None:
    txid = desks.begin("current")
    for number, statement in enumerate(
        (
            "insert into account values (2, 1)",
            "update account set balance = balance * 10 where id = 2",
            "update account set balance = balance + 5 where id = 2",
        )
    ):
        with desks.joined(txid) as flow, flow.step(f"step {number}", on="current", hold="journal") as journal:
            journal.execute(statement, rows=1)
    with desks.engines["current"].begin() as connection:
        pay_by_update(connection, 1)  # nothing is locked meanwhile
    desks.end(txid)
    assert desks.bank.balances(account=2)["current"] == 15


@KINDS
def test_a_journalled_step_asks_its_resource_for_nothing(open_desks: OpenDesks, kind: str) -> None:
    desks, asked = open_desks(mortgage=kind), list[object]()
    txid = desks.begin(*BOTH)
    event.listen(desks.engines["mortgage"], "checkout", lambda *given: asked.append(given))
    desks.write(txid, "credit", 10, on="mortgage")
    assert asked == []
    desks.end(txid)
    assert asked
    assert desks.bank.balances() == {"current": START, "mortgage": START + 10}


@pytest.mark.rule("R17")
@pytest.mark.parametrize(("rows", "account"), [(2, 1), (1, 77), (None, 77), (0, 1)])
def test_a_statement_that_changes_another_number_of_rows_votes_no(desks: Desks, rows: int | None, account: int) -> None:
    txid = desks.begin(*BOTH)
    desks.pay(txid, "debit", -10, on="current")
    with desks.joined(txid) as flow, flow.step("credit", on="mortgage", hold="journal") as journal:
        journal.execute(CHANGE, {"amount": 10, "id": account}, rows=rows)
        flow.send(TRANSFERS, b"never")
    with pytest.raises(RowsDiffer, match=r"statement 2\.1 of the journal for 'mortgage' changed"):
        desks.end(txid)
    assert desks.bank.balances() == {"current": START, "mortgage": START}
    assert desks.bank.prepared() == []
    assert desks.bank.told() == []


def test_a_statement_without_a_number_changes_at_least_one_row(desks: Desks) -> None:
    txid = desks.begin("current")
    with desks.joined(txid) as flow, flow.step("x", on="current", hold="journal") as journal:
        journal.execute("insert into account values (2, 1), (3, 1)")
        journal.execute("update account set balance = 0 where id > :id", {"id": 77}, rows=0)
    desks.end(txid)
    assert desks.bank.balances(account=3)["current"] == 1


def test_a_statement_that_fails_at_the_end_votes_no(desks: Desks) -> None:
    txid = desks.begin("current")
    with desks.joined(txid) as flow, flow.step("x", on="current", hold="journal") as journal:
        journal.execute("insert into account values (1, 1)")
    with pytest.raises(IntegrityViolated, match=r"statement 1.1 of the journal .* duplicate key"):
        desks.end(txid)


@pytest.mark.rule("R4", "R17")
def test_a_step_that_is_tried_again_writes_its_journal_anew(desks: Desks) -> None:
    txid = desks.begin("current")
    with pytest.raises(ZeroDivisionError), desks.joined(txid) as flow:
        with flow.step("x", on="current", hold="journal") as journal:
            journal.execute("insert into account values (2, 1)")
            raise ZeroDivisionError
    desks.write(txid, "x", 1, on="current")
    desks.end(txid)
    assert desks.bank.balances()["current"] == START + 1
    assert desks.bank.balances(account=2)["current"] is None


@pytest.mark.rule("R17")
def test_an_end_that_was_killed_with_its_journal_prepared_does_it_anew_and_once(desks: Desks) -> None:
    txid = desks.begin(*BOTH)
    desks.pay(txid, "debit", -10, on="current")
    desks.write(txid, "credit", 10, on="mortgage")
    with desks.process() as broker:
        ending = _stopped_before_its_decision(broker.flow(txid))
        assert len(desks.bank.prepared()) == 2
        desks.end(txid)  # another process; it would wait for the locks of the first one
        assert desks.bank.balances() == {"current": START - 10, "mortgage": START + 10}
        with pytest.raises(TxSagaError), patch.object(ending, "_roll_back"):
            ending._commit()  # the first one goes on, and decides nothing
        ending._branches.leave()
    assert desks.bank.balances() == {"current": START - 10, "mortgage": START + 10}
    desks.bank.recover()
    assert desks.bank.prepared() == []


@pytest.mark.rule("R2")
def test_rows_of_the_home_database_are_part_of_the_decision(desks: Desks) -> None:
    desks.stored.rows("CREATE TABLE public.ledger_book (id int primary key, amount int)")
    try:
        txid = desks.begin("current")
        desks.pay(txid, "debit", -10, on="current")
        with desks.joined(txid) as flow, flow.step("book", on="home") as journal:
            journal.execute("insert into public.ledger_book values (:id, :amount)", {"id": txid, "amount": 10})
        assert desks.stored.rows("SELECT * FROM public.ledger_book") == []
        desks.end(txid)
        assert desks.stored.rows("SELECT * FROM public.ledger_book") == [(txid, 10)]
        xids = "SELECT o.xid::text = l.xmin::text FROM op o, public.ledger_book l WHERE o.txid = :t"
        assert desks.stored.value(xids, t=txid)
        assert desks.bank.balances()["current"] == START - 10
    finally:
        desks.stored.rows("DROP TABLE public.ledger_book")


@pytest.mark.rule("R2")
def test_home_rows_that_can_not_be_written_roll_the_flow_back(desks: Desks) -> None:
    txid = desks.begin("current")
    desks.pay(txid, "debit", -10, on="current")
    with desks.joined(txid) as flow, flow.step("book", on="home") as journal:
        journal.execute("update public.no_such_table set a = 1")
    with pytest.raises(TxSagaError, match="no_such_table"):
        desks.end(txid)
    assert desks.bank.balances()["current"] == START
    assert desks.bank.prepared() == []


@pytest.mark.rule("R12")
def test_what_can_not_vote_comes_last_and_its_commit_is_the_decision(open_desks: OpenDesks) -> None:
    desks = open_desks(mortgage="sqlite")
    txid = desks.begin(*BOTH)
    desks.pay(txid, "debit", -10, on="current")
    desks.write(txid, "credit", 10, on="mortgage")
    desks.end(txid)
    assert desks.bank.balances() == {"current": START - 10, "mortgage": START + 10}
    again = desks.begin(*BOTH, key="again")
    desks.write(again, "credit", 10, on="mortgage")
    with desks.joined(again) as flow, flow.step("book", on="home") as journal:
        journal.execute("update public.t set a = 1")
    with pytest.raises(ConfigError, match="a resource that can't vote"):
        desks.end(again)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("select 1", "can't take SELECT"),
        ("insert into a values (1) returning id", "can't take RETURNING"),
        ("commit", "can't take COMMIT"),
        ("savepoint a", "can't take SAVEPOINT"),
        ("drop table a", "can't take DROP"),
        ("delete from a; delete from b", "one statement at a time"),
        ("", "one statement as text"),
    ],
)
@pytest.mark.rule("R17")
def test_a_journal_refuses_what_can_not_be_done_later(desks: Desks, text: str, said: str) -> None:
    txid = desks.begin("current")
    with pytest.raises(ConfigError, match=said), desks.joined(txid) as flow:
        with flow.step("x", on="current", hold="journal") as journal:
            journal.execute(text)


def _stopped_before_its_decision(flow: Flow) -> FlowEnding:
    ending = flow._ending()
    ending.__enter__()
    ending.do_journals()
    ending._branches.work.prepare()
    return ending


def _wait_in(desks: Desks) -> None:
    with desks.engines["mortgage"].begin() as connection:
        pay_by_update(connection, 7)


def _until_somebody_waits(desks: Desks) -> None:
    with desks.engines["mortgage"].connect() as connection:
        while not connection.exec_driver_sql("select count(*) from pg_locks where not granted").scalar():
            connection.rollback()
            time.sleep(0.05)
