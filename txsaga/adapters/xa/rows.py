"""
The row that a branch leaves in its own database, by its own commit (R9).

It lies in the evidence table beside the rows of local work, under the branch's name. Gone from the prepared
transactions and a row is there: committed, whoever did it; gone and no row: rolled back, whoever did it. If the row
were written anywhere else than in the branch itself, it could speak for work that never came.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Engine, Table, and_, delete, insert, literal, select
from sqlalchemy.exc import DBAPIError, IntegrityError

from txsaga.adapters.evidence import statements
from txsaga.adapters.evidence.answers import is_blocked, is_forbidden
from txsaga.adapters.evidence.creation import Place
from txsaga.adapters.evidence.key import EvidenceKey
from txsaga.adapters.evidence.schema import EVIDENCE, database_table
from txsaga.adapters.evidence.sessions import begin_now, short_waits
from txsaga.adapters.evidence.whereabouts import Whereabouts
from txsaga.errors import DecidedOtherwise, RightsMissing, xa
from txsaga.model.branch import BranchId, Finish
from txsaga.model.decision import Decision


class BranchRows:
    """The rows of branches in one database."""

    def __init__(self, engine: Engine, name: str, *, create: bool, database: UUID | None) -> None:
        self.where = Whereabouts(engine, name, create=create, database=database)
        self._name = name

    @property
    def place(self) -> Place:
        """Where they lie."""
        return self.where.place

    def write(self, connection: Connection, branch: BranchId) -> None:
        """Insert a branch's row in its own transaction: once, and in this very database only (R10)."""
        place = self.place
        row = {name: literal(value, place.table.c[name].type) for name, value in values(branch).items()}
        uuid = database_table(place.table.schema).c.uuid
        here = select(*row.values()).where(uuid == place.database.hex)
        if connection.execute(insert(place.table).from_select([*row], here)).rowcount != 1:
            self.where.refuse_other(None, place)

    def write_main(self, connection: Connection, branch: BranchId) -> None:
        """Insert the row of the transaction itself beside it: `DecidedOtherwise` where the barrier stands."""
        key = EvidenceKey.parse(branch.transaction)
        try:
            statements.write_now(connection, self.place.table, key, Decision.COMMIT)
        except IntegrityError as error:
            raise DecidedOtherwise(key.txid, Decision.ROLLBACK.name) from error

    def fence(self, connection: Connection, branch: BranchId) -> Finish:
        """Write the barrier in the place of a branch's own row, unless the row is there."""
        key, place = EvidenceKey.parse(branch.transaction), self.place
        with short_waits(connection, locks=1):
            try:
                begin_now(connection)
                statements.write_now(connection, place.table, key, Decision.ROLLBACK, branch.evidence)
                self.where.require_same(connection, place)
                connection.commit()
                return Finish.DONE
            except IntegrityError:
                connection.rollback()  # a row is there: it stands
            except DBAPIError as error:
                connection.rollback()
                if not is_blocked(error):
                    raise
                raise xa.RetryLater(f"branch {branch.gid} is being committed at this moment") from error
            return Finish.COMMITTED if self.is_committed(connection, branch) else Finish.DONE

    def is_committed(self, connection: Connection, branch: BranchId) -> bool:
        """Tell whether a branch has been committed; the database says in the same answer which one it is."""
        place = self.place
        outcome = select(place.table.c.outcome).where(_is(place.table, branch)).scalar_subquery()
        uuid, row = connection.execute(select(database_table(place.table.schema).c.uuid, outcome)).one_or_none() or (
            None,
            None,
        )
        self.where.refuse_other(uuid, place)
        return row == Decision.COMMIT

    def drop(self, connection: Connection, branch: BranchId) -> None:
        """Delete a branch's row."""
        place = self.place
        self.where.require_same(connection, place)
        try:
            connection.execute(delete(place.table).where(_is(place.table, branch)))
        except DBAPIError as error:
            if is_forbidden(error):
                raise RightsMissing(
                    f"resource {self._name!r} must grant us delete on {EVIDENCE} for a branch to be forgotten"
                ) from error
            raise


def values(branch: BranchId) -> Mapping[str, object]:
    """Return the columns of a branch's row."""
    return statements.row(EvidenceKey.parse(branch.transaction), Decision.COMMIT, branch.evidence)


def _is(table: Table, branch: BranchId) -> ColumnElement[bool]:
    return and_(*(table.c[name] == value for name, value in values(branch).items() if name != "outcome"))
