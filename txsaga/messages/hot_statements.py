"""
The hot statements, written for one namespace: prepare, publish, schedule, decide, recall, fetch, sweep.

They are plain SQL; those with numbered parameters go directly to the server by `PipelineConnection.exchange`. They
update and delete only one queue row per queue and tick, and recalled messages. Tests pin their plans. They run under
`plan_cache_mode = force_generic_plan`: planning each time costs more than running them.

Logins that do not own the namespace call the writing ones, and `fetch`, as functions that run with the owner's rights:
see `functions.py`. All logins call the tick function, see `ticks.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from txsaga.store import schema as tables


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


# A message sent within the caller's own transaction is decided where it is stored.
SEND_JOINED = """
WITH h AS (INSERT INTO {s}.half (txid, pgroup, qid, chunk, n, body)
           VALUES (nextval('{s}.tx_seq'), {pgroup}, {qid}, 0, {n}, {body}) RETURNING txid)
INSERT INTO {s}.op (txid, decision) SELECT txid, 1 FROM h RETURNING txid"""

TOKEN = """sha256((SELECT token_outer FROM {s}.store)
    || sha256((SELECT token_inner FROM {s}.store) || int4send({group}) || int8send({txid})))"""
# The same for one row, with a single read of the keys.
TOKEN_OF_ONE = (
    """(SELECT sha256(token_outer || sha256(token_inner || int4send({group}) || int8send({txid}))) FROM {s}.store)"""
)

_INSERT = """
INSERT INTO {s}.half (txid, batch, pgroup, qid, chunk, n, evidence, immunity, body)
SELECT CASE WHEN x.first THEN nextval('{s}.tx_seq') ELSE currval('{s}.tx_seq') END,
       $1, x.pgroup, x.qid, x.chunk, x.n, x.evidence, x.immunity, x.body
  FROM {rows} AS x(first, pgroup, qid, chunk, n, evidence, immunity, body)"""
ROWS = RowSource(2, ("bool", "int4", "int4", "int4", "int4", "int4", "int4", "bytea"))
# Most batches: one message per half, all with the same group, evidence and immunity.
ALIKE = RowSource(5, ("int4", "bytea"))
_ALIKE = "(SELECT true, $2::int4, u.qid, 0, 1, $3::int4, $4::int4, u.body FROM {rows} AS u(qid, body))"

PREPARE = (
    _INSERT
    + """
 CROSS JOIN {s}.store WHERE NOT store.rejecting
RETURNING txid, {token}"""
)

# A lone half: the session makes its token, from the pads of this store.
LONE = (
    _INSERT
    + """
 CROSS JOIN {s}.store WHERE NOT store.rejecting AND store.uuid = $7 AND store.incarnation = $8
RETURNING txid"""
)
PADS = "SELECT token_outer, token_inner FROM {s}.store WHERE uuid = $1 AND incarnation = $2"

PUBLISH = (
    "WITH h AS ("
    + _INSERT
    + """
RETURNING txid, pgroup),
 o AS (INSERT INTO {s}.op (txid, decision) SELECT DISTINCT txid, 1 FROM h ORDER BY txid RETURNING txid)
SELECT DISTINCT h.txid, {token} FROM h ORDER BY h.txid"""
)

# A delayed message is a half that only the schedule decides: without both rows at once it would get checked.
SCHEDULE = """
WITH x AS MATERIALIZED (
    SELECT CASE WHEN first THEN nextval('{s}.tx_seq') ELSE currval('{s}.tx_seq') END AS txid, r.*
      FROM {rows} AS r(first, pgroup, qid, chunk, n, evidence, immunity, body, delay, moment)),
 h AS (INSERT INTO {s}.half (txid, batch, pgroup, qid, chunk, n, body)
    SELECT txid, $1, pgroup, qid, chunk, n, body FROM x RETURNING txid, pgroup),
 w AS (INSERT INTO {s}.scheduled (txid, at, pgroup)
    SELECT txid, coalesce(to_timestamp(moment), clock_timestamp() + delay * interval '1 second'), pgroup
      FROM x WHERE first)
SELECT DISTINCT h.txid, {token} FROM h ORDER BY h.txid"""
TIMED_ROWS = RowSource(2, (*ROWS.types, "float8", "float8"))

NEWEST = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {s}.tx_seq"

# The numbers of a batch whose answer was lost, if it was stored.
BATCH = """
SELECT DISTINCT txid, {token} FROM {s}.half WHERE txid > $1 AND batch = $2 ORDER BY txid"""

DECIDE = """
INSERT INTO {s}.op (txid, decision, from_check)
SELECT x.txid, x.decision, x.from_check
  FROM {rows} AS x(txid, pgroup, token, decision, from_check)
 CROSS JOIN LATERAL (SELECT pgroup, keyed, born, immunity FROM {s}.half WHERE half.txid = x.txid LIMIT 1) h
 WHERE h.pgroup = x.pgroup AND NOT h.keyed AND (x.token = {token} OR (x.token = '' AND {others}))
   AND (h.immunity IS NULL OR x.from_check
        OR h.born + greatest(h.immunity, $6) * interval '1 second' > clock_timestamp())
    ON CONFLICT (txid) DO NOTHING
