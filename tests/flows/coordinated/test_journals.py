"""What is written into the journal of a resource is done before its vote, all of it, or nothing is done anywhere."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from tests.flows.coordinated.bank import START, TRANSFERS, Bank, pay
from tests.flows.coordinated.conftest import OpenBank
from tests.flows.coordinated.looped import LoopedBank, move
from txsaga import Callables
from txsaga.core.decision import Decision
from txsaga.errors import ConfigError, IntegrityViolated, OtherReason, RowsDiffer, TransactionClosed, TransactionError
from txsaga.flows.branch import BranchState, Vote
from txsaga.flows.coordinated import Coordinated
from txsaga.flows.work import Work

pytestmark = [pytest.mark.postgres, pytest.mark.mariadb]

CHANGE = "update account set balance = balance + :amount where id = 1"
OPEN = "insert into account values (:id, :balance)"
KINDS = [
    ("postgresql",),
    ("postgresql", "postgresql"),
    ("postgresql", "mariadb"),
    ("mariadb", "postgresql", "sqlite"),
    ("sqlite",),
]
each_kind = pytest.mark.parametrize("kinds", KINDS, ids="+".join)


class Stop(Exception):
    """What the user's code raises."""


def balances(bank: Bank, balance: int) -> Mapping[str, int]:
    return dict.fromkeys(bank.engines, balance)


def change_all(tx: Coordinated, names: Mapping[str, object], amount: int = 1) -> None:
    for name in names:
        tx.journal(name).execute(CHANGE, {"amount": amount}, rows=1)


@pytest.mark.req("IBM-02", "IBM-04")
@each_kind
def test_all_journals_are_done_or_none_is(opened: OpenBank, kinds: tuple[str, ...]) -> None:
    bank = opened(*kinds)
    with pytest.raises(Stop), bank.producer.coordinated(*bank.engines) as tx:
        change_all(tx, bank.engines)
        raise Stop
    assert bank.balances() == balances(bank, START)
    with bank.producer.coordinated(*bank.engines) as tx:
        change_all(tx, bank.engines)
        change_all(tx, bank.engines, 10)
        tx.send(TRANSFERS, b"eleven")
        assert bank.balances() == balances(bank, START)
    assert (bank.balances(), bank.told(), tx.decision) == (balances(bank, START + 11), ["eleven"], Decision.COMMIT)
    assert tx.txid is not None
    assert set(bank.states(tx.txid).values()) == {BranchState.COMMITTED}


@each_kind
def test_a_statement_that_changes_other_rows_than_it_says_undoes_all(opened: OpenBank, kinds: tuple[str, ...]) -> None:
    bank = opened(*kinds)
    last = list(bank.engines)[-1]
    with (
        pytest.raises(RowsDiffer, match=f"statement 2 of the journal for '{last}' changed 0 rows instead of 1"),
        bank.producer.coordinated(*bank.engines) as tx,
    ):
        change_all(tx, bank.engines)
        tx.journal(last).execute("update account set balance = 0 where id = 7", rows=1)
        tx.send(TRANSFERS, b"never")
    assert (bank.balances(), bank.told(), bank.prepared()) == (balances(bank, START), [], [])
    assert tx.decision is Decision.ROLLBACK


@each_kind
def test_a_statement_without_a_number_changes_at_least_one_row(opened: OpenBank, kinds: tuple[str, ...]) -> None:
    bank = opened(*kinds)
    first = next(iter(bank.engines))
    with (
        pytest.raises(RowsDiffer, match=f"statement 1 of the journal for '{first}' changed 0 rows instead of at least"),
        bank.producer.coordinated(*bank.engines) as tx,
    ):
        tx.journal(first).execute("delete from account where id = 7")
    with bank.producer.coordinated(*bank.engines) as tx:
        tx.journal(first).execute("delete from account where id = 7", rows=0)
        tx.journal(first).execute("update account set balance = balance + 1")
    assert bank.balances()[first] == START + 1


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ("insert into account values (1, 5)", IntegrityViolated),
        ("insert into nowhere values (1, 5)", OtherReason),
        ("insert into account valves (1, 5)", OtherReason),
    ],
)
@each_kind
def test_a_statement_that_cant_be_done_names_itself_and_undoes_all(
    opened: OpenBank, kinds: tuple[str, ...], wrong: str, error: type[Exception]
) -> None:
    bank = opened(*kinds)
    last = list(bank.engines)[-1]
    with pytest.raises(error) as raised, bank.producer.coordinated(*bank.engines) as tx:
        change_all(tx, bank.engines)
        tx.journal(last).execute(wrong)
    assert f"statement 2 of the journal for '{last}' can't be done" in str(raised.value)
    assert (bank.balances(), bank.prepared(), tx.decision) == (balances(bank, START), [], Decision.ROLLBACK)


