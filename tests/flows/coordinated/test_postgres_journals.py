"""A journal in PostgreSQL is executed on a session of the engine's, and gives that back as it was."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import pytest
from sqlalchemy import Engine, create_engine, event

from tests.flows.coordinated.bank import START, TRANSFERS, Bank
from txsaga.core.decision import Decision
from txsaga.errors import CommunicationFailed, InDoubt, IntegrityViolated, OtherReason, RolledBack, RowsDiffer, TimedOut
from txsaga.flows.branch import BranchId, BranchState
from txsaga.flows.journal import Journalled
from txsaga.flows.work import Work
from txsaga.resources import postgres
from txsaga.resources.postgres import PostgresParticipant

pytestmark = pytest.mark.postgres

CHANGE = "update account set balance = balance + :amount where id = 1"
OPEN = "insert into account values (:id, 0)"
NOTE = "insert into note values (:what)"


def notes(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.exec_driver_sql("select what from note order by 1").scalars())


def do(engine: Engine, *statements: str) -> None:
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


@pytest.fixture
def current(bank: Bank) -> Engine:
    """Give one of the bank's databases, with a table of texts."""
    do(bank.engines["current"], "create table note (what text)")
    return bank.engines["current"]


@pytest.fixture
def registered(bank: Bank, foreign_databases: Callable[[], str]) -> Iterator[Callable[..., Engine]]:
    """Register one more database with a table of texts, its engine as it is asked for."""
    opened: list[Engine] = []

    def register(name: str, **options: object) -> Engine:
        engine = create_engine(foreign_databases(), **options)
        opened.append(engine)
        do(engine, "create table note (what text)")
        bank.broker.register(name, engine)
        return engine

    yield register
    for engine in opened:
        engine.dispose()


@pytest.mark.req("IBM-57")
@pytest.mark.parametrize("ends", ["commit", "commit; begin"])
def test_a_commit_that_no_journal_takes_and_that_comes_nevertheless_is_no_vote(
    bank: Bank, current: Engine, ends: str
) -> None:
    text = rf"insert into note values (E'\''); {ends}; insert into note values ('x')"
    participant = bank.broker.kernel.participant("current")[1]
    assert isinstance(participant, PostgresParticipant)
    session = participant.enlist(BranchId(bank.broker.identity.transaction(7), 1, 1))
    participant.do(session, [Journalled(0, 1, "current", 0, text, {})])
    with pytest.raises(RolledBack, match="work that a COMMIT included is durable"):
        session.prepare()()
    session.finish(Decision.ROLLBACK)()
    session.leave()
    assert bank.prepared() == []
    assert "'" in notes(current)


@pytest.mark.parametrize("key", [None, "once"])
@pytest.mark.parametrize("options", [{"pool_reset_on_return": None}, {"isolation_level": "AUTOCOMMIT"}])
@pytest.mark.parametrize(
    ("text", "rows", "error"),
    [
        ("insert into note values ('never')", 7, RowsDiffer),
        ("insert into note select 'never' where 1 / 0 = 1", None, OtherReason),
        ("insert into note valves ('never')", None, OtherReason),
    ],
)
def test_a_session_goes_back_with_nothing_in_it(
    bank: Bank,
    registered: Callable[..., Engine],
    text: str,
    rows: int | None,
    error: type[Exception],
    key: str | None,
    options: Mapping[str, object],
) -> None:
    engine = registered("unreset", pool_size=1, max_overflow=0, **options)
    with pytest.raises(error) as raised, bank.producer.coordinated("unreset", key=key) as tx:
        tx.journal("unreset").execute(text, rows=rows)
    assert not isinstance(raised.value, InDoubt)
    assert tx.decision is Decision.ROLLBACK
    with bank.producer.coordinated("unreset") as tx:
        tx.journal("unreset").execute(NOTE, {"what": "after"})
    assert (notes(engine), bank.prepared()) == (["after"], [])


