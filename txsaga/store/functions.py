"""
The SQL functions of a namespace: what logins other than its owner may do there.

Each runs with the owner's rights and first checks whether the login may call it. They run the very statements that
the owner's programs run, so the two can't drift apart, and every `db migrate` rewrites them. Without them a login
that sends would need access to the tables: there it could add a message to another login's transaction and
decide it, or assign offsets that stop the dispatcher.

They qualify every object with its schema, and their search path holds nothing that a caller could replace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, text

from txsaga.checkback import doubts_store as doubts
from txsaga.checkback import questions_store as questions
from txsaga.consume import claim_end_statements as claim_ends
from txsaga.consume import log_store
from txsaga.core import chunk
from txsaga.flows import work_statements as work
from txsaga.messages import hot_statements as hot
from txsaga.messages import ledger_store as ledger
from txsaga.store import partitions, sql_files

SQL = sql_files.read("store/sql/function.sql")
NO_CHUNK = "{s}.is_chunk({n}, {body}) IS NOT TRUE"
MARK = "-- written by txsaga db migrate"
CREATE = """
CREATE OR REPLACE FUNCTION {signature} RETURNS {answers} LANGUAGE plpgsql {kind} SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $txsaga${source}$txsaga$"""
DENY = "REVOKE ALL ON FUNCTION {name} FROM PUBLIC"


class Function(NamedTuple):
    """One SQL function: its name with argument types, its return type, its body."""

    name: str
    answers: str
    body: str
    kind: str = "VOLATILE"
    named: str = ""  # its arguments with names and defaults, of a function that users call

    @property
    def statement(self) -> str:
        """The statement that creates it."""
        signature = f"{self.name.partition('(')[0]}({self.named})" if self.named else self.name
        return CREATE.format(signature=signature, answers=self.answers, kind=self.kind, source=self.source)

    @property
    def source(self) -> str:
        """The source that the server stores; its third line tells what `CREATE OR REPLACE` can't change."""
        fixed = f"{self.answers} {self.named}".strip()
        return f"\n#variable_conflict use_column\n{MARK}: {fixed}\n{self.body.strip()}\n"


def write(connection: Connection, namespace: str) -> bool:
    """Bring the functions of a namespace to this program's; return whether any was changed."""
    wanted = functions(f'"{namespace}"')
    names = {"names": [function.name for function in wanted]}
    named = {**names, "namespace": f'"{namespace}"', "mark": MARK}
    unwanted = connection.execute(text(SQL["unwanted"]), named).scalars().all()
    have = dict(map(tuple, connection.execute(text(SQL["sources"]), names)))
    changed = [function for function in wanted if have.get(function.name) != function.source]
    statements = [f"DROP FUNCTION {name}" for name in unwanted]
    statements += [statement for function in changed for statement in _creation(function, have.get(function.name))]
    for statement in statements:
        connection.exec_driver_sql(statement, execution_options={"no_parameters": True})
    return bool(statements)


def _creation(function: Function, have: str | None) -> Iterator[str]:
    # What users made may depend on it, so it is dropped only if need be; policies and triggers depend on these kinds.
    same = (have or function.source).split("\n")[:3] == function.source.split("\n")[:3]
    if not same and function.answers not in ("boolean", "trigger"):
        yield f"DROP FUNCTION {function.name}"
    yield function.statement
    yield DENY.format(name=function.name)


def functions(s: str) -> list[Function]:
    """Return the functions of a (quoted) namespace."""
    return [*_questions(s), *_writers(s), *_others(s), *_of_users(s), *_of_checks(s), *_of_work(s), *_of_roles(s)]


def _questions(s: str) -> Iterator[Function]:
    """Yield the functions that identify the caller: by its login, as the current role here is always the owner.

    `mine` and `ours` cover the producer's groups alone. Each function and policy that engine or operator may use as
    well checks those rights in addition; otherwise two rights on one login would be more than both.
    """
    own = f"""SELECT FROM {s}.producer_group g WHERE g.id = $1
        AND (g.role IS NULL OR pg_has_role(session_user, to_regrole(quote_ident(g.role)), 'USAGE'))"""
    everywhere = f"{_has(s, 'engine')} OR {_has(s, 'operator')}"
    token = hot.written("{token}", s, "$1", "$2", token=hot.TOKEN_OF_ONE)
    is_chunk = SQL["is_chunk"].format(version=chunk.VERSION, columns=len(chunk.COLUMNS))
    yield Function(f"{s}.everywhere()", "boolean", f"BEGIN RETURN {everywhere}; END", "STABLE")
    yield Function(
        f"{s}.mine(int4)", "boolean", f"BEGIN RETURN {_has(s, 'producer')} AND EXISTS ({own}); END", "STABLE"
    )
    yield Function(
        f"{s}.ours(int8)",
        "boolean",
        f"BEGIN RETURN EXISTS (SELECT FROM {s}.tx WHERE txid = $1 AND {s}.mine(pgroup)); END",
        "STABLE",
    )
    yield Function(f"{s}.is_chunk(int4, bytea)", "boolean", is_chunk, "IMMUTABLE")
    told = "session_user || ' may not change what a step of another group does'"
    yield Function(f"{s}.keep_step()", "trigger", f"BEGIN RAISE insufficient_privilege USING MESSAGE = {told}; END")
    yield Function(
        f"{s}.token(int4, int8)", "bytea", f"BEGIN RETURN CASE WHEN {s}.mine($1) THEN {token} END; END", "STABLE"
    )


