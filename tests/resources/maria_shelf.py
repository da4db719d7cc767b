"""Items in a table of MariaDB, and what goes wrong around them."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from tests.contracts.samples import start
from txsaga.core.decision import Decision
from txsaga.errors import RetryLater
from txsaga.flows.branch import BranchId
from txsaga.resources.mysql import FORMAT
from txsaga.testing.participant_contract import patiently

FOREIGN = f"'somebody','own',{FORMAT}"
BACKEND = text("select connection_id()")


@dataclass(slots=True)
class MariaShelf:
    """One table of items."""

    engine: Engine

    def open(self) -> "MariaShelf":
        """Create the table."""
        self.outside("create table item (id int primary key) engine=InnoDB", "insert into item values (-1), (-2)")
        return self

    def put(self, handle: object, item: int) -> None:
        assert isinstance(handle, Connection)
        handle.execute(text("insert into item (id) values (:item)"), {"item": item})

    def items(self) -> set[int]:
        with self.engine.connect() as connection:
            return set(connection.scalars(text("select id from item where id > 0")))

    def spoil(self, handle: object) -> None:
        """Let it be the victim of a deadlock: it has changed less than the other."""
        assert isinstance(handle, Connection)
        with self.engine.connect() as other, suppress(DBAPIError):
            other.exec_driver_sql("insert into item select seq from seq_1000_to_1100")
            other.exec_driver_sql("select id from item where id = -1 for update")
            handle.exec_driver_sql("select id from item where id = -2 for update")
            waiting = start(lambda: other.exec_driver_sql("select id from item where id = -2 for update"))
            try:
                handle.exec_driver_sql("select id from item where id = -1 for update")
            finally:
                waiting.result(20)
                other.rollback()

    def cut(self, handle: object) -> None:
        assert isinstance(handle, Connection)
        driver = handle.connection.driver_connection
        assert driver is not None
        driver.close()

    def overrule(self, branch: BranchId, decision: Decision) -> None:
        try:
            self.outside(f"XA {decision.name} {self.xid(branch)}")
        except DBAPIError as error:
            raise RetryLater(str(error)) from error

    def kept(self, branch: BranchId) -> bool:
        question = text("select exists (select 1 from txsaga_evidence where store = :store and branch = :branch)")
        with self.engine.connect() as connection:
            return bool(connection.scalar(question, {"store": branch.store, "branch": branch.evidence}))

    @contextmanager
    def foreign(self) -> Iterator[None]:
        with self.engine.connect() as connection:
            for statement in (
                f"XA START {FOREIGN}",
                "insert into item values (99)",
                f"XA END {FOREIGN}",
                f"XA PREPARE {FOREIGN}",
            ):
                connection.exec_driver_sql(statement)
            try:
                yield
                assert "somebodyown" in self.listed()
            finally:
                connection.exec_driver_sql(f"XA ROLLBACK {FOREIGN}")

    def xid(self, branch: BranchId) -> str:
        """Return the name of a branch in this very database."""
        with self.engine.connect() as connection:
            uuid = UUID(connection.scalar(text("select uuid from txsaga_database")))
        return f"'{branch.transaction}','{branch.qualifier}@{uuid.hex}',{FORMAT}"

    def listed(self) -> set[str]:
        """Return the names of all prepared branches of the server."""
        with self.engine.connect() as connection:
            return {row.data.decode() for row in connection.exec_driver_sql("XA RECOVER")}

    def outside(self, *statements: str) -> None:
        """Run statements outside transactions."""
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    def end_session(self, backend: int | None) -> None:
        """End a session by the server, and wait until it is gone."""
        self.outside(f"kill connection {backend}")
        self.wait_until_gone(backend)

    def wait_until_gone(self, backend: int | None) -> None:
        """Wait until the server knows a session no more: what it was asked for before is done."""
        listed = text("select count(*) from information_schema.processlist where id = :backend")

        def look() -> None:
            with self.engine.connect() as connection:
                if connection.scalar(listed, {"backend": backend}):
                    raise RetryLater("it is still there")

        patiently(look)

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Let the server answer no vote."""
        with self.engine.connect() as connection:
            connection.exec_driver_sql("flush tables with read lock")
            yield
            connection.exec_driver_sql("unlock tables")
