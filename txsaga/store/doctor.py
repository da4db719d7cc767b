"""
Examine a home database: server, session settings, pooler, rights, schema, identity, state of the store.

This changes nothing, and the checks are independent: one that can't be done is a finding, and the next one runs
all the same. So the findings also explain why a store can't be opened.

Of rows that contradict each other (they were changed by hand, or part of a backup was restored) only the newest are
compared, so that a long history costs nothing. Retention drops rows from all tables at once, so it causes no finding.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, NullPool, create_engine, text

from txsaga.checkback.profile import PROFILES, Exhausted
from txsaga.consume import log_store
from txsaga.core.clock import span_in_words, wall_clock
from txsaga.errors import LakeMissing, RightsMissing, StoreUnavailable, TxSagaError
from txsaga.store import founding, granting, migrate, partitions, sql_files
from txsaga.store.connection import NETWORK, SESSION, make_engine, parse_url, transaction, translating
from txsaga.store.functions import functions as written_for
from txsaga.store.migrate import OLDEST
from txsaga.store.partitions import bounds
from txsaga.store.privileges import needed
from txsaga.store.right import SIGN, Right
from txsaga.store.store import Store

SQL = sql_files.read("store/sql/doctor.sql")


class Severity(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check."""

    what: str = ""  # the name of the check, given by whoever asked
    severity: Severity
    found: str
    remedy: str | None = None


def ok(found: str, remedy: str | None = None) -> Finding:
    """Report that all is as it should be; a remedy is only a hint."""
    return Finding(severity=Severity.OK, found=found, remedy=remedy)


def warning(found: str, remedy: str) -> Finding:
    """Report what an operator should examine."""
    return Finding(severity=Severity.WARNING, found=found, remedy=remedy)


def error(found: str, remedy: str | None) -> Finding:
    """Report what does not work, or loses acknowledged data."""
    return Finding(severity=Severity.ERROR, found=found, remedy=remedy)


NEEDED = ("connection", "pooler", "schema", "identity", "store")
"""If one of these fails, no program can open the store."""
Question = Callable[[Connection], Finding]


def examine(url: str) -> list[Finding]:
    """Run all checks that can run; return findings in the order in which they should be fixed."""
    address, namespace = parse_url(url)
    network = {name: value for name, value in NETWORK.items() if name not in address.query}
    # With the settings of the user's own connections, without those that we set.
    plain = create_engine(address, poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args=network)
    ours = make_engine(address, namespace)
    try:
        return list(_examined(url, plain, ours, namespace))
    finally:
        plain.dispose()
        ours.dispose()


def _examined(url: str, plain: Engine, ours: Engine, namespace: str) -> Iterator[Finding]:
    connected = _asked("connection", plain, reached)
    yield connected
    if connected.severity is Severity.ERROR:
        return
    for what, ask in SERVER.items():
        yield _asked(what, plain, ask)
    yield _told("pooler", lambda: pooler(plain, ours))
    yield (schema := _told("schema", partial(_schema, ours, namespace)))
    if schema.severity is Severity.ERROR:
        return
    yield (identity := _told("identity", partial(_identity, ours)))
    for what, look in PLACES.items():
        yield _asked(what, plain, partial(look, namespace=namespace))
    if identity.severity is not Severity.ERROR:
        yield from _state(url)


def _state(url: str) -> Iterator[Finding]:
    try:
        store = Store.open(url)
    except TxSagaError as failure:
        yield replace(_failed("store", failure), what="store")
        return
    try:
        for what, look in STATE.items():
            yield _told(what, partial(look, store))
    finally:
        store.close()


def _schema(engine: Engine, namespace: str) -> Finding:
    with transaction(engine) as connection:
        migrate.check(connection, namespace)
    return ok(f"namespace {namespace} has schema {migrate.newest()}")


def _identity(engine: Engine) -> Finding:
    with transaction(engine) as connection:
        return ok(f"store {founding.recognise(connection)} belongs to this server")


def _asked(what: str, engine: Engine, question: Question) -> Finding:
    def ask() -> Finding:
        with translating(), engine.connect() as connection:
            return question(connection)

    return _told(what, ask)