def test_one_resource_is_worked_in_one_way(bank: Bank) -> None:
    with bank.producer.coordinated("current", "mortgage") as tx:
        journal = tx.journal("current")
        assert tx.journal("current") is journal
        journal.execute(CHANGE, {"amount": 1})
        with pytest.raises(TransactionError, match=r"tx\.on and by tx\.journal"), tx.on("current"):
            pass
        empty = tx.journal("mortgage")
        with tx.on("mortgage") as connection:
            pay(connection, 1)
        with pytest.raises(TransactionError, match=r"tx\.on and by tx\.journal"):
            tx.journal("mortgage")
        with pytest.raises(TransactionError, match=r"tx\.on and by tx\.journal"):
            empty.execute(CHANGE, {"amount": 1})
    assert bank.balances() == {"current": START + 1, "mortgage": START + 1}


def test_while_a_session_is_waited_for_no_journal_takes_its_place(bank: Bank) -> None:
    name, url = "narrow", bank.engines["current"].url
    narrow = create_engine(url, pool_size=1, max_overflow=0)
    bank.broker.register(name, narrow)
    with bank.producer.coordinated(name) as warm, warm.on(name) as connection:
        pay(connection, 0)

    def work() -> None:
        with tx.on(name) as connection:
            pay(connection, 1)

    with ThreadPoolExecutor(1) as other, bank.producer.coordinated(name) as tx:
        with narrow.connect():
            working = other.submit(work)
            while tx._branches.work.part(name).use is None:
                time.sleep(0.01)
            with pytest.raises(TransactionError, match=r"tx\.on and by tx\.journal"):
                tx.journal(name).execute(CHANGE, {"amount": 1_000})
        working.result()
    narrow.dispose()
    assert bank.balances()["current"] == START + 1


def test_a_task_that_opens_a_session_keeps_no_journal_waiting(looping: LoopedBank) -> None:
    async def work() -> None:
        async with looping.bank.producer.coordinated("current", "mortgage") as tx:

            async def on() -> None:
                async with tx.on("current") as connection:
                    await move(connection, 1)

            async def note() -> None:
                with pytest.raises(TransactionError, match=r"tx\.on and by tx\.journal"):
                    tx.journal("current").execute(CHANGE, {"amount": 1_000})
                tx.journal("mortgage").execute(CHANGE, {"amount": 1})

            await asyncio.gather(on(), note())

    looping.run(work)
    assert looping.bank.balances() == {"current": START + 1, "mortgage": START + 1}


def test_a_session_that_could_not_be_opened_leaves_room_for_a_journal(opened: OpenBank) -> None:
    bank = opened("mariadb")
    (name,) = bank.engines
    with bank.producer.coordinated(name) as tx:
        with pytest.raises(TransactionError, match="no driver connection"), tx.on(name, driver=True):
            pass
        tx.journal(name).execute(CHANGE, {"amount": 1})
    assert bank.balances() == {name: START + 1}


@each_kind
def test_what_parameters_hold_is_shown_to_nobody(opened: OpenBank, kinds: tuple[str, ...]) -> None:
    bank = opened(*kinds)
    last = list(bank.engines)[-1]
    for wrong in ("insert into nowhere values (1, :word)", "insert into account valves (1, :word)"):
        with pytest.raises(OtherReason) as raised, bank.producer.coordinated(*bank.engines) as tx:
            tx.journal(last).execute(wrong, {"word": "open sesame"})
        assert "sesame" not in str(raised.value)


def test_a_journal_beside_work_on_a_connection_is_one_outcome(bank: Bank) -> None:
    with pytest.raises(IntegrityViolated), bank.producer.coordinated("current", "mortgage") as tx:
        with tx.on("current") as connection:
            pay(connection, -1)
        tx.journal("mortgage").execute(OPEN, {"id": 1, "balance": 0})
    assert (bank.balances(), bank.prepared()) == (balances(bank, START), [])


def test_an_empty_journal_is_no_work(bank: Bank) -> None:
    with bank.producer.coordinated("current", "mortgage") as tx:
        assert len(tx.journal("current")) == 0
        tx.send(TRANSFERS, b"only this")
    assert tx.txid is not None
    assert (bank.told(), set(bank.states(tx.txid).values())) == (["only this"], {BranchState.COMMITTED})


def test_what_is_written_too_late_is_refused(bank: Bank) -> None:
    with bank.producer.coordinated("current") as tx:
        journal = tx.journal("current")
        journal.execute(CHANGE, {"amount": 1})
    with pytest.raises(TransactionClosed):
        journal.execute(CHANGE, {"amount": 1})
    with pytest.raises(Stop), bank.producer.coordinated("current") as tx:
        journal = tx.journal("current")
        raise Stop
    with pytest.raises(TransactionError):
        journal.execute(CHANGE, {"amount": 1})
    assert bank.balances()["current"] == START + 1


