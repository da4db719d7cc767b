"""Whose cancellation an error tells of, in the words of SQLAlchemy and of each driver."""

import psycopg
import pymysql
import pytest
from sqlalchemy.exc import OperationalError

from txsaga.resources.waits import is_cancelled

INTERRUPTED = pymysql.err.OperationalError(1317, "Query execution was interrupted")


@pytest.mark.parametrize("error", [psycopg.errors.QueryCanceled(), INTERRUPTED], ids=["psycopg", "pymysql"])
def test_a_cancelled_statement_is_known(error: Exception) -> None:
    assert is_cancelled(error)
    assert is_cancelled(OperationalError("select 1", {}, error))


@pytest.mark.parametrize(
    "error",
    [psycopg.errors.UniqueViolation(), pymysql.err.OperationalError(1205, "waited too long"), ValueError(1), OSError()],
    ids=["psycopg", "pymysql", "with a number", "without"],
)
def test_nothing_else_is(error: Exception) -> None:
    assert not is_cancelled(error)
