"""
The hot statements, written for one namespace: prepare, publish, schedule, decide, recall, fetch, sweep.

They are plain SQL in `sql/half.sql`; those with numbered parameters go directly to the server by
`PipelineConnection.exchange`. They update and delete only one queue row per queue and tick, and recalled messages.
Tests pin their plans. They run under `plan_cache_mode = force_generic_plan`: planning each time costs more than
running them.

Logins that do not own the namespace call the writing ones, and `fetch`, as functions that run with the owner's rights:
see `functions.py`. All logins call the tick function, see `log_store.py`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from txsaga.store import sql_files
from txsaga.store.statement import BatchStatement, PreparedStatement

SQL = sql_files.read("messages/sql/half.sql")

TOKEN = """sha256((SELECT token_outer FROM {s}.store)
    || sha256((SELECT token_inner FROM {s}.store) || int4send({group}) || int8send({txid})))"""
# The same for one row, with a single read of the keys.
TOKEN_OF_ONE = (
    """(SELECT sha256(token_outer || sha256(token_inner || int4send({group}) || int8send({txid}))) FROM {s}.store)"""
)

HALF = ("bool", "int4", "int4", "int4", "int4", "int4", "int4", "bytea")
END = ("int8", "int4", "bytea", "int4", "bool")


class StatementWriter(NamedTuple):
    """A statement that writes a batch, and what its SQL function needs to know of it."""

    sql: str
    row: tuple[str, ...]  # the types of its columns
    answers: str
    group: str
    txid: str
    owner: int  # the parameter with the producer group of each row
    checked: tuple[int, int, int, int | None] | None = None  # the parameters of queue, count, body and evidence
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    def form(self, schema: str, others: str = "false") -> BatchStatement:
        """Return the statement for one row and for many; `others` is the condition that needs no token."""

        def write(rows: str, token: str = TOKEN) -> str:
            return written(self.sql, schema, self.group, self.txid, rows, token, others)

        def write_one(row: str) -> str:
            return write(row, TOKEN_OF_ONE)

        return BatchStatement.of(write, self.row, before=self.before, after=self.after, write_one=write_one)

    def call_form(self, schema: str, name: str) -> BatchStatement:
        """Return the calls of its SQL function, of this name, for one row and for many."""
        one, many = self.types(False), self.types(True)
        return BatchStatement(
            PreparedStatement.of(called(schema, name, one), one), PreparedStatement.of(called(schema, name, many), many)
        )

    def types(self, many: bool) -> tuple[str, ...]:
        """Return the types of all parameters."""
        return (*self.before, *(f"{type}[]" if many else type for type in self.row), *self.after)


_STORED, _BATCH = "txid int8, token bytea", ("int8",)
WRITERS = {
    "prepare": StatementWriter(SQL["prepare"], HALF, _STORED, "pgroup", "txid", 3, (4, 6, 9, 7), before=_BATCH),
    "publish": StatementWriter(SQL["publish"], HALF, _STORED, "h.pgroup", "h.txid", 3, (4, 6, 9, 7), before=_BATCH),
    "schedule": StatementWriter(
        SQL["schedule"], (*HALF, "float8", "float8"), _STORED, "h.pgroup", "h.txid", 3, (4, 6, 9, 7), before=_BATCH
    ),
    "decide": StatementWriter(SQL["decide"], END, "txid int8", "x.pgroup", "x.txid", 2, after=("int4",)),
    "recall": StatementWriter(SQL["recall"], END, "txid int8", "x.pgroup", "x.txid", 2, after=("int4",)),
}
FETCHED = "base int8, n int4, txid int8, part int4, attempt int4, chunk int4, born timestamptz, body bytea"
FETCHES = ("int4", "int8", "int4", "int8")  # queue, offset, how many, end

TOKEN_ASKED = "coalesce({s}.token({group}, {txid}), '')"
"""The token, for logins that may not read the keys; empty for a group that is not the login's."""


def called(schema: str, name: str, types: Sequence[str]) -> str:
    """Return the call of a function; the types select one of its two forms and give NULLs a type."""
    return f"SELECT * FROM {schema}.{name}({', '.join(f'${at}::{type}' for at, type in enumerate(types, 1))})"


def written(
    sql: str, schema: str, group: str, txid: str, rows: str = "", token: str = TOKEN, others: str = "false"
) -> str:
    """Return a statement for a (quoted) namespace."""
    own = token.format(s=schema, group=group, txid=txid)
    return sql.format(s=schema, token=own, rows=rows, others=others).strip()


class Hot:
    """The hot statements of a (quoted) namespace: for its owner, or as function calls for granted logins."""

    def __init__(self, schema: str, *, owner: bool = True) -> None:
        token = TOKEN if owner else TOKEN_ASKED

        def write(name: str, group: str = "pgroup", txid: str = "txid", rows: str = "", token: str = token) -> str:
            return written(SQL[name], schema, group, txid, rows, token)

        self.writers = {
            name: writer.form(schema) if owner else writer.call_form(schema, name) for name, writer in WRITERS.items()
        }
        self.batch = PreparedStatement.of(write("batch"), ("int8", "int8"))
        self.newest = PreparedStatement.of(write("newest"), ())
        self.standing = BatchStatement.of(
            lambda rows: write("standing", "x.pgroup", "x.txid", rows),
            END[:3],
            write_one=lambda row: write("standing", "x.pgroup", "x.txid", row, TOKEN_OF_ONE if owner else token),
        )
        self.tick = SQL["tick"].format(s=schema)
        self.fetch = PreparedStatement.of(write("fetch") if owner else called(schema, "fetch", FETCHES), FETCHES)
        self.contents = write("contents") if owner else SQL["call_contents"].format(s=schema)
        self.views = write("views")
        self.sweep = write("sweep")
        self.ghosts = write("ghosts")
        self.doubts = PreparedStatement.of(write("doubts", "d.pgroup", "d.txid"), ("int8",))
        self.doubt = write("doubt", "x.pgroup", "x.txid")
