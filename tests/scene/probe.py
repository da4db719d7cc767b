"""A look into a namespace past the product, and sessions that a test holds open."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, NullPool, create_engine, text

from tests.scene.patience import eventually
from txsaga.store.connection import parse_url


class Probe:
    """Plain SQL on one namespace."""

    def __init__(self, url: str) -> None:
        address, self.namespace = parse_url(url)
        options = {"options": f"-c search_path={self.namespace}"}
        self._engine = create_engine(address, poolclass=NullPool, connect_args=options)
        self._connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")

    def rows(self, sql: str, **parameters: object) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        return [tuple(row) for row in self._connection.execute(text(sql), parameters)]

    def value(self, sql: str, **parameters: object) -> Any:  # whatever a test asks for
        """Return the only value of a query."""
        return self._connection.execute(text(sql), parameters).scalar_one()

    def run(self, sql: str, **parameters: object) -> None:
        """Run a statement and commit it."""
        self._connection.execute(text(sql), parameters)

    @contextmanager
    def session(self) -> Iterator[Connection]:
        """Open a transaction that is rolled back at the end, unless the test committed it."""
        with self._engine.connect() as connection:
            yield connection
            connection.rollback()

    def blocked_by(self, pid: int) -> list[int]:
        """Return the sessions that wait for a lock of another session."""
        sql = "SELECT pid FROM pg_stat_activity WHERE :pid = ANY (pg_blocking_pids(pid))"
        return [row[0] for row in self.rows(sql, pid=pid)]

    def wait_for_block(self, pid: int) -> int:
        """Wait until somebody waits for a session; return who."""
        return eventually(lambda: self.blocked_by(pid), f"somebody waits for session {pid}")[0]

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
        self._engine.dispose()


def pid_of(connection: Connection) -> int:
    """Return the backend of a connection."""
    return int(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())
