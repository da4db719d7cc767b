"""Items in a table of PostgreSQL, and what goes wrong around them."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from txsaga.core.decision import Decision
from txsaga.flows.branch import BranchId

FOREIGN = "somebody's own"
BACKEND = text("select pg_backend_pid()")


@dataclass(slots=True)
class PostgresShelf:
    """One table of items."""

    engine: Engine

    def open(self) -> "PostgresShelf":
        """Create the table."""
        with self.engine.begin() as connection:
            connection.exec_driver_sql("create table item (id int primary key deferrable initially deferred)")
        return self

    def put(self, handle: object, item: int) -> None:
        assert isinstance(handle, Connection)
        handle.execute(text("insert into item (id) values (:item)"), {"item": item})

    def items(self) -> set[int]:
        with self.engine.connect() as connection:
            return set(connection.scalars(text("select id from item")))

    def spoil(self, handle: object) -> None:
        assert isinstance(handle, Connection)
        with suppress(DBAPIError):
            handle.exec_driver_sql("select 1 / 0")

    def cut(self, handle: object) -> None:
        assert isinstance(handle, Connection)
        driver = handle.connection.driver_connection
        assert driver is not None
        driver.close()

    def overrule(self, branch: BranchId, decision: Decision) -> None:
        self.outside(f"{decision.name} prepared '{branch.gid}'")

    def kept(self, branch: BranchId) -> bool:
        question = text("select exists (select from txsaga_evidence where store = :store and branch = :branch)")
        with self.engine.connect() as connection:
            return bool(connection.scalar(question, {"store": branch.store, "branch": branch.evidence}))

    @contextmanager
    def foreign(self) -> Iterator[None]:
        name = FOREIGN.replace("'", "''")
        with self.engine.begin() as connection:
            connection.exec_driver_sql("insert into item (id) values (99)")
            connection.exec_driver_sql(f"prepare transaction '{name}'")
        try:
            yield
            assert FOREIGN in self.listed()
        finally:
            self.outside(f"rollback prepared '{name}'")

    def listed(self) -> set[str]:
        """Return the names of all prepared transactions of the server."""
        with self.engine.connect() as connection:
            return set(connection.scalars(text("select gid from pg_prepared_xacts")))

    def outside(self, *statements: str) -> None:
        """Run statements outside transactions."""
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    def end_session(self, backend: int | None) -> None:
        """End a session by the server, and wait until it is gone."""
        with self.engine.connect() as connection:
            connection.execute(text("select pg_terminate_backend(:backend, 5000)"), {"backend": backend})
