"""
MariaDB and MySQL as participants, through the user's own SQLAlchemy engine.

A server lists the prepared branches of all its databases, so a branch's XA name carries the uuid of its database:
branches of another database on the same server are neither listed nor touched here, even of the same transaction. If
the server lists a name but calls it unknown, its session still lives: it is retried later. An unknown name that is not
listed has been finished, and its row shows how; the row is read after the list, never before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, IntegrityError

from txsaga.core.decision import Decision
from txsaga.errors import ConfigError, DuplicateBranch, EvidenceMissing, OtherReason, RetryLater
from txsaga.evidence.driver_errors import code_of, edge, reached
from txsaga.evidence.sessions import commit_each, connection_of, short_waits
from txsaga.flows.branch import PREFIX, BranchId, Finish
from txsaga.resources import codes
from txsaga.resources.capabilities import CAPABILITIES, Capabilities, ResourceKind
from txsaga.resources.database import DatabaseParticipant
from txsaga.resources.mysql_branch import MysqlBranch, MysqlSession
from txsaga.resources.participant import ours
from txsaga.resources.waits import MysqlLockView, is_cancelled, transaction_number

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from txsaga.flows.journal import Journalled
    from txsaga.resources.participant import EnlistedBranch, Opens

FORMAT = 0x54585347  # "TXSG"

_ABLE = "select @@global.read_only, @@global.innodb_flush_log_at_trx_commit"
_FORGETFUL = (0, 2)  # the log reaches the disk some time after the answer


class MysqlParticipant(DatabaseParticipant):
    """One registered database."""

    driver = ("pymysql", "mysql+pymysql")
    is_cancelled = staticmethod(is_cancelled)

    @property
    def capabilities(self) -> Capabilities:
        """What its kind can do; the first connection shows which of the two it is."""
        maria = self._engine.dialect.name == "mariadb" or getattr(self._engine.dialect, "is_mariadb", False)
        return CAPABILITIES[ResourceKind.MARIADB if maria else ResourceKind.MYSQL]

    def probe(self) -> None:
        """Raise `ConfigError` unless branches can be listed and written; write nothing."""
        with reached(self.name, self._engine) as connection:
            try:
                connection.exec_driver_sql("XA RECOVER").close()
            except DBAPIError as error:
                raise ConfigError(
                    f"resource {self.name!r} can't vote: its user may not list prepared branches; "
                    f"on MySQL grant XA_RECOVER_ADMIN to it ({error.orig})"
                ) from error
            reads_only, flush = connection.exec_driver_sql(_ABLE).one()
        if reads_only:
            raise ConfigError(f"resource {self.name!r} is read only or a replica; connect to the writable primary")
        if flush in _FORGETFUL:
            raise ConfigError(
                f"resource {self.name!r} can't vote: a crash of its server would lose a yes; "
                "set innodb_flush_log_at_trx_commit = 1 there"
            )
        self._require_tables()

    def enlist(self, branch: BranchId) -> MysqlBranch:
        """Open a branch; a stale pooled session is replaced before it begins."""
        session = self._opened(branch)
        return MysqlBranch(
            session,
            branch,
            self._xid(branch),
            lambda: self._rows.write_main(session.connection, branch),
            lambda decision: self.finish(branch, decision),
            self._patience,
        )

    def _opened(self, branch: BranchId) -> MysqlSession:
        xid = self._xid(branch)
        with edge(self.name):
            session = self._begun(xid) or self._begun(xid, last=True)
            assert session is not None
            try:
                self._rows.write(session.connection, branch)
            except EvidenceMissing:
                session.end()
                raise
            except IntegrityError as error:
                session.end()
                raise DuplicateBranch(f"branch {branch.gid} has its evidence already") from error
            except DBAPIError:
                session.end()
                raise
            return session

    def in_loop(self) -> Opens:
        """Refuse: the driver for threads blocks on what it sends, and there is no code for an asynchronous one."""
        self._engine_of_loops()
        raise AssertionError

    def finish(self, branch: BranchId, decision: Decision) -> Finish:
        """Carry out the decision, or find out how the branch was finished."""
        with self._reached() as connection:
            commit_each(connection)
            with short_waits(connection):
                return self._finished(connection, branch, decision, lambda due: self._end(connection, branch, due))

    def prepared(self, store: str) -> Sequence[BranchId]:
        """Return the branches that this database holds for a store."""
        place = self._rows.place
        with self._reached() as connection:
            self._rows.where.require_same(connection, place)
            return [branch for branch in self._listed(connection) if branch.store == store]

    def do(self, session: EnlistedBranch, statements: Sequence[Journalled]) -> None:
        """Execute journalled statements in an open branch."""
        connection = connection_of(session.handle)
        event.listen(connection, "after_cursor_execute", self._refuse_hidden)
        try:
            super().do(session, statements)
        finally:
            event.remove(connection, "after_cursor_execute", self._refuse_hidden)

    def _refuse_hidden(self, _: Connection, cursor: Any, *__: object) -> None:
        """Refuse what a driver that sends several statements at once did besides the one that counts its rows."""
        if cursor.nextset():
            raise OtherReason(f"a journal statement for {self.name!r} contains several statements")

    def mark(self, session: EnlistedBranch) -> str:
        """Return the number of the transaction: the server lists lock waits by these, not by branches."""
        return transaction_number(connection_of(session.handle))

    def look(self) -> MysqlLockView:
        """Open a view of the lock waits."""
        return MysqlLockView(self._engine, self.name)

    def _begun(self, xid: str, *, last: bool = False) -> MysqlSession | None:
        """Begin a branch; None if the pooled session was dead, which the pool now knows."""
        connection = self._engine.connect()
        try:
            connection.begin()
            try:
                connection.exec_driver_sql(f"XA START {xid}").close()
            except DBAPIError as error:
                if code_of(error) != codes.OUTSIDE:
                    raise
                connection.rollback()  # an earlier use of the connection left a transaction open
                connection.begin()
                connection.exec_driver_sql(f"XA START {xid}").close()
        except DBAPIError as error:
            connection.close()
            if error.connection_invalidated and not last:
                return None
            if not error.connection_invalidated and code_of(error) == codes.DUPLICATE_XID:
                raise DuplicateBranch(f"branch {xid} exists already") from error
            raise
        return MysqlSession(connection)

    def _end(self, connection: Connection, branch: BranchId, decision: Decision) -> bool:
        """Finish the prepared branch of a name; return whether there was one."""
        try:
            connection.exec_driver_sql(f"XA {decision.name} {self._xid(branch)}").close()
        except DBAPIError as error:
            number = code_of(error)
            if number in codes.ROLLED_BACK_BY_SERVER:
                return False
            if number != codes.UNKNOWN_XID:
                raise
            if branch in self._listed(connection):
                raise RetryLater(f"the session that prepared branch {branch.gid} still holds it") from error
            return False
        return True

    def _listed(self, connection: Connection) -> Sequence[BranchId]:
        own = f"@{self.database.hex}"
        found: list[BranchId] = []
        for form, length, _, data in connection.exec_driver_sql("XA RECOVER"):
            name = data.decode(errors="replace") if isinstance(data, bytes) else str(data)
            if form == FORMAT and name.endswith(own):
                found += ours(f"{PREFIX}:{name[:length]}:{name[length:].removesuffix(own)}")
        return found

    def _xid(self, branch: BranchId) -> str:
        return f"'{branch.transaction}','{branch.qualifier}@{self.database.hex}',{FORMAT}"