RETURNING txid"""
ENDS = RowSource(1, ("int8", "int4", "bytea", "int4", "bool"))

# Halves that this session stored itself, without an immunity, are plain and of its group: no half is read. The primary
# key refuses one that is already decided, as long as its partition is the youngest: in an older one rows of decided
# transactions may be gone. There, and in another store, the decision is NULL. Refused ends then take the long way.
DECIDE_OWN = """
INSERT INTO {s}.op (txid, decision)
SELECT x.txid, CASE WHEN x.txid >= (
           SELECT q.last_value - q.last_value % {span} FROM {s}.store t CROSS JOIN {s}.tx_seq q
            WHERE t.uuid = $3 AND t.incarnation = $4) THEN x.decision END
  FROM {rows} AS x(txid, decision)"""
OWN_ENDS = RowSource(1, ("int8", "int4"))

RECALL = (
    "WITH o AS ("
    + DECIDE
    + """),
 d AS (DELETE FROM {s}.scheduled WHERE txid = ANY (ARRAY(SELECT txid FROM o)))
SELECT txid FROM o"""
)

# Why an end got no row: the final decision, or what was wrong with it.
STANDING = """
SELECT x.txid, o.decision, h.pgroup, h.keyed, x.token = {token} AS genuine
  FROM {rows} AS x(txid, pgroup, token)
  LEFT JOIN LATERAL (SELECT pgroup, keyed FROM {s}.half WHERE half.txid = x.txid LIMIT 1) h ON true
  LEFT JOIN {s}.op o ON o.txid = x.txid"""
NAMES = RowSource(1, ("int8", "int4", "bytea"))

TICK = "SELECT * FROM {s}.tick(%(limit)s)"  # see ticks.py

FETCH = """
SELECT l.base, l.n, l.txid, l.part, l.attempt, l.chunk, h.born, h.body
  FROM (SELECT * FROM {s}.log WHERE qid = $1 AND base < least($4, (SELECT head FROM {s}.queue WHERE qid = $1))
           AND base >= coalesce((SELECT max(base) FROM {s}.log WHERE qid = $1 AND base <= $2), 0)
         ORDER BY base LIMIT $3) l
  JOIN LATERAL (SELECT born, body FROM {s}.half h WHERE h.txid = l.txid AND h.part = l.part
                   AND h.attempt = l.attempt AND h.qid = l.qid AND h.chunk = l.chunk OFFSET 0) h ON true
 WHERE l.base + l.n > $2 ORDER BY l.base"""

# Numbers without a decision, then their halves: no half of a decided transaction is read.
# A half is due when its own immunity is over, never before. Like its end, this raises an immunity to the minimum.
SWEEP = """
INSERT INTO {s}.doubt (txid, pgroup, check_at)
SELECT x.txid, h.pgroup,
       h.born + interval '1 second' * greatest(coalesce((p.checks ->> 'min_age')::float8, %(age)s),
                CASE WHEN h.immunity IS NOT NULL THEN greatest(h.immunity, %(least)s) END)
  FROM (SELECT n AS txid FROM generate_series(%(lo)s::int8 + 1, %(hi)s::int8) n
         WHERE NOT EXISTS (SELECT FROM {s}.op o WHERE o.txid = n AND o.txid > %(lo)s AND o.txid <= %(hi)s)
        OFFSET 0) x
  JOIN LATERAL (SELECT pgroup, born, immunity FROM {s}.half h
                 WHERE h.txid = x.txid AND h.txid > %(lo)s AND h.txid <= %(hi)s AND NOT h.keyed LIMIT 1) h ON true
  LEFT JOIN {s}.producer_group p ON p.id = h.pgroup
 WHERE NOT EXISTS (SELECT FROM {s}.scheduled w WHERE w.txid = x.txid AND w.txid > %(lo)s AND w.txid <= %(hi)s)
    ON CONFLICT (txid) DO NOTHING"""

# Listed transactions that no longer exist can't be checked; each is looked up by its number.
GHOSTS = """
DELETE FROM {s}.doubt d WHERE d.check_at <= (SELECT clock_timestamp())
   AND (SELECT t.txid FROM {s}.tx t WHERE t.txid = d.txid) IS NULL
   AND (SELECT h.txid FROM {s}.half h WHERE h.txid = d.txid LIMIT 1) IS NULL"""

# Decisions and questions are looked up one by one: an anti join would read all of them each time. The clock is read
# once: an index can't be searched for a value that changes from row to row. Columns are in the order of `Doubt`. A
# transaction of a run may be open as long as the run lives, so its age counts from its last step.
DOUBTS = """
SELECT d.txid, d.pgroup, {token}, d.keyed, coalesce(t.evidence, h.evidence), coalesce(t.opened, h.born), d.checks,
       clock_timestamp() - coalesce(greatest(d.resumed, t.since), h.born), t.run, d.remarks -> -1 ->> 'who'
  FROM (SELECT * FROM {s}.doubt w WHERE parked IS NULL AND check_at <= (SELECT clock_timestamp())
           AND (SELECT o.txid FROM {s}.op o WHERE o.txid = w.txid) IS NULL
           AND (SELECT q.txid FROM {s}.question q WHERE q.txid = w.txid) IS NULL
         ORDER BY check_at, txid LIMIT $1) d
  LEFT JOIN LATERAL (SELECT evidence, opened, run, CASE WHEN run IS NULL THEN opened ELSE touched END AS since
                       FROM {s}.tx WHERE d.keyed AND tx.txid = d.txid OFFSET 0) t ON true
  LEFT JOIN LATERAL (SELECT evidence, born FROM {s}.half h WHERE h.txid = d.txid LIMIT 1) h ON true
 WHERE coalesce(t.opened, h.born) IS NOT NULL
 ORDER BY d.check_at, d.txid"""

# One transaction, on the list or not, for settling it by hand.
DOUBT = """
SELECT x.txid, x.pgroup, {token}, x.keyed, x.evidence, x.born, coalesce(d.checks, 0), clock_timestamp() - x.born,
       x.run
  FROM (SELECT txid, pgroup, true AS keyed, evidence, opened AS born, run FROM {s}.tx WHERE txid = %(txid)s
        UNION ALL
        (SELECT txid, pgroup, false, evidence, born, NULL FROM {s}.half WHERE txid = %(txid)s AND NOT keyed LIMIT 1)) x
  LEFT JOIN {s}.doubt d ON d.txid = x.txid"""


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
    "prepare": StatementWriter(PREPARE, ROWS, _STORED, "pgroup", "txid", 3, (4, 6, 9, 7), before=_BATCH),
    "publish": StatementWriter(PUBLISH, ROWS, _STORED, "h.pgroup", "h.txid", 3, (4, 6, 9, 7), before=_BATCH),
    "schedule": StatementWriter(SCHEDULE, TIMED_ROWS, _STORED, "h.pgroup", "h.txid", 3, (4, 6, 9, 7), before=_BATCH),
    "decide": StatementWriter(DECIDE, ENDS, "txid int8", "x.pgroup", "x.txid", 2, after=("int4",)),
    "recall": StatementWriter(RECALL, ENDS, "txid int8", "x.pgroup", "x.txid", 2, after=("int4",)),
}
FETCHED = "base int8, n int4, txid int8, part int4, attempt int4, chunk int4, born timestamptz, body bytea"
FETCHES = ("int4", "int8", "int4", "int8")  # queue, offset, how many, end

# What a transaction would deliver: its halves; for a keyed one, those of the attempts that count.
CONTENTS = """
SELECT t.name, h.body FROM {s}.half h JOIN {s}.queue q USING (qid) JOIN {s}.topic t ON t.id = q.topic
 WHERE h.txid = %(txid)s AND (NOT h.keyed OR EXISTS (
       SELECT FROM {s}.part p WHERE (p.txid, p.part, p.attempt) = (h.txid, h.part, h.attempt)))
 ORDER BY h.part, h.attempt, h.qid, h.chunk"""
CALL_CONTENTS = "SELECT * FROM {s}.contents(%(txid)s::int8)"

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

        one = written(STANDING, schema, "x.pgroup", "x.txid", NAMES.one, TOKEN_OF_ONE if owner else token)
        many = written(STANDING, schema, "x.pgroup", "x.txid", NAMES.many, token)
        return cls(
            **{name: write_form(name) for name in WRITERS},
            prepare_alike=WRITERS["prepare"].alike(schema) if owner else None,
            publish_alike=WRITERS["publish"].alike(schema) if owner else None,
            lone=Lone(written(LONE, schema, "", "", _ALIKE.format(rows=ALIKE.one)), write(PADS)) if owner else None,
            decide_own=StatementForm(*(written(DECIDE_OWN, schema, "", "", rows) for rows in OWN_ENDS.form))
            if owner
            else None,
            batch=write(BATCH),
            newest=write(NEWEST),
            standing=StatementForm(one, many),
            tick=TICK.format(s=schema),
            fetch=write(FETCH) if owner else called(schema, "fetch", FETCHES),
            contents=write(CONTENTS) if owner else CALL_CONTENTS.format(s=schema),
            sweep=write(SWEEP),
            ghosts=write(GHOSTS),
            doubts=write(DOUBTS, "d.pgroup", "d.txid"),
            doubt=write(DOUBT, "x.pgroup", "x.txid"),
        )