def _has(s: str, right: str) -> str:
    return f"has_column_privilege(session_user, '{s}.may'::regclass, '{right}', 'REFERENCES')"


def _writers(s: str) -> Iterator[Function]:
    for name, writer in hot.WRITERS.items():
        others = f"{s}.everywhere()" if name == "decide" else "false"
        for many, (sql, _) in zip((False, True), writer.form(s, others), strict=True):
            body = (
                f"BEGIN {_guard(s, writer.owner, writer.checked, many=many, others=others)} RETURN QUERY\n{sql};\nEND"
            )
            types = ", ".join(writer.types(many))
            yield Function(f"{s}.{name}({types})", f"TABLE ({writer.answers})", body)


def _guard(
    s: str, group: int | None, row: tuple[int, int, int, int | None] | None, *, many: bool, others: str = "false"
) -> str:
    """Return SQL that refuses groups of other logins, and rows on which a tick, reader or check would fail."""
    checks = []
    if group is not None:
        checks.append(
            (f"NOT ({s}.mine(x) OR {others})", [group], "session_user || ' may not act for that producer group'")
        )
    if row is not None:
        queue, count, body, evidence = row
        checks.append((f"NOT EXISTS (SELECT FROM {s}.queue WHERE qid = x)", [queue], "'there is no such queue'"))
        checks.append((NO_CHUNK.format(s=s, n="x", body="y"), [count, body], "'that is no chunk of so many messages'"))
        if evidence is not None:
            unknown = f"x <> 0 AND NOT EXISTS (SELECT FROM {s}.resource WHERE id = x)"
            checks.append((unknown, [evidence], "'there is no such resource'"))
    return "".join(_refusal(wrong, places, told, many=many) for wrong, places, told in checks)


def _refusal(wrong: str, places: Sequence[int], told: str, *, many: bool) -> str:
    names = "xy"[: len(places)]
    once = "DISTINCT " if len(places) == 1 else ""  # not for bodies: comparing them costs more than checking each
    values = ", ".join(
        f"unnest(${at}) AS {name}" if many else f"${at} AS {name}" for at, name in zip(places, names, strict=True)
    )
    return f"""
    IF EXISTS (SELECT FROM (SELECT {once}{values}) d WHERE {wrong}) THEN
        RAISE insufficient_privilege USING MESSAGE = {told};
    END IF;"""


def _others(s: str) -> Iterator[Function]:
    fetch = hot.written(hot.SQL["fetch"], s, "", "")
    yield Function(
        f"{s}.fetch({', '.join(hot.FETCHES)})", f"TABLE ({hot.FETCHED})", f"BEGIN RETURN QUERY\n{fetch};\nEND", "STABLE"
    )
    # Bodies of an undecided transaction, for a login that has a question about it.
    asked = f"{s}.mine(h.pgroup) AND EXISTS (SELECT FROM {s}.question a WHERE a.txid = h.txid)"
    contents = hot.written(hot.SQL["contents"], s, "", "") % {"txid": "$1"}
    yield Function(
        f"{s}.contents(int8)",
        "TABLE (topic varchar, body bytea)",
        f"BEGIN RETURN QUERY\n{contents.replace('WHERE h.txid = $1', f'WHERE h.txid = $1 AND {asked}')};\nEND",
        "STABLE",
    )
    send = sql_files.read("messages/sql/joined.sql")["send"].format(s=s, pgroup="$1", qid="$2", n="$3", body="$4")
    yield Function(
        f"{s}.send(int4, int4, int4, bytea)",
        "TABLE (txid int8)",
        f"BEGIN {_guard(s, 1, (2, 3, 4, None), many=False)} RETURN QUERY {send};\nEND",
    )
    names = ("grp", "qid", "base", "size", "receipt", "to", "body")
    moved = sql_files.numbered(claim_ends.SQL["backed_out"].format(s=s), names)
    back_out = SQL["back_out"].format(s=s, no_chunk=NO_CHUNK.format(s=s, n=1, body="$7"), moved=moved)
    yield Function(f"{s}.back_out(text, int4, int8, int4, int8, int4, bytea)", "void", back_out)


