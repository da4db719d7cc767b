"""The MariaDB of the tests answers, and keeps a prepared branch when its session is gone."""

from collections.abc import Sequence
from typing import Any

import pymysql
import pytest
from sqlalchemy import make_url

pytestmark = pytest.mark.mariadb

PREPARE = ("xa start 'b'", "insert into account values (1)", "xa end 'b'", "xa prepare 'b'")


def answers(url: str, *statements: str) -> list[Sequence[Any]]:
    """Run statements in a session of their own and return the rows of the last one."""
    place = make_url(url)
    assert place.host and place.port and place.username
    with pymysql.connect(
        host=place.host,
        port=place.port,
        user=place.username,
        password=str(place.password),
        database=place.database,
        autocommit=True,
    ) as connection:
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement)
        return list(cursor.fetchall())


def test_a_prepared_branch_outlives_its_session(mariadb: str) -> None:
    answers(mariadb, "create table account (balance int)", *PREPARE)
    assert [row[-1] for row in answers(mariadb, "xa recover")] == [b"b"]
    answers(mariadb, "xa rollback 'b'")
    assert answers(mariadb, "select count(*) from account") == [(0,)]
    answers(mariadb, "drop table account")
