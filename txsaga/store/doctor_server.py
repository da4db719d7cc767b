"""Check the server and the path to it: version, clock, durability, settings of role and database, pooler."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, text

from txsaga.core.clock import wall_clock
from txsaga.store import sql_files
from txsaga.store.connection import SESSION, translating
from txsaga.store.finding import Finding, error, ok, warning
from txsaga.store.migrate import OLDEST

SKEW = 1.0
"""Seconds by which the clocks may differ."""
LONG = 600.0
"""Seconds after which a transaction that holds back vacuum is reported."""
LITTLE = 2**30
"""Bytes of free disk below which a warning is given."""
SHORT = 10_000
"""Milliseconds: a shorter idle-in-transaction timeout cuts off ordinary work."""

SQL = sql_files.read("store/sql/doctor.sql")


def reached(connection: Connection) -> Finding:
    """Report user and database, or that the server is a standby."""
    user, database, standby = connection.execute(
        text("SELECT current_user, current_database(), pg_is_in_recovery()")
    ).one()
    if standby:
        return error("connection", "this server is a standby: nothing can be stored", "connect to the writable primary")
    return ok("connection", f"{user} on database {database}")


def version(connection: Connection) -> Finding:
    """Check the server's version."""
    number = int(connection.execute(text("SHOW server_version_num")).scalar_one())
    if number < OLDEST:
        return error("version", f"PostgreSQL {number // 10_000} is too old", f"upgrade to {OLDEST // 10_000} or later")
    return ok("version", f"PostgreSQL {connection.execute(text('SHOW server_version')).scalar_one()}")


def clock(connection: Connection) -> Finding:
    """Compare the clocks; the duration of the query is not counted as skew."""
    before = wall_clock()
    there = connection.execute(text("SELECT clock_timestamp()")).scalar_one()
    after = wall_clock()
    late, early = (there - after).total_seconds(), (before - there).total_seconds()
    skew = max(late, early, 0.0)
    if skew > SKEW:
        way = "ahead of" if late > 0 else "behind"
        return warning("clock", f"the server is {skew:.1f} s {way} this machine", "synchronise both clocks (NTP)")
    return ok("clock", "this machine and the server agree")


def two_phase(connection: Connection) -> Finding:
    """Report whether branches can be prepared here."""
    most = int(connection.execute(text("SHOW max_prepared_transactions")).scalar_one())
    hint = "for two-phase commit set max_prepared_transactions and restart the server" if not most else None
    return ok("two-phase", f"max_prepared_transactions is {most}", hint)


def durability(connection: Connection) -> Finding:
    """Check for settings with which a crash loses acknowledged data."""
    found = _settings(connection, ("fsync", "full_page_writes", "synchronous_commit"))
    off = [name for name in ("fsync", "full_page_writes") if found[name][0] == "off"]
    if off:
        return error(
            "durability",
            f"{' and '.join(off)} off: a crash of the machine loses or breaks what was acknowledged",
            f"set {', '.join(off)} = on in postgresql.conf",
        )
    value, source = found["synchronous_commit"]
    if value in ("off", "local"):
        return warning(
            "durability",
            f"synchronous_commit is {value} (by {source}): txsaga overrides it, a transaction of your own does not",
            _reset(connection, "synchronous_commit", source),
        )
    return ok("durability", "commits are on disk before they are acknowledged")


def settings(connection: Connection) -> Finding:
    """Check for settings of the role, the database or the server that break ours."""
    found = _settings(connection, tuple(BREAKING))
    for name, (breaks, severity) in BREAKING.items():
        value, source = found[name]
        if breaks(value):
            return severity("settings", f"{name} is {value!r} (by {source})", _reset(connection, name, source))
    return ok("settings", "nothing of role and database stands in the way")


def pooler(plain: Engine, ours: Engine) -> Finding:
    """Check that a session keeps its backend, and the settings it started with."""
    if _shares_backends(plain):
        return error(
            "pooler",
            "a pooler gives each statement another backend: LISTEN and prepared statements do not survive",
            "connect to the server itself",
        )
    with translating(), ours.connect() as connection:
        kept = connection.execute(text("SHOW lock_timeout")).scalar_one()
    if kept != SESSION["lock_timeout"]:
        return error(
            "pooler",
            f"session settings do not arrive: lock_timeout is {kept}, not {SESSION['lock_timeout']}",
            "connect to the server itself, or let the pooler pass `options` on",
        )
    return ok("pooler", "a session keeps its backend and its settings")


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
        return ok("disk", f"the database has {size}; how much room is left is not known", "watch the server's disk")
    free = shutil.disk_usage(folder).free
    told = f"the database has {size}, {free / 2**30:.1f} GiB are free at {folder}"
    return ok("disk", told) if free >= LITTLE else warning("disk", told, "make room, or keep messages for less time")


def old_transactions(connection: Connection) -> Finding:
    """Report transactions that hold back vacuum."""
    held = connection.execute(text(SQL["holders"]), {"long": LONG}).all()
    if not held:
        return ok("old transactions", "none holds back the clean-up")
    who, age = held[0]
    told = f"{who} is open for {age:.0f} s" + (f", {len(held) - 1} more" if len(held) > 1 else "")
    return warning("old transactions", told, "end it: tables that change much grow until it is gone")


QUESTIONS: dict[str, Callable[[Connection], Finding]] = {
    "version": version,
    "clock": clock,
    "two-phase": two_phase,
    "durability": durability,
    "settings": settings,
    "disk": disk,
    "old transactions": old_transactions,
}


def _milliseconds_set(value: str) -> bool:
    return int(value) > 0


def _hides_the_catalog(value: str) -> bool:
    path = [part.strip().strip('"') for part in value.split(",")]
    return "pg_catalog" in path[1:]


BREAKING: dict[str, tuple[Callable[[str], bool], Callable[[str, str, str], Finding]]] = {
    "default_transaction_read_only": (lambda value: value == "on", error),
    "default_transaction_isolation": (lambda value: value != "read committed", error),
    "statement_timeout": (_milliseconds_set, warning),
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