def test_a_session_that_dies_before_its_vote_leaves_nothing_to_find_out(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = Work.ask

    def ask_the_dead(work: Work, keys: Iterable[str]) -> object:
        with bank.engines["mortgage"].connect() as connection:
            connection.exec_driver_sql(
                "select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = "
                f"'{bank.engines['current'].url.database}'"
            )
        return ask(work, keys)

    monkeypatch.setattr(Work, "ask", ask_the_dead)
    with pytest.raises(CommunicationFailed), bank.producer.coordinated("current", "mortgage") as tx:
        for name in bank.engines:
            tx.journal(name).execute(CHANGE, {"amount": 1})
    assert tx.txid is not None
    assert set(bank.states(tx.txid).values()) == {BranchState.ROLLED_BACK}
    bank.engines["current"].dispose()
    assert (bank.balances(), bank.prepared()) == ({"current": START, "mortgage": START}, [])


def test_values_arrive_as_they_are(bank: Bank, current: Engine) -> None:
    do(
        current,
        "create table kept (t text, n numeric, at timestamptz, d date, u uuid, b bytea, yes bool, f float8, no int)",
    )
    kept = {
        "t": "it's 100 % of a \\ and a 'ß', :n and %(n)s",
        "n": Decimal("1.50"),
        "at": datetime(2026, 11, 25, 12, tzinfo=UTC),
        "d": date(2026, 11, 25),
        "u": UUID(int=7),
        "b": b"\x00\xff'",
        "yes": True,
        "f": 0.5,
        "no": None,
    }
    names = ", ".join(kept)
    with bank.producer.coordinated("current") as tx:
        tx.journal("current").execute(f"insert into kept values ({', '.join(f':{name}' for name in kept)})", kept)
        tx.journal("current").execute("insert into note values ('50 %% of %s')")
        tx.send(TRANSFERS, b"so that it votes")
    with current.connect() as connection:
        assert dict(connection.exec_driver_sql(f"select {names} from kept").one()._mapping) == kept
    assert notes(current) == ["50 %% of %s"]


def test_a_comment_at_the_end_of_a_statement_hides_nothing(bank: Bank, current: Engine) -> None:
    with bank.producer.coordinated("current", "mortgage") as tx:
        tx.journal("current").execute("insert into note values ('a') -- and")
        tx.journal("current").execute("insert into note values ('b'); -- no more")
        tx.journal("mortgage").execute(OPEN, {"id": 2})
    assert notes(current) == ["a", "b"]


def test_texts_are_written_in_the_sessions_own_encoding(bank: Bank, registered: Callable[..., Engine]) -> None:
    western = registered("western", connect_args={"client_encoding": "latin1"})
    with bank.producer.coordinated("western", "mortgage") as tx:
        tx.journal("western").execute("insert into note values ('né')")
        tx.journal("western").execute(NOTE, {"what": "été"})
    with pytest.raises(OtherReason, match="statement 1 of the journal for 'western' can't be done"):
        with bank.producer.coordinated("western", "mortgage") as tx:
            tx.journal("western").execute(NOTE, {"what": "€"})
            tx.journal("mortgage").execute(CHANGE, {"amount": 1})
    assert (notes(western), bank.balances()["mortgage"]) == (["né", "été"], START)


def test_statements_of_ours_that_were_dropped_are_not_missed(bank: Bank, registered: Callable[..., Engine]) -> None:
    engine = registered("pooled", pool_size=1, max_overflow=0, connect_args={"prepare_threshold": None})
    for at in range(12):
        with bank.producer.coordinated("pooled", "mortgage") as tx:
            tx.journal("pooled").execute(NOTE, {"what": f"{at:02}"})
            tx.journal("mortgage").execute(OPEN, {"id": at + 2})
        if at % 3 == 2:
            do(engine, "deallocate all")
    assert notes(engine) == [f"{at:02}" for at in range(12)]


def test_a_session_that_died_in_its_pool_is_replaced(bank: Bank, current: Engine) -> None:
    for what in ("before", "after"):
        with bank.producer.coordinated("current", "mortgage") as tx:
            tx.journal("current").execute(NOTE, {"what": what})
            tx.journal("mortgage").execute(CHANGE, {"amount": 1}, rows=1)
        with bank.engines["mortgage"].connect() as connection:
            connection.exec_driver_sql(
                "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and datname in "
                f"('{current.url.database}', '{bank.engines['mortgage'].url.database}')"
            )
    for engine in bank.engines.values():
        engine.dispose()
    assert (notes(current), bank.balances()["mortgage"]) == (["after", "before"], START + 2)


def test_a_listener_that_begins_the_transaction_has_it_go_on(bank: Bank, registered: Callable[..., Engine]) -> None:
    engine = registered("tenants")

    @event.listens_for(engine, "checkout")
    def set_tenant(driver: object, *_: object) -> None:
        driver.execute("select set_config('app.tenant', 'seven', true)")  # type: ignore[attr-defined]

    with bank.producer.coordinated("tenants", "mortgage") as tx:
        tx.journal("tenants").execute("insert into note values (current_setting('app.tenant'))")
        tx.journal("mortgage").execute(OPEN, {"id": 2})
    assert notes(engine) == ["seven"]


def test_who_waits_for_a_stranger_goes_on_behind_him(bank: Bank, log_of: list[str]) -> None:
    opened = threading.Event()

    def hold() -> None:
        with bank.engines["mortgage"].connect() as connection:
            connection.exec_driver_sql("insert into account values (7, 1)")
            opened.set()
            time.sleep(0.5)
            connection.rollback()

    with ThreadPoolExecutor(1) as stranger:
        holding = stranger.submit(hold)
        assert opened.wait(10)
        with bank.producer.coordinated("current", "mortgage") as tx:
            for name in bank.engines:
                tx.journal(name).execute(OPEN, {"id": 7})
        holding.result()
    assert bank.balances(7) == {"current": 0, "mortgage": 0}
    assert log_of.count("Voting") == 2


def test_a_row_that_is_there_is_a_no_and_nobody_is_asked_to_vote(bank: Bank, log_of: list[str]) -> None:
    with pytest.raises(IntegrityViolated), bank.producer.coordinated("current", "mortgage") as tx:
        tx.journal("current").execute(OPEN, {"id": 2})
        tx.journal("mortgage").execute(OPEN, {"id": 1})
    assert (bank.balances(2), bank.prepared()) == ({"current": None, "mortgage": None}, [])
    assert "Voting" not in log_of


@pytest.mark.rule("R17")
@pytest.mark.parametrize("limit", ["ours", "the engine's"])
def test_who_waits_too_long_for_a_stranger_votes_no(
    bank: Bank, registered: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(postgres, "LONGEST", "300ms" if limit == "ours" else "60s")
    options = "" if limit == "ours" else "-c lock_timeout=300"
    engine = registered("billing", connect_args={"options": options})
    do(engine, "insert into note values ('one')")
    with engine.connect() as stranger:
        stranger.exec_driver_sql("update note set what = 'two'")
        with (
            pytest.raises(TimedOut, match="statement 1 of the journal for 'billing' can't be done"),
            bank.producer.coordinated("mortgage", "billing") as tx,
        ):
            tx.journal("mortgage").execute(CHANGE, {"amount": 1})
            tx.journal("billing").execute("update note set what = 'three'")
    assert (notes(engine), bank.balances()["mortgage"], bank.prepared()) == (["one"], START, [])


def test_transfers_of_the_same_rows_never_wait_in_a_circle(bank: Bank, log_of: list[str]) -> None:
    def transfer(_: int) -> None:
        with bank.producer.coordinated("current", "mortgage") as tx:
            tx.journal("mortgage").execute(CHANGE, {"amount": 1}, rows=1)
            tx.journal("current").execute(CHANGE, {"amount": -1}, rows=1)

    with ThreadPoolExecutor(6) as callers:
        list(callers.map(transfer, range(30)))
    assert bank.balances() == {"current": START - 30, "mortgage": START + 30}
    assert log_of.count("Voting") == 60


def test_triggers_that_lock_the_same_rows_end_in_turn(bank: Bank, log_of: list[str]) -> None:
    for engine in bank.engines.values():
        do(
            engine,
            "create table entry (cents int)",
            "create function book() returns trigger language plpgsql as "
            "'begin update account set balance = balance + new.cents where id = 1; return null; end'",
            "create trigger book after insert on entry for each row execute function book()",
        )

    def enter(_: int) -> None:
        with bank.producer.coordinated("current", "mortgage") as tx:
            for name in bank.engines:
                tx.journal(name).execute("insert into entry values (1)")

    with ThreadPoolExecutor(4) as callers:
        list(callers.map(enter, range(12)))
    assert bank.balances() == {"current": START + 12, "mortgage": START + 12}
    assert log_of.count("Voting") == 24
