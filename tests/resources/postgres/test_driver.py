"""A branch whose work is done on the driver's own connection."""

import psycopg
import pytest

from tests.resources.postgres_shelf import PostgresShelf
from txsaga.core.decision import Decision
from txsaga.errors import CommunicationFailed, RolledBack
from txsaga.flows.branch import Finish, Vote
from txsaga.resources.postgres import PostgresParticipant
from txsaga.testing.participant_contract import new_branch

pytestmark = [pytest.mark.postgres, pytest.mark.core]

COMMIT, ROLLBACK = Decision.COMMIT, Decision.ROLLBACK


@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
def test_the_drivers_own_connection_is_a_branch_like_another(
    participant: PostgresParticipant, shelf: PostgresShelf, decision: Decision
) -> None:
    for item in (1, 2):
        enlisted = participant.enlist_driver(new_branch())
        assert isinstance(enlisted.handle, psycopg.Connection)
        enlisted.handle.execute("insert into item (id) values (%s)", (item,))
        assert shelf.items() == set() if item == 1 or decision is ROLLBACK else {1}
        assert enlisted.prepare()() is Vote.PREPARED
        assert enlisted.finish(decision)() is Finish.DONE
        enlisted.leave()
    assert shelf.items() == ({1, 2} if decision is COMMIT else set())


def test_a_driver_session_that_is_left_without_a_vote_is_rolled_back(
    participant: PostgresParticipant, shelf: PostgresShelf
) -> None:
    enlisted = participant.enlist_driver(new_branch())
    enlisted.handle.execute("insert into item (id) values (1)")
    enlisted.leave()
    read_only = participant.enlist_driver(new_branch())
    read_only.handle.execute("select id from item")
    assert read_only.prepare()() is Vote.READ_ONLY
    read_only.leave()
    assert shelf.items() == set()


@pytest.mark.parametrize("end", ["commit", "rollback", "commit and go on"])
def test_a_driver_session_that_its_user_ends_is_a_no(
    participant: PostgresParticipant, shelf: PostgresShelf, end: str
) -> None:
    enlisted = participant.enlist_driver(new_branch())
    enlisted.handle.execute("insert into item (id) values (1)")
    (enlisted.handle.rollback if end == "rollback" else enlisted.handle.commit)()
    if end == "commit and go on":
        enlisted.handle.execute("insert into item (id) values (2)")
    with pytest.raises(RolledBack, match="not where it began"):
        enlisted.prepare()()
    enlisted.finish(ROLLBACK)()
    enlisted.leave()
    assert shelf.items() == (set() if end == "rollback" else {1})


@pytest.mark.req("IBM-50")
def test_a_driver_session_that_was_lost_is_not_opened_again_and_one_that_lay_dead_is_replaced(
    participant: PostgresParticipant, shelf: PostgresShelf
) -> None:
    enlisted = participant.enlist_driver(new_branch())
    (pid,) = enlisted.handle.execute("select pg_backend_pid()").fetchone()
    enlisted.handle.execute("insert into item (id) values (1)")
    with shelf.engine.connect() as connection:
        connection.exec_driver_sql(f"select pg_terminate_backend({pid}, 5000)").close()
    with pytest.raises(CommunicationFailed):
        enlisted.prepare()()
    enlisted.finish(ROLLBACK)()
    enlisted.leave()
    kept = participant.enlist_driver(new_branch())
    (pid,) = kept.handle.execute("select pg_backend_pid()").fetchone()
    kept.leave()
    with shelf.engine.connect() as connection:
        connection.exec_driver_sql(f"select pg_terminate_backend({pid}, 5000)").close()
    again = participant.enlist_driver(new_branch())
    again.handle.execute("insert into item (id) values (2)")
    assert again.prepare()() is Vote.PREPARED
    assert again.finish(COMMIT)() is Finish.DONE
    again.leave()
    assert shelf.items() == {2}
