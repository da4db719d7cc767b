"""Statements over a connection of their own."""

import threading

import psycopg
import pytest

from txsaga.embedded.server import EmbeddedServer


def execute(server: EmbeddedServer, statement: str) -> list[tuple[object, ...]]:
    """Run statements in autocommit mode and return the rows of the last one."""
    with psycopg.connect(server.url(driver=None), autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def prepare_a_transaction(server: EmbeddedServer, gid: str) -> None:
    """Leave a transaction that a crash must not lose."""
    execute(server, f"begin; create table held_{gid} (n int); prepare transaction '{gid}'")


def keep_a_backend_busy(server: EmbeddedServer) -> threading.Thread:
    """Leave a query that would work on for hours when its postmaster is gone."""
    connection = psycopg.connect(server.url(driver=None), autocommit=True)

    def work() -> None:
        with pytest.raises(psycopg.OperationalError):
            connection.execute("select count(*) from generate_series(1, 1e12::bigint)")
        connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    return thread