def _told(what: str, ask: Callable[[], Finding]) -> Finding:
    try:
        found = ask()
    except TxSagaError as failure:
        found = _failed(what, failure)
    return replace(found, what=what)


def _failed(what: str, failure: TxSagaError) -> Finding:
    """Turn an error into a finding: what is wrong is before its semicolon, the remedy after it."""
    found, _, remedy = str(failure).partition("; ")
    if isinstance(failure, RightsMissing) and what not in NEEDED:
        return ok("not checked: this login lacks the right")
    if isinstance(failure, StoreUnavailable) and what not in NEEDED:
        return warning(f"can't be checked: {found}", remedy or "try again")
    if not remedy:
        return error(f"can't be checked: {found}", "see the server's log")
    return error(found, remedy)


SKEW = 1.0
"""Seconds by which the clocks may differ."""
LONG = 600.0
"""Seconds after which a transaction that holds back vacuum is reported."""
LITTLE = 2**30
"""Bytes of free disk below which a warning is given."""
SHORT = 10_000
"""Milliseconds: a shorter idle-in-transaction timeout cuts off ordinary work."""


def reached(connection: Connection) -> Finding:
    """Report user and database, or that the server is a standby."""
    user, database, standby = connection.execute(
        text("SELECT current_user, current_database(), pg_is_in_recovery()")
    ).one()
    if standby:
        return error("this server is a read-only standby", "connect to the writable primary")
    return ok(f"{user} on database {database}")


def version(connection: Connection) -> Finding:
    """Check the server's version."""
    number = int(connection.execute(text("SHOW server_version_num")).scalar_one())
    if number < OLDEST:
        return error(f"PostgreSQL {number // 10_000} is too old", f"upgrade to {OLDEST // 10_000} or later")
    return ok(f"PostgreSQL {connection.execute(text('SHOW server_version')).scalar_one()}")


def clock(connection: Connection) -> Finding:
    """Compare the clocks; the duration of the query is not counted as skew."""
    before = wall_clock()
    there = connection.execute(text("SELECT clock_timestamp()")).scalar_one()
    after = wall_clock()
    late, early = (there - after).total_seconds(), (before - there).total_seconds()
    skew = max(late, early, 0.0)
    if skew > SKEW:
        way = "ahead of" if late > 0 else "behind"
        return warning(f"the server is {skew:.1f} s {way} this machine", "synchronise both clocks (NTP)")
    return ok("the clocks of this machine and the server agree")


def two_phase(connection: Connection) -> Finding:
    """Report whether branches can be prepared here."""
    most = int(connection.execute(text("SHOW max_prepared_transactions")).scalar_one())
    hint = "for two-phase commit set max_prepared_transactions and restart the server" if not most else None
    return ok(f"max_prepared_transactions is {most}", hint)


def durability(connection: Connection) -> Finding:
    """Check for settings with which a crash loses acknowledged data."""
    found = _settings(connection, ("fsync", "full_page_writes", "synchronous_commit"))
    if off := [name for name in ("fsync", "full_page_writes") if found[name][0] == "off"]:
        return error(
            f"{' and '.join(off)} off: a crash of the machine can lose or damage committed data",
            f"set {', '.join(off)} = on in postgresql.conf",
        )
    value, source = found["synchronous_commit"]
    if value in ("off", "local"):
        return warning(
            f"synchronous_commit is {value} (by {source}): txsaga overrides it, your own transactions do not",
            _reset(connection, "synchronous_commit", source),
        )
    return ok("commits are on disk before they are acknowledged")


def settings(connection: Connection) -> Finding:
    """Check for settings of the role, the database or the server that break ours."""
    found = _settings(connection, tuple(BREAKING))
    for name, (breaks, severity) in BREAKING.items():
        value, source = found[name]
        if breaks(value):
            return severity(f"{name} is {value!r} (by {source})", _reset(connection, name, source))
    return ok("no setting of the role or the database interferes")