def _of_users(s: str) -> Iterator[Function]:
    """Yield what programs in any language call in their own transactions."""
    sql = sql_files.read("messages/sql/function.sql")
    send = sql["send"].format(s=s, pgroup="producer", qid="place", n=1, body="stored")
    named = (
        "producer text, topic text, body {}, key text DEFAULT NULL, tag text DEFAULT NULL, headers jsonb DEFAULT NULL"
    )
    as_text = f"BEGIN RETURN {s}.send($1, $2, convert_to($3, 'UTF8'), $4, $5, $6); END"
    for kind, body in {"bytea": send, "text": as_text}.items():
        yield Function(f"{s}.send(text, text, {kind}, text, text, jsonb)", "int8", body, named=named.format(kind))
    join = hot.written(sql["join"], s, "h.pgroup", "h.txid", token=hot.TOKEN_OF_ONE)
    yield Function(f"{s}.join(text)", "int8", join)
    yield Function(f"{s}.crc32(bytea)", "int8", sql["crc32"].format(s=s), "IMMUTABLE")


def _of_checks(s: str) -> Iterator[Function]:
    """Yield the functions for a producer's own doubts and questions; in the tables it could stop others' checks."""
    theirs = _has(s, "engine")
    held, taken = doubts.holding(s, theirs), questions.taking(s, theirs)
    yield Function(f"{s}.hold(int8[], float8)", "void", f"BEGIN {held};\nEND")
    yield Function(f"{s}.take(text, int4)", "TABLE (txid int8)", f"BEGIN RETURN QUERY {taken};\nEND")
    answered = SQL["answered"].format(answering=questions.answering(s, theirs))
    yield Function(f"{s}.answered(text, int8[], text[], text[])", "void", answered)
    yield Function(f"{s}.unlist(int8)", "void", f"BEGIN {ledger.SQL['unlisted'].format(s=s)};\nEND")


def _of_work(s: str) -> Iterator[Function]:
    """Yield an owner's functions for its work on resources."""
    begin = hot.written(work.BEGIN, s, "x.pgroup", "x.txid")
    unknown = f"NOT EXISTS (SELECT FROM {s}.resource WHERE id = x)"
    own = _guard(s, 1, None, many=True) + _refusal(unknown, [6], "'there is no such resource'", many=True)
    yield _called(s, "begin_work", work.BEGIN_TYPES, work.BEGIN_ANSWERS, own, begin)

    def not_ours(others: str) -> str:
        told = "session_user || ' may not act for that transaction'"
        return _refusal(f"NOT ({others} OR {s}.ours(x))", [1], told, many=True)

    rows = _guard(s, None, (8, 10, 11, None), many=True)
    rows += _refusal(f"x <> 0 AND {unknown}", [6], "'there is no such resource'", many=True)
    guard, resolve = not_ours(_has(s, "engine")) + rows, work.BRANCHES["resolve"].format(s=s)
    yield _called(s, "resolve", work.RESOLVE_TYPES, work.RESOLVE_ANSWERS, guard, resolve)
    theirs, note = not_ours(f"{s}.everywhere()"), work.BRANCHES["note"].format(s=s)
    yield _called(s, "note_branches", work.NOTE_TYPES, work.NOTE_ANSWERS, theirs, note)


def _called(s: str, name: str, types: Sequence[str], answers: str, guard: str, sql: str) -> Function:
    return Function(f"{s}.{name}({', '.join(types)})", f"TABLE ({answers})", f"BEGIN {guard} RETURN QUERY\n{sql};\nEND")


def _of_roles(s: str) -> Iterator[Function]:
    yield Function(f"{s}.tick(int8)", f"TABLE ({log_store.TICK_ANSWERS})", log_store.ticking(s))
    yield Function(f"{s}.refuse_queue()", "trigger", SQL["refuse_queue"].format(s=s))
    yield Function(f"{s}.delete_topic(int4)", "void", SQL["delete_topic"].format(s=s))
    yield Function(f"{s}.drop_ticks(int8)", "void", partitions.dropping_ticks(s))
    yield Function(f"{s}.attach_partition(text, int8)", "void", partitions.attaching(s))
    yield Function(f"{s}.drop_partition(int8)", "boolean", partitions.dropping(s))
