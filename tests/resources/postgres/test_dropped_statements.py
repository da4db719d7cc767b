"""The driver drops all prepared statements of a session behind a rollback, a DROP and an ALTER: ours among them."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, Engine, create_engine, event

from tests.resources.postgres_shelf import PostgresShelf
from txsaga.core.decision import Decision
from txsaga.evidence.database import SqlEvidence
from txsaga.flows.branch import Finish, Vote
from txsaga.resources.postgres import PostgresParticipant
from txsaga.testing.participant_contract import new_branch

pytestmark = pytest.mark.postgres

OURS = "select count(*) from pg_prepared_statements where name like 'txsaga%%_row'"
COMMIT = Decision.COMMIT


def takes_a_part_back(connection: Connection) -> None:
    connection.begin_nested().rollback()


def drops_a_table(connection: Connection) -> None:
    connection.exec_driver_sql("create table gone_at_once (id int)")
    connection.exec_driver_sql("drop table gone_at_once")


def deallocates(connection: Connection) -> None:
    connection.exec_driver_sql("deallocate all")


HAPPENS = pytest.mark.parametrize("happens", [takes_a_part_back, drops_a_table, deallocates])


def keep_the_driver_preparing(connection: Connection) -> None:
    """Let the driver have a statement of its own to drop: it prepares what it has run five times."""
    for _ in range(7):
        connection.exec_driver_sql("select 1")


@HAPPENS
def test_a_branch_votes_yes_and_leaves_its_row_all_the_same(
    engine: Engine, participant: PostgresParticipant, shelf: PostgresShelf, happens: Callable[[Connection], None]
) -> None:
    for item in (1, 2, 3):
        branch = new_branch()
        enlisted = participant.enlist(branch)
        keep_the_driver_preparing(enlisted.handle)
        happens(enlisted.handle)
        assert enlisted.handle.exec_driver_sql(OURS).scalar_one() == 0
        shelf.put(enlisted.handle, item)
        assert enlisted.prepare()() is Vote.PREPARED
        assert enlisted.finish(COMMIT)() is Finish.DONE
        enlisted.leave()
        assert SqlEvidence(engine).read(branch.transaction) is None  # of the branch alone
        assert participant.finish(branch, COMMIT) is Finish.DONE  # its row is there
    assert shelf.items() == {1, 2, 3}


@pytest.mark.parametrize("happens", [takes_a_part_back, deallocates])
def test_a_branch_that_wrote_nothing_is_read_only(
    participant: PostgresParticipant, happens: Callable[[Connection], None]
) -> None:
    enlisted = participant.enlist(new_branch())
    keep_the_driver_preparing(enlisted.handle)
    happens(enlisted.handle)
    assert enlisted.prepare()() is Vote.READ_ONLY
    enlisted.leave()


@HAPPENS
def test_the_only_branch_commits_with_the_row_of_its_transaction(
    engine: Engine, participant: PostgresParticipant, shelf: PostgresShelf, happens: Callable[[Connection], None]
) -> None:
    branch = new_branch()
    enlisted = participant.enlist(branch)
    keep_the_driver_preparing(enlisted.handle)
    happens(enlisted.handle)
    shelf.put(enlisted.handle, 1)
    enlisted.commit(branch.transaction)()
    enlisted.leave()
    assert shelf.items() == {1}
    outcome = SqlEvidence(engine).read(branch.transaction)
    assert outcome is not None
    assert outcome.committed


def test_they_are_prepared_again_for_the_next_branch(url: str, participant: PostgresParticipant) -> None:
    engine = create_engine(url, pool_size=1, max_overflow=0)
    connected: list[psycopg.Connection[Any]] = []
    event.listen(engine, "connect", lambda driver, _: connected.append(driver))
    single = PostgresParticipant(engine, name="shelf")
    try:
        for rolls_back in (False, False, False, False, True, False, False):
            enlisted = single.enlist(new_branch())
            keep_the_driver_preparing(enlisted.handle)
            enlisted.finish(Decision.ROLLBACK)()
            enlisted.leave()
            if rolls_back:
                connected[0].rollback()
        with engine.connect() as connection:
            assert connection.exec_driver_sql(OURS).scalar_one() == 1
        assert len(connected) == 1
    finally:
        engine.dispose()