def pooler(plain: Engine, ours: Engine) -> Finding:
    """Check that a session keeps its backend, and the settings it started with."""
    if _shares_backends(plain):
        return error(
            "a pooler gives each statement another backend: LISTEN and prepared statements do not work",
            "connect to the server itself",
        )
    with translating(), ours.connect() as connection:
        kept = connection.execute(text("SHOW lock_timeout")).scalar_one()
    if kept != SESSION["lock_timeout"]:
        return error(
            f"session settings are not applied: lock_timeout is {kept}, not {SESSION['lock_timeout']}",
            "connect to the server itself, or configure the pooler to pass on `options`",
        )
    return ok("a session keeps its backend and its settings")


def _shares_backends(plain: Engine) -> bool:
    with translating(), plain.connect() as one, plain.connect() as other:
        before = _pid(one)
        other.exec_driver_sql("BEGIN")  # takes the freed backend if backends are shared
        taken, after = _pid(other), _pid(one)
        other.exec_driver_sql("ROLLBACK")
    return before != after or taken in (before, after)


def disk(connection: Connection) -> Finding:
    """Report free disk space if the server is on this machine, else the size of the database."""
    size = connection.execute(text("SELECT pg_size_pretty(pg_database_size(current_database()))")).scalar_one()
    folder = _data_folder(connection)
    if folder is None:
        return ok(f"the database takes {size}; free disk space is unknown", "monitor the server's disk")
    free = shutil.disk_usage(folder).free
    told = f"the database takes {size}, {free / 2**30:.1f} GiB are free at {folder}"
    return ok(told) if free >= LITTLE else warning(told, "free disk space, or keep messages for less time")


def old_transactions(connection: Connection) -> Finding:
    """Report transactions that hold back vacuum."""
    held = connection.execute(text(SQL["holders"]), {"long": LONG}).all()
    if not held:
        return ok("no transaction holds back vacuum")
    who, age = held[0]
    told = f"{who} has been open for {span_in_words(age)}" + (f", {len(held) - 1} more" if len(held) > 1 else "")
    return warning(told, "end it: until then vacuum can't clean up, and busy tables grow")


SERVER: dict[str, Callable[[Connection], Finding]] = {
    "version": version,
    "clock": clock,
    "two-phase": two_phase,
    "durability": durability,
    "settings": settings,
    "disk": disk,
    "old transactions": old_transactions,
}


def _hides_the_catalog(value: str) -> bool:
    path = [part.strip().strip('"') for part in value.split(",")]
    return "pg_catalog" in path[1:]


BREAKING: dict[str, tuple[Callable[[str], bool], Callable[[str, str], Finding]]] = {
    "default_transaction_read_only": (lambda value: value == "on", error),
    "default_transaction_isolation": (lambda value: value != "read committed", error),
    "statement_timeout": (lambda value: int(value) > 0, warning),
    "idle_in_transaction_session_timeout": (lambda value: 0 < int(value) < SHORT, warning),
    "search_path": (_hides_the_catalog, warning),
}


def _settings(connection: Connection, names: Sequence[str]) -> dict[str, tuple[str, str]]:
    return {
        name: (value, source) for name, value, source in connection.execute(text(SQL["settings"]), {"names": [*names]})
    }


def _reset(connection: Connection, name: str, source: str) -> str:
    user, database = connection.execute(text("SELECT quote_ident(current_user), quote_ident(current_database())")).one()
    by = {
        "user": f"ALTER ROLE {user} RESET {name}",
        "database": f"ALTER DATABASE {database} RESET {name}",
        "database user": f"ALTER ROLE {user} IN DATABASE {database} RESET {name}",
    }
    return by.get(source, f"correct {name} in postgresql.conf or in the URL")


def _pid(connection: Connection) -> Any:
    return connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()


def _data_folder(connection: Connection) -> Path | None:
    folder = connection.execute(text(SQL["folder_here"])).scalar_one_or_none()
    return Path(folder) if folder and Path(folder).is_dir() else None


RECENT = 200_000
"""Messages, and transaction numbers, that are checked: a second for all of them."""


