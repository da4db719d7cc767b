"""How a branch in PostgreSQL begins, votes and ends, where the contract can't look."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, event, text
from sqlalchemy.exc import DBAPIError

from tests.resources.conftest import MakeEngine
from tests.resources.postgres_shelf import BACKEND, PostgresShelf
from txsaga.core.decision import Decision
from txsaga.errors import ResourceManagerFailed, RetryLater, RolledBack, StoreUnavailable, VotedNo
from txsaga.evidence import libpq
from txsaga.evidence.database import SqlEvidence
from txsaga.flows.branch import Finish, Vote
from txsaga.resources.postgres import PostgresParticipant
from txsaga.testing.participant_contract import begun, new_branch, patiently, voted

pytestmark = pytest.mark.postgres

COMMIT, ROLLBACK = Decision.COMMIT, Decision.ROLLBACK
AT_END = "after insert on item deferrable initially deferred for each row execute function"
SLOW_END = f"""create function slow() returns trigger language plpgsql as
  'begin perform pg_sleep(1.5); return null; end';
create constraint trigger slow {AT_END} slow()"""
LOOKS_AT_END = f"""create table seen (what text);
create function look() returns trigger language plpgsql as
  $$begin insert into seen values (current_setting('synchronous_commit')); return null; end$$;
