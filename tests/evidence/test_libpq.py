"""Answers of a user's database: one that comes too late for one call is received by the next."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from txsaga.evidence import libpq

pytestmark = [pytest.mark.postgres, pytest.mark.core]


def test_an_answer_that_came_too_late_is_received_by_the_next_call(foreign_databases: Callable[[], str]) -> None:
    with psycopg.connect(foreign_databases().replace("+psycopg", ""), autocommit=True) as connection:
        libpq.send(connection.pgconn, "SELECT pg_sleep(0.3)")
        with pytest.raises(libpq.ServerSilent):
            libpq.receive(connection.pgconn, 0.001)
        assert libpq.receive(connection.pgconn)[-1].tag == "SELECT 1"