def test_what_is_written_while_the_votes_are_under_way_is_refused(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    ask, refused = Work.ask, list[str]()

    def ask_late(work: Work, keys: Iterable[str]) -> dict[str, Vote | Exception]:
        for late in (journal.execute, lambda *given: tx.journal("mortgage").execute(*given)):
            with pytest.raises(TransactionError) as no:
                late(CHANGE, {"amount": 1_000})
            refused.append(str(no.value))
        return ask(work, keys)

    monkeypatch.setattr(Work, "ask", ask_late)
    with bank.producer.coordinated("current", "mortgage") as tx:
        journal = tx.journal("current")
        journal.execute(CHANGE, {"amount": 1})
        tx.send(TRANSFERS, b"with a message it votes")
    assert len(refused) == 2
    assert bank.balances() == {"current": START + 1, "mortgage": START}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("select 1", "can't take SELECT"),
        ("commit", "can't take COMMIT"),
        ("delete from account; commit", "one statement at a time"),
        (r"insert into note values (E'\''); commit; insert into note values ('x')", "one statement at a time"),
        (r"insert into note values ('\''); commit -- '", "one statement at a time"),
        ("update account set balance = 1 returning id", "can't take RETURNING"),
        ("", "one statement as text"),
        ("insert into account values (1, '\x00')", r"can't be kept \(U\+0000\)"),
    ],
)
def test_what_nobody_would_read_or_what_ends_a_transaction_is_refused_at_once(bank: Bank, text: str, why: str) -> None:
    with bank.producer.coordinated("current") as tx, pytest.raises(ConfigError, match=why):
        tx.journal("current").execute(text)


def test_a_resource_that_takes_no_statements_is_refused(bank: Bank) -> None:
    bank.broker.enlist("mail", Callables(try_=lambda _: None, confirm=lambda _: None, cancel=lambda _: None))
    with bank.producer.coordinated("current", "mail") as tx:
        with pytest.raises(ConfigError, match=r"'mail' takes no statements; work in it by tx\.on\('mail'\)"):
            tx.journal("mail")
        with pytest.raises(TransactionError, match="not part of this transaction"):
            tx.journal("elsewhere")


def test_the_same_within_a_loop(looping: LoopedBank) -> None:
    bank = looping.bank

    async def work() -> None:
        async with bank.producer.coordinated("current", "mortgage") as tx:
            tx.journal("current").execute(CHANGE, {"amount": -10}, rows=1)
            tx.journal("mortgage").execute(CHANGE, {"amount": 10}, rows=1)
            await tx.send(TRANSFERS, b"10")
            assert await asyncio.to_thread(bank.balances) == balances(bank, START)
        with pytest.raises(RowsDiffer):
            async with bank.producer.coordinated("current", "mortgage") as tx:
                async with tx.on("current") as connection:
                    await move(connection, -10)
                tx.journal("mortgage").execute(CHANGE, {"amount": 10}, rows=2)

    looping.run(work)
    assert (bank.balances(), bank.told(), bank.prepared()) == (
        {"current": START - 10, "mortgage": START + 10},
        ["10"],
        [],
    )


def test_a_file_takes_its_journal_within_a_loop(looping: LoopedBank, tmp_path: Path) -> None:
    bank, file = looping.bank, tmp_path / "notes.db"
    notes = create_engine(f"sqlite:///{file}")
    with notes.begin() as connection:
        connection.exec_driver_sql("create table note (what text)")
    within = create_async_engine(f"sqlite+aiosqlite:///{file}")
    bank.broker.register("notes", within)

    async def book(rows: int) -> None:
        async with bank.producer.coordinated("current", "notes") as tx:
            tx.journal("notes").execute("insert into note values (:what)", {"what": f"rows {rows}"}, rows=rows)
            tx.journal("current").execute(CHANGE, {"amount": -10}, rows=1)

    async def work() -> None:
        await book(1)
        with pytest.raises(RowsDiffer):
            await book(2)
        await within.dispose()

    looping.run(work)
    with notes.connect() as connection:
        assert connection.exec_driver_sql("select what from note").scalars().all() == ["rows 1"]
    notes.dispose()
    assert (bank.balances()["current"], bank.prepared()) == (START - 10, [])


def test_a_parameter_that_is_missing_is_told_by_its_statement(opened: OpenBank) -> None:
    bank = opened("postgresql", "mariadb")
    for name in bank.engines:
        with pytest.raises(OtherReason, match="amount"), bank.producer.coordinated(name) as tx:
            tx.journal(name).execute(CHANGE)
    assert bank.balances() == balances(bank, START)