def blocked(store: Store) -> Finding:
    """Compare the log with the head of each queue: a row from the head on stops ticks from writing to the queue."""
    found, s = _rows(store, log_store.SQL["blocked"])
    if not found:
        return ok("no queue is blocked")
    told, remedy = log_store.blockage(found[0], s)
    return error(f"{told}: the queue is blocked{_more(found)}", f"as the owner: `{remedy}`")


def uncommitted(store: Store) -> Finding:
    """Find messages that have offsets but were not committed."""
    found, s = _rows(store, SQL["dispatched"])
    if not found:
        return ok("every message with an offset was committed")
    txid, qid, base, keyed, decision = found[0]
    if keyed is None:
        told = f"the log has a row for transaction {txid}, which is not stored"
        remedy = f"`DELETE FROM {s}.log WHERE qid = {qid} AND base = {base}`, or restore its rows of half and op"
    elif decision is None:
        told = f"transaction {txid} was dispatched, but its decision is missing"
        # With an old xid it counts as dispatched; with a new one it would be dispatched again.
        sql = f"INSERT INTO {s}.op (txid, xid, decision, keyed) VALUES ({txid}, '3', 1, {str(keyed).lower()})"
        remedy = f"`{sql}{_moved(s, txid, keyed)}`"
    else:
        told = f"transaction {txid} was dispatched, but its decision is ROLLBACK"
        sql = f"UPDATE {s}.op SET decision = 1 WHERE txid = {txid}"  # its xid stays: ticks have seen it
        remedy = f"`{sql}{_moved(s, txid, keyed)}`, since readers have seen it"
    return error(told + _more(found), f"as the owner: {remedy}")


def _moved(s: str, txid: object, keyed: object) -> str:
    return f"; UPDATE {s}.tx SET state = 'committed' WHERE txid = {txid}" if keyed else ""


def unowned(store: Store) -> Finding:
    """Find decisions of keyed transactions whose row of tx is gone: their key is free again."""
    found, s = _rows(store, SQL["unowned"])
    if not found:
        return ok("every decision of a keyed transaction has its row of tx")
    txid, decision, group = found[0]
    state = "committed" if decision == 1 else "rolled_back"
    return error(
        f"transaction {txid} is {state}, but its row of tx is missing: its key can be used again" + _more(found),
        f"as the owner, with the key that it had: `INSERT INTO {s}.tx (txid, pgroup, key, epoch, state) "
        f"VALUES ({txid}, {group or '<group>'}, <key>, 1, '{state}')`",
    )


def _rows(store: Store, sql: str) -> tuple[list[tuple[object, ...]], str]:
    s = f'"{store.namespace}"'
    with transaction(store.engine) as connection:
        return [tuple(row) for row in connection.execute(text(sql.format(s=s)), {"recent": RECENT})], s


def _more(found: list[tuple[object, ...]]) -> str:
    return f", and {len(found) - 1} more" if found[1:] else ""


STALE = timedelta(seconds=10)
"""If transactions wait and the last tick is older than this, no dispatcher runs."""
UNLED = timedelta(minutes=1)
"""If work is pending for longer, no process leads a round, or no member answers."""
CHECK_BACK = "check-back"
"""The role whose rounds are checked."""
UNTOLD = timedelta(minutes=2)
"""If a decided branch waits for longer, its resource is unavailable, or no process recovers."""
OLD = timedelta(hours=1)
"""Age from which an undecided transaction is reported."""


def rights(connection: Connection, namespace: str) -> Finding:
    """Report the rights of this login, and privileges that they lack."""
    login, user = granting.login(connection, namespace), connection.execute(text(SQL["who"])).scalar_one()
    if login.owner:
        return _odd(connection, namespace) or ok(f"{user} owns namespace {namespace} and may do everything")
    lacking = [right for right in Right if right not in login.rights]
    remedy = f"`txsaga db grant {'|'.join(lacking)} --to {user}`, as the owner" if lacking else None
    if not login.rights:
        return error(f"{user} has no right in namespace {namespace}", remedy)
    s = f'"{namespace}"'
    functions = [function.name for function in written_for(s)]
    needs = [need for right in sorted(login.rights) for need in needed(right, s, functions)]
    values = {"names": [name for name, _ in needs], "words": [word for _, word in needs]}
    if missing := connection.execute(text(SQL["missing"]), values).all():
        name, word = missing[0]
        told = f"{user} may not {word} {name}" + (f", {len(missing) - 1} more" if missing[1:] else "")
        return error(told, "run `txsaga db migrate` as the owner: it grants again what each right needs")
    return ok(f"{user} has the rights {', '.join(sorted(login.rights))}", remedy)


def _odd(connection: Connection, namespace: str) -> Finding | None:
    """Report what the owner should know about the rights of other roles."""
    s = f'"{namespace}"'
    if groups := connection.execute(text(SQL["nobodys"].format(s=s))).scalars().all():
        told = f"producer groups of roles that no longer exist: {', '.join(groups)}"
        return warning(told, "`txsaga db grant producer --to ROLE --group GROUP` before the name is used again")
    if roles := connection.execute(text(SQL["blanket"]), {"sign": f"{s}.{SIGN}"}).scalars().all():
        told = f"{', '.join(roles)} was granted ALL TABLES, which is more than any right needs"
        return warning(told, f"REVOKE ALL ON ALL TABLES IN SCHEMA {s} FROM the role, then run `txsaga db grant`")
    return None


def room(connection: Connection, namespace: str) -> Finding:
    """Report how many transaction numbers are left in the last partition."""
    last = connection.execute(text(f'SELECT last_value FROM "{namespace}".tx_seq')).scalar_one()
    left = (
        min((have[-1][1] if (have := bounds(connection, namespace, table)) else 0) for table in ("half", "op")) - last
    )
    told = f"created ahead for {max(left - 1, 0):,} transactions (the engine adds more)"
    remedy = "run `txsaga engine`, which adds partitions"
    if left <= 1:
        return error(told, remedy)
    return ok(told) if left > partitions.SPAN // 2 else warning(told, remedy)


def dispatcher(store: Store) -> Finding:
    """Check whether a dispatcher assigns offsets."""
    found = store.overview.dispatch()
    told = f"last tick {span_in_words(found.age)} ago, {found.waiting} transactions wait for the next"
    if found.waiting and found.age > STALE:
        return error(told, "run `txsaga engine`")
    if found.blocked:
        told += f", and it skips blocked queues: {', '.join(found.blocked)}"
        return warning(told, "run the remedy of `log` first; then the next tick dispatches the waiting messages")
    return ok(told)


def undecided(store: Store) -> Finding:
    """Report parked transactions, and old undecided ones."""
    found = store.overview.undecided()
    if found.parked:
        told = f"{found.parked} transactions are parked: they ran out of checks"
        return warning(told, "see `txsaga tx pending --parked`, then `txsaga tx resume`, `commit` or `rollback`")
    if found.oldest is not None and found.oldest > OLD:
        told = f"{found.count} transactions are undecided, the oldest for {span_in_words(found.oldest)}"
        return warning(told, "configure their resources for the engine, or start their producers")
    return ok(f"{found.count} transactions are in progress")


def lakeless(store: Store) -> Finding:
    """Report transactions that check-back could not decide because it can't publish tables."""
    remarks = {doubt.txid: doubt.checks.remarks for doubt in store.overview.doubts(limit=1000)}
    if waiting := [txid for txid, said in remarks.items() if any(LakeMissing.INSTALL in each.why for each in said)]:
        told = f"{len(waiting)} transactions wait for an engine with the extra `lake`, the first is {waiting[0]}"
        return warning(told, f"run `{LakeMissing.INSTALL}` where `txsaga engine` runs, and restart the engine")
    return ok("no transaction waits for an engine with the extra `lake`")


def rounds(store: Store) -> Finding:
    """Check whether a process leads rounds of check-back."""
    last = store.overview.last_round(CHECK_BACK)
    told = "no round of check-back has run yet"
    if last is not None:
        told = f"the last round of check-back ended {span_in_words(last.ago)} ago, led by {last.leader}"
    found = store.overview.undecided()  # a re-scan may be due as well: without undecided ones nothing waits for it
    late = found.count > found.parked and (last is None or last.ago > UNLED)
    if late and store.doubts.waiting(PROFILES["classic"].min_age):
        return warning(f"{told}, and transactions are due for a check", "run `txsaga engine`")
    return ok(told)


def unanswered(store: Store) -> Finding:
    """Report producer groups with questions, or old transactions, but no member to answer."""
    alone = [
        each.group
        for each in store.overview.backlogs()
        if not each.members and each.unproven is not None and (each.asked or each.unproven > UNLED)
    ]
    if alone:
        told = f"no running producer can answer for undecided transactions of {', '.join(alone)}"
        remedy = "start a process of the group, or configure its resources for the engine"
        return warning(told, f"{remedy}; if one is running, look in its log for a checker that hangs")
    return ok("every group with undecided transactions has a member that answers")


def guessing_groups(store: Store) -> Finding:
    """Report producer groups whose transactions are rolled back when checks find no answer."""
    guessing = [g.name for g in store.registry.producer_groups() if g.checks.get("on_exhausted") == Exhausted.ROLL_BACK]
    if guessing:
        told = f"transactions out of checks are rolled back, though their work may be done, in {', '.join(guessing)}"
        return warning(told, f"`txsaga producer alter {guessing[0]} --reset on-exhausted`")
    return ok("no group rolls back transactions that run out of checks")


def careless_groups(store: Store) -> Finding:
    """Report groups that lose messages after the last attempt."""
    if careless := [group.name for group in store.groups.all() if group.policy.loses]:
        told = f"messages that fail too often are lost in {', '.join(careless)}"
        return warning(told, f"run `txsaga group alter {careless[0]} --dead-letters`, or use --backout TOPIC")
    return ok("no group loses failed messages")


def dead_letters(store: Store) -> Finding:
    """Count the dead letters of each group."""
    if dead := store.overview.dead_letters():
        told = f"{sum(dead.values())} messages are dead letters of {', '.join(dead)}"
        return warning(told, "see `txsaga dlq list`, then `txsaga dlq replay` or `purge`")
    return ok("there are no dead letters")


def heuristics(store: Store) -> Finding:
    """Count branches settled manually against their decision."""
    if against := [f"{each.heuristics} in {each.resource}" for each in store.overview.branches() if each.heuristics]:
        told = f"branches were settled against their decision: {', '.join(against)}"
        return error(told, "see `txsaga branch heuristics`, fix the data, then run `txsaga branch forget`")
    return ok("no branch was settled against its decision")


def untold(store: Store) -> Finding:
    """Report resources with branches that stay unfinished after their decision."""
    branches = store.overview.branches()
    if late := [f"{each.waiting} in {each.resource}" for each in branches if (each.oldest or UNTOLD) > UNTOLD]:
        told = f"decided branches hold locks: {', '.join(late)}"
        return warning(told, "run `txsaga engine` where these resources can be reached, or `txsaga branch recover`")
    return ok("no decided branch is left prepared")


def holding(store: Store) -> Finding:
    """Report resources in which flows hold locks for longer than their budget."""
    if late := [f"{each.over} in {each.resource}" for each in store.flows.held() if each.over]:
        told = f"steps of flows hold locks for longer than their budget: {', '.join(late)}"
        return warning(told, 'end the flow (`txsaga tx show` names the step), or hold the step with "journal"')
    return ok("no flow holds locks for longer than its budget")


PLACES: dict[str, Callable[..., Finding]] = {"rights": rights, "partitions": room}
STATE: dict[str, Callable[[Store], Finding]] = {
    "dispatcher": dispatcher,
    "log": blocked,
    "decisions": uncommitted,
    "keys": unowned,
    "check-back": rounds,
    "undecided": undecided,
    "producers": unanswered,
    "tables": lakeless,
    "out of checks": guessing_groups,
    "groups": careless_groups,
    "dead letters": dead_letters,
    "branches": untold,
    "heuristics": heuristics,
    "flows": holding,
}
