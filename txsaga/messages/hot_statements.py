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
from dataclasses import dataclass
from typing import NamedTuple

from txsaga.store import schema as tables
from txsaga.store import sql_files

SQL = sql_files.read("messages/sql/half.sql")


class RowSource(NamedTuple):
    """The source of a batch's rows: numbered parameters of these types, starting at `first`."""

    first: int
    types: tuple[str, ...]

    @property
    def many(self) -> str:
        """The rows as one array per column."""
        return f"unnest({', '.join(f'${number}' for number, _ in self._numbered)})"

    @property
    def one(self) -> str:
        """One row of plain values: a single row needs no arrays."""
        return f"(VALUES ({', '.join(f'${number}::{type}' for number, type in self._numbered)}))"

    @property
    def form(self) -> "StatementForm":
        """Both forms."""
        return StatementForm(self.one, self.many)

    @property
    def _numbered(self) -> list[tuple[int, str]]:
        return list(enumerate(self.types, self.first))


class StatementForm(NamedTuple):
    """A statement for one row and for many."""

    one: str
    many: str

    def of(self, count: int) -> str:
        """Return the statement for `count` rows."""
        return self.one if count == 1 else self.many


TOKEN = """sha256((SELECT token_outer FROM {s}.store)
    || sha256((SELECT token_inner FROM {s}.store) || int4send({group}) || int8send({txid})))"""
# The same for one row, with a single read of the keys.
TOKEN_OF_ONE = (
    """(SELECT sha256(token_outer || sha256(token_inner || int4send({group}) || int8send({txid}))) FROM {s}.store)"""
)

ROWS = RowSource(2, ("bool", "int4", "int4", "int4", "int4", "int4", "int4", "bytea"))
# Most batches: one message per half, all with the same group, evidence and immunity.
ALIKE = RowSource(5, ("int4", "bytea"))
_ALIKE = "(SELECT true, $2::int4, u.qid, 0, 1, $3::int4, $4::int4, u.body FROM {rows} AS u(qid, body))"
TIMED_ROWS = RowSource(2, (*ROWS.types, "float8", "float8"))
ENDS = RowSource(1, ("int8", "int4", "bytea", "int4", "bool"))
OWN_ENDS = RowSource(1, ("int8", "int4"))
NAMES = RowSource(1, ("int8", "int4", "bytea"))


class Lone(NamedTuple):
    """The statements that store a lone half without its token, and read the pads for making it."""

    store: str
    pads: str


class StatementWriter(NamedTuple):
    """A statement that writes, and what its SQL function needs to know of it."""

    sql: str
    source: RowSource
    answers: str
    group: str
    txid: str
    owner: int  # the parameter with the producer group of each row
    row: tuple[int, int, int, int | None] | None = None  # the parameters of queue, count, body and evidence
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    def form(self, schema: str, rows: StatementForm | None = None, others: str = "false") -> StatementForm:
        """Return the statement for one row and for many; `others` is the condition that needs no token."""
        one, many = rows or self.source.form
        one = written(self.sql, schema, self.group, self.txid, one, TOKEN_OF_ONE, others)
        return StatementForm(one, written(self.sql, schema, self.group, self.txid, many, others=others))

    def alike(self, schema: str) -> StatementForm:
        """Return the statement for halves that are alike."""
        return self.form(schema, StatementForm(*(_ALIKE.format(rows=rows) for rows in ALIKE.form)))

    def types(self, *, many: bool) -> tuple[str, ...]:
        """Return the types of all parameters."""
        return (*self.before, *(f"{type}[]" if many else type for type in self.source.types), *self.after)


_STORED, _BATCH = "txid int8, token bytea", ("int8",)
WRITERS = {
    "prepare": StatementWriter(SQL["prepare"], ROWS, _STORED, "pgroup", "txid", 3, (4, 6, 9, 7), before=_BATCH),
    "publish": StatementWriter(SQL["publish"], ROWS, _STORED, "h.pgroup", "h.txid", 3, (4, 6, 9, 7), before=_BATCH),
    "schedule": StatementWriter(
        SQL["schedule"], TIMED_ROWS, _STORED, "h.pgroup", "h.txid", 3, (4, 6, 9, 7), before=_BATCH
    ),
    "decide": StatementWriter(SQL["decide"], ENDS, "txid int8", "x.pgroup", "x.txid", 2, after=("int4",)),
    "recall": StatementWriter(SQL["recall"], ENDS, "txid int8", "x.pgroup", "x.txid", 2, after=("int4",)),
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
    own, given = (token.format(s=schema, group=signed, txid=txid) for signed in (group, f"-{group}"))
    return sql.format(s=schema, token=own, given=given, rows=rows, others=others, span=tables.SPAN).strip()


@dataclass(frozen=True)
class Hot:
    """The hot statements of one namespace."""

    prepare: StatementForm
    publish: StatementForm
    schedule: StatementForm
    prepare_alike: StatementForm | None  # if the halves of a batch are alike; owner only
    publish_alike: StatementForm | None
    lone: Lone | None
    decide_own: StatementForm | None
    batch: str
    newest: str
    decide: StatementForm
    recall: StatementForm
    standing: StatementForm
    tick: str
    fetch: str
    contents: str
    sweep: str
    ghosts: str
    doubts: str
    doubt: str

    @classmethod
    def of(cls, schema: str, *, owner: bool = True) -> "Hot":
        """Return the statements for a (quoted) namespace: for its owner, or as function calls for granted logins."""
        token = TOKEN if owner else TOKEN_ASKED

        def write(sql: str, group: str = "pgroup", txid: str = "txid") -> str:
            return written(sql, schema, group, txid, token=token)

        def write_form(name: str) -> StatementForm:
            writer = WRITERS[name]
            if owner:
                return writer.form(schema)
            one, many = (called(schema, name, writer.types(many=many)) for many in (False, True))
            return StatementForm(one, many)

        one = written(SQL["standing"], schema, "x.pgroup", "x.txid", NAMES.one, TOKEN_OF_ONE if owner else token)
        many = written(SQL["standing"], schema, "x.pgroup", "x.txid", NAMES.many, token)
        return cls(
            **{name: write_form(name) for name in WRITERS},
            prepare_alike=WRITERS["prepare"].alike(schema) if owner else None,
            publish_alike=WRITERS["publish"].alike(schema) if owner else None,
            lone=Lone(written(SQL["lone"], schema, "", "", _ALIKE.format(rows=ALIKE.one)), write(SQL["pads"]))
            if owner
            else None,
            decide_own=StatementForm(*(written(SQL["decide_own"], schema, "", "", rows) for rows in OWN_ENDS.form))
            if owner
            else None,
            batch=write(SQL["batch"]),
            newest=write(SQL["newest"]),
            standing=StatementForm(one, many),
            tick=SQL["tick"].format(s=schema),
            fetch=write(SQL["fetch"]) if owner else called(schema, "fetch", FETCHES),
            contents=write(SQL["contents"]) if owner else SQL["call_contents"].format(s=schema),
            sweep=write(SQL["sweep"]),
            ghosts=write(SQL["ghosts"]),
            doubts=write(SQL["doubts"], "d.pgroup", "d.txid"),
            doubt=write(SQL["doubt"], "x.pgroup", "x.txid"),
        )
