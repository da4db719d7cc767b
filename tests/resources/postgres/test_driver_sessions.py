"""The driver's own connection in a branch: it is what a connection of the engine's would be, and goes back so."""

from __future__ import annotations

from typing import Any, cast

import psycopg
import pytest
from psycopg.rows import dict_row
from sqlalchemy import Engine, PoolProxiedConnection, event
from sqlalchemy.pool import PoolResetState

from txsaga.core.decision import Decision
from txsaga.resources.postgres import PostgresParticipant
from txsaga.resources.postgres_session import give_back_idle
from txsaga.testing.participant_contract import new_branch

pytestmark = [pytest.mark.postgres, pytest.mark.core]


def driver_in(engine: Engine, use: Any) -> Any:  # whatever it answers
    """Use the driver's connection of a branch that is rolled back."""
    enlisted = PostgresParticipant(engine, name="shelf").enlist_driver(new_branch())
    try:
        return use(enlisted.handle)
    finally:
        enlisted.finish(Decision.ROLLBACK)()
        enlisted.leave()


def shown(setting: str) -> Any:  # a question to a driver
    return lambda driver: driver.execute(f"show {setting}").fetchone()[0]


def test_it_has_what_the_options_of_its_engine_say(engine: Engine) -> None:
    assert driver_in(engine, shown("transaction isolation level")) == "read committed"
    strict = engine.execution_options(isolation_level="SERIALIZABLE", postgresql_readonly=True)
    assert driver_in(strict, shown("transaction isolation level")) == "serializable"
    assert driver_in(strict, shown("transaction_read_only")) == "on"
    assert driver_in(engine, shown("transaction isolation level")) == "read committed"
    assert driver_in(engine, shown("transaction_read_only")) == "off"
    autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
    assert driver_in(autocommit, shown("transaction isolation level")) == "read committed"


def test_the_next_user_of_the_pool_reads_rows_as_ever(engine: Engine) -> None:
    def reads_otherwise(driver: psycopg.Connection[Any]) -> None:
        driver.row_factory = dict_row
        driver.prepare_threshold = None
        driver.cursor_factory = psycopg.ClientCursor

    driver_in(engine, reads_otherwise)
    with engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert isinstance(driver, psycopg.Connection)
        assert driver.prepare_threshold == 5
        assert connection.exec_driver_sql("select 1").one() == (1,)
        assert connection.exec_driver_sql("select %(n)s::int", {"n": 2}).scalar_one() == 2
        assert driver.cursor_factory is psycopg.Cursor


def test_a_session_in_which_nothing_is_open_is_given_back_without_another_rollback(engine: Engine) -> None:
    told: list[bool] = []
    participant = PostgresParticipant(engine, name="shelf")
    assert participant.database

    @event.listens_for(engine, "reset")
    def reset(_driver: object, _record: object, state: PoolResetState) -> None:
        told.append(state.transaction_was_reset)

    enlisted = participant.enlist_driver(new_branch())
    enlisted.finish(Decision.ROLLBACK)()
    enlisted.leave()
    assert told == [True]
    with engine.connect() as connection:
        assert connection.exec_driver_sql("select 1").scalar_one() == 1


def test_the_installed_pool_knows_the_shorter_way(engine: Engine) -> None:
    pooled = engine.raw_connection()
    assert callable(getattr(pooled, "_close_special", None))
    pooled.close()


def test_a_pool_that_knows_no_shorter_way_is_closed_as_ever() -> None:
    class Pooled:
        closed = 0

        def close(self) -> None:
            self.closed += 1

    pooled = Pooled()
    give_back_idle(cast(PoolProxiedConnection, pooled))
    assert pooled.closed == 1