create constraint trigger look {AT_END} look()"""


@pytest.mark.rule("R9")
def test_what_takes_the_name_of_a_committed_branch_is_not_believed(
    participant: PostgresParticipant, shelf: PostgresShelf
) -> None:
    branch = new_branch()
    voted(participant, shelf, branch).leave()
    participant.finish(branch, COMMIT)
    with shelf.engine.begin() as connection:
        connection.exec_driver_sql("insert into item (id) values (2)")
        connection.exec_driver_sql(f"prepare transaction '{branch.gid}'")
    assert list(participant.prepared(branch.store)) == [branch]
    assert participant.finish(branch, COMMIT) is Finish.DONE
    assert not participant.prepared(branch.store)
    assert shelf.items() == {1}


@pytest.mark.req("WM-46")
def test_a_session_that_falls_silent_at_the_vote_leaves_it_to_recovery(
    engine: Engine, url: str, shelf: PostgresShelf, make_engine: MakeEngine
) -> None:
    with shelf.engine.begin() as connection:
        connection.exec_driver_sql(SLOW_END)
    branch = new_branch()
    enlisted = begun(PostgresParticipant(engine, name="shelf", patience=0.7), shelf, branch)
    with pytest.raises(ResourceManagerFailed, match="no answer"):
        enlisted.prepare()()
    with pytest.raises(ResourceManagerFailed, match="recovery"):
        enlisted.finish(ROLLBACK)
    enlisted.leave()
    recovering = PostgresParticipant(make_engine(url), name="shelf")
    wait_until_idle(shelf)  # the server had not seen that nobody waits
    assert recovering.finish(branch, ROLLBACK) is Finish.DONE
    assert shelf.items() == set()
    assert not recovering.prepared(branch.store)


@pytest.mark.req("WM-46")
def test_a_server_that_takes_no_decision_is_left_to_recovery(
    participant: PostgresParticipant, shelf: PostgresShelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    branch = new_branch()
    enlisted = begun(participant, shelf, branch)
    assert enlisted.prepare()() is Vote.PREPARED
    with monkeypatch.context() as patch:
        patch.setattr(libpq, "send", _silent)
        with pytest.raises(ResourceManagerFailed, match="not all of it was taken"):
            enlisted.finish(COMMIT)()
    enlisted.leave()
    assert list(participant.prepared(branch.store)) == [branch]
    assert participant.finish(branch, COMMIT) is Finish.DONE


def _silent(*_: object) -> None:
    raise libpq.ServerSilent("not all of it was taken")


@pytest.mark.req("WM-46")
def test_a_handle_that_is_used_after_the_vote_does_not_stop_the_decision(
    participant: PostgresParticipant, shelf: PostgresShelf
) -> None:
    enlisted = begun(participant, shelf, new_branch())
    assert enlisted.prepare()() is Vote.PREPARED
    shelf.put(enlisted.handle, 2)
    assert enlisted.finish(COMMIT)() is Finish.DONE
    enlisted.leave()
    assert shelf.items() == {1}


def test_the_session_goes_back_to_the_pool_and_is_used_again(
    participant: PostgresParticipant, shelf: PostgresShelf
) -> None:
    sessions = set()
    for item in (1, 2):
        enlisted = participant.enlist(new_branch())
        sessions.add(enlisted.handle.scalar(BACKEND))
        shelf.put(enlisted.handle, item)
        enlisted.prepare()()
        enlisted.finish(COMMIT)()
        enlisted.leave()
    assert len(sessions) == 1
    assert shelf.items() == {1, 2}


def test_a_branch_is_four_round_trips_and_sqlalchemy_ends_nothing(
    engine: Engine, participant: PostgresParticipant, shelf: PostgresShelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    monkeypatch.setattr(libpq, "send", counted(libpq.send, sent))
    monkeypatch.setattr(psycopg.Connection, "_exec_command", counted(psycopg.Connection._exec_command, sent))
    event.listen(engine, "before_cursor_execute", lambda *call: sent.append(call[2]))
    participant.enlist(new_branch()).leave()
    assert [first_word(words) for words in sent[-2:]] == ["BEGIN", "ROLLBACK"]
    sent.clear()
    enlisted = begun(participant, shelf, new_branch())
    enlisted.prepare()()
    enlisted.finish(COMMIT)()
    enlisted.leave()
    assert [first_word(words) for words in sent] == ["BEGIN", "insert", "insert", "COMMIT"]


def test_a_session_that_the_pool_kept_too_long_is_replaced_before_the_branch_begins(
    participant: PostgresParticipant, shelf: PostgresShelf
) -> None:
    first = participant.enlist(new_branch())
    old = first.handle.scalar(BACKEND)
    first.leave()
    shelf.end_session(old)
    enlisted = voted(participant, shelf, new_branch())
    assert enlisted.finish(COMMIT)() is Finish.DONE
    enlisted.leave()


def test_a_server_that_is_away_is_unavailable(make_engine: MakeEngine) -> None:
    away = PostgresParticipant(make_engine("postgresql+psycopg://127.0.0.1:1/nothing"), name="shelf")
    with pytest.raises(StoreUnavailable, match="'shelf'"):
        away.enlist(new_branch())


@pytest.mark.parametrize("level", ["AUTOCOMMIT", "SERIALIZABLE"])
def test_the_isolation_of_the_users_engine_is_kept_but_for_autocommit(
    url: str, shelf: PostgresShelf, make_engine: MakeEngine, level: str
) -> None:
    participant = PostgresParticipant(make_engine(url, isolation_level=level), name="shelf")
    enlisted = participant.enlist(new_branch())
    expected = "read committed" if level == "AUTOCOMMIT" else level.lower()
    assert enlisted.handle.scalar(text("show transaction_isolation")) == expected
    shelf.put(enlisted.handle, 1)
    assert enlisted.prepare()() is Vote.PREPARED
    assert enlisted.finish(COMMIT)() is Finish.DONE
    enlisted.leave()
    assert shelf.items() == {1}


def test_a_vote_is_durable_where_the_user_does_without(url: str, shelf: PostgresShelf, make_engine: MakeEngine) -> None:
    with shelf.engine.begin() as connection:
        connection.exec_driver_sql(LOOKS_AT_END)
    engine = make_engine(url, connect_args={"options": "-c synchronous_commit=off"})
    enlisted = voted(PostgresParticipant(engine, name="shelf"), shelf, new_branch())
    enlisted.finish(COMMIT)()
    enlisted.leave()
    with shelf.engine.connect() as connection:
        assert connection.scalar(text("select what from seen")) == "on"


def test_savepoints_inside_a_branch_are_the_users_own(participant: PostgresParticipant, shelf: PostgresShelf) -> None:
    enlisted = participant.enlist(new_branch())
    with enlisted.handle.begin_nested():
        shelf.put(enlisted.handle, 1)
    with pytest.raises(DBAPIError), enlisted.handle.begin_nested():
        enlisted.handle.exec_driver_sql("select 1 / 0")
    enlisted.handle.begin_nested()
    shelf.put(enlisted.handle, 2)
    assert enlisted.prepare()() is Vote.PREPARED
    assert enlisted.finish(COMMIT)() is Finish.DONE
    enlisted.leave()
    assert shelf.items() == {1, 2}


def test_the_row_of_a_branch_says_nothing_about_local_work(
    participant: PostgresParticipant, shelf: PostgresShelf
) -> None:
    branch, evidence = new_branch(), SqlEvidence(shelf.engine, name="shelf")
    enlisted = voted(participant, shelf, branch)
    enlisted.finish(COMMIT)()
    enlisted.leave()
    assert shelf.kept(branch)
    assert evidence.read(branch.transaction) is None
    with evidence.work(branch.transaction) as connection:
        assert evidence.filled(connection, branch.transaction) == frozenset()
    assert evidence.read(branch.transaction) == (True, {})


def wait_until_idle(shelf: PostgresShelf) -> None:
    """Wait until the server runs nothing else in this database."""
    busy = text(
        "select count(*) from pg_stat_activity where datname = current_database() "
        "and pid <> pg_backend_pid() and state <> 'idle'"
    )

    def look() -> None:
        with shelf.engine.connect() as connection:
            if connection.scalar(busy):
                raise RetryLater("somebody is at work")

    patiently(look)


def first_word(statement: str) -> str:
    """Return what a statement begins with."""
    return statement.split()[0].rstrip(";")


def counted(send: Callable[..., Any], sent: list[str]) -> Callable[..., Any]:
    """Note what is sent."""

    def noted(session: object, words: str | bytes, *more: object) -> object:
        sent.append(words if isinstance(words, str) else words.decode())
        return send(session, words, *more)

    return noted


def test_a_pool_that_resets_its_sessions_takes_our_statements_away_and_branches_go_on(
    engine: Engine, participant: PostgresParticipant, shelf: PostgresShelf
) -> None:
    @event.listens_for(engine, "checkin")
    def _reset(connection: psycopg.Connection[Any], _: object) -> None:
        connection.rollback()
        connection.autocommit = True
        connection.execute("DISCARD ALL")
        connection.autocommit = False

    for item in (1, 2, 3):
        enlisted = participant.enlist(new_branch())
        shelf.put(enlisted.handle, item)
        assert enlisted.prepare()() is Vote.PREPARED
        enlisted.finish(COMMIT)()
        enlisted.leave()
    assert shelf.items() == {1, 2, 3}


@pytest.mark.rule("R10")
def test_a_session_of_another_database_is_refused_however_its_statements_come(
    engine: Engine, participant: PostgresParticipant, shelf: PostgresShelf
) -> None:
    participant.enlist(new_branch()).leave()
    with shelf.engine.begin() as connection:
        connection.exec_driver_sql("update txsaga_database set uuid = repeat('0', 32)")
    engine.dispose()  # the next session is a new one
    enlisted = participant.enlist(new_branch())
    shelf.put(enlisted.handle, 1)
    with pytest.raises(RolledBack, match="another database"):
        enlisted.prepare()()
    enlisted.leave()
    assert shelf.items() == set()


@pytest.mark.rule("R9")
def test_many_are_finished_together_each_as_it_would_be_alone(
    participant: PostgresParticipant, shelf: PostgresShelf
) -> None:
    kept, dropped, lost, kept_before, overruled, taken = (new_branch() for _ in range(6))
    for item, branch in enumerate((kept, dropped, lost, kept_before, overruled, taken), 1):
        voted(participant, shelf, branch, item).leave()
    participant.finish(lost, ROLLBACK)
    for branch in (kept_before, overruled, taken):
        participant.finish(branch, COMMIT)
    with shelf.engine.begin() as connection:
        connection.exec_driver_sql("insert into item (id) values (20)")
        connection.exec_driver_sql(f"prepare transaction '{taken.gid}'")
    due = [(branch, COMMIT) for branch in (kept, lost, kept_before, taken)]
    due[1:1] = [(dropped, ROLLBACK), (overruled, ROLLBACK)]
    found = dict(zip([branch for branch, _ in due], participant.finish_many(due), strict=True))
    assert found == {
        kept: Finish.DONE,
        dropped: Finish.DONE,
        overruled: Finish.COMMITTED,
        lost: Finish.ROLLED_BACK,
        kept_before: Finish.DONE,
        taken: Finish.DONE,
    }
    assert shelf.items() == {1, 4, 5, 6}
    assert not participant.prepared(kept.store)
    assert participant.finish_many([]) == []


def test_more_than_are_under_way_at_once_are_all_finished(
    participant: PostgresParticipant, shelf: PostgresShelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txsaga.resources.postgres.AT_ONCE", 2)
    branches = [new_branch() for _ in range(5)]
    for item, branch in enumerate(branches, 1):
        voted(participant, shelf, branch, item).leave()
    assert participant.finish_many([(branch, COMMIT) for branch in branches]) == [Finish.DONE] * 5
    assert shelf.items() == {1, 2, 3, 4, 5}


@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("asked", [False, True])
def test_a_session_that_is_cut_behind_the_vote_does_not_stop_the_decision(
    participant: PostgresParticipant, shelf: PostgresShelf, decision: Decision, asked: bool
) -> None:
    enlisted = participant.enlist(branch := new_branch())
    shelf.put(enlisted.handle, 1)
    backend = enlisted.handle.scalar(BACKEND)
    assert enlisted.prepare()() is Vote.PREPARED
    if asked:
        finished = enlisted.finish(decision)
        shelf.end_session(backend)
    else:
        shelf.end_session(backend)
        finished = enlisted.finish(decision)
    assert finished() is Finish.DONE
    enlisted.leave()
    assert shelf.items() == ({1} if decision is COMMIT else set())
    assert branch.gid not in shelf.listed()


@pytest.mark.parametrize(
    ("statement", "advice"),
    [("set transaction read only", "leave READ ONLY out")],
)
def test_a_no_to_our_own_statement_says_what_to_leave_out(
    participant: PostgresParticipant, statement: str, advice: str
) -> None:
    enlisted = participant.enlist(new_branch())
    enlisted.handle.exec_driver_sql(statement)
    with pytest.raises(VotedNo, match=advice):
        enlisted.prepare()()
    enlisted.finish(ROLLBACK)()
    enlisted.leave()
