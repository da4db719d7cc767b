"""The statements on the evidence table; the caller commits."""

from collections.abc import Collection
from functools import cache
from itertools import groupby

from sqlalchemy import ColumnElement, Connection, Insert, Select, Table, and_, bindparam, insert, or_, select, text

from txsaga.core.decision import Decision
from txsaga.evidence.schema import MAIN, EvidenceKey, database_table
from txsaga.evidence.sessions import PLAIN

COLUMNS = [*EvidenceKey._fields, "branch", "outcome"]
SLOT = "slot:"  # prefix of branches with late bodies, before the slot number


# The row and the local work must survive a server crash even if the session has turned synchronous_commit off. Part of
# the same statement, since that opens every local transaction. The setting ends with the transaction.
DURABLE = "case current_setting('synchronous_commit') when 'off' then set_config('synchronous_commit', 'on', true) end"

# The server reports this setting to the client unasked, both when it is set and when it reverts at the end of the
# transaction: so the client knows without a round trip whether it is still in the row's transaction.
MARKED = f"""{DURABLE}, set_config('application_name',
  left(split_part(current_setting('application_name'), ' #', 1), 40) || ' #' || pg_current_xact_id(), true)"""


@cache
def write(table: Table, dialect_name: str) -> Insert:
    """Insert the row that records the outcome of local work; its key admits only one."""
    # Not `on conflict do nothing`: a duplicate-key error is the same at every isolation level.
    written = insert(table).values({name: bindparam(name) for name in COLUMNS})
    return written.returning(text(MARKED)) if dialect_name == "postgresql" else written


def write_now(connection: Connection, table: Table, key: EvidenceKey, outcome: Decision, branch: str = MAIN) -> None:
    """Insert the row."""
    written = write(table, connection.dialect.name)
    connection.execute(written, row(key, outcome, branch), execution_options=PLAIN).close()


@cache
def write_if_here(table: Table) -> Insert:
    """Insert the row of `write` in the one database whose uuid is the parameter `here`; elsewhere, none."""
    here = database_table(table.schema)
    values = [bindparam(name, type_=table.c[name].type) for name in COLUMNS]
    return insert(table).from_select(COLUMNS, select(*values).where(here.c.uuid == bindparam("here")))


def row(key: EvidenceKey, outcome: Decision, branch: str = MAIN) -> dict[str, object]:
    """Return the parameters of `write`."""
    return {**key._asdict(), "branch": branch, "outcome": int(outcome)}


def write_body(table: Table, key: EvidenceKey, branch: str, body: bytes) -> Insert:
    """Insert a late body, or the result of a step, with the evidence."""
    return insert(table).values(**row(key, Decision.COMMIT, branch), body=body)


def look(table: Table, keys: Collection[EvidenceKey]) -> Select[str, int, int, str, int, bytes | None]:
    """Select all rows of the given transactions."""
    c = table.c
    return select(c.store, c.incarnation, c.txid, c.branch, c.outcome, c.body).where(_any_of(table, keys))


def outcome_of(table: Table, key: EvidenceKey, branch: str = MAIN) -> Select[int]:
    """Select the outcome in one row."""
    return select(table.c.outcome).where(_any_of(table, [key]), table.c.branch == branch)


def body_of(table: Table, key: EvidenceKey, branch: str) -> Select[bytes]:
    """Select the body in one row."""
    return select(table.c.body).where(_any_of(table, [key]), table.c.branch == branch)


def branches(table: Table, key: EvidenceKey) -> Select[str]:
    """Select the branches of one transaction."""
    return select(table.c.branch).where(_any_of(table, [key]))


def _any_of(table: Table, keys: Collection[EvidenceKey]) -> ColumnElement[bool]:
    c = table.c
    return or_(
        *(
            and_(c.store == store, c.incarnation == incarnation, c.txid.in_([key.txid for key in group]))
            for (store, incarnation), group in groupby(sorted(keys), lambda key: key[:2])
        )
    )
