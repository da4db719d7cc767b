"""Statements over a connection of their own."""

import psycopg

from txsaga.adapters.embedded import EmbeddedServer


def execute(server: EmbeddedServer, statement: str) -> list[tuple[object, ...]]:
    """Run statements in autocommit mode and return the rows of the last one."""
    with psycopg.connect(server.url(driver=None), autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []
