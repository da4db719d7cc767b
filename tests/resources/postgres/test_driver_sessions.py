"""The driver's own connection in a branch: it is what a connection of the engine's would be, and goes back so."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from sqlalchemy import Engine

from txsaga.core.decision import Decision
from txsaga.resources.postgres import PostgresParticipant
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
