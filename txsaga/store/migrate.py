"""
Schema changes: Alembic, configured here, run in one transaction under an advisory lock.

Any number of processes may migrate at once; one does it, the others find it done. A schema that is newer
than the program is left alone: an old program must not write rows that a new one reads differently. Alembic and the
installed functions are imported only to migrate: otherwise each process that opens a store would wait for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from sqlalchemy import Connection, Engine, text

from txsaga.config import NAMESPACE
from txsaga.errors import SchemaMissing, SchemaTooNew, ServerTooOld
from txsaga.store.connection import transaction

OLDEST = 150_000
MIGRATIONS = Path(__file__).parent / "migrations"


def migrate(engine: Engine, namespace: str, *, renew: bool = True) -> str | None:
    """Bring a namespace to this program's schema; return its old one. Renew rights if `renew`, or if needed."""
    from txsaga.store import founding, functions, granting

    with transaction(engine) as connection:
        check_server(connection)
        connection.execute(text("SET LOCAL lock_timeout = '60s'"))
        granting.one_by_one(connection, namespace)
        connection.execute(text(f'CREATE SCHEMA IF NOT EXISTS "{namespace}"'))
        if owner := connection.execute(text(granting.SQL["owner"]), {"half": f'"{namespace}".half'}).scalar():
            connection.execute(text(f"SET LOCAL ROLE {owner}"))
        connection.execute(text(f'SET LOCAL search_path TO "{namespace}"'))
        before = _known(connection, namespace)
        _upgrade(connection, namespace)
        changed = functions.write(connection, namespace) or before != newest()
        founding.found(connection, namespace)
        if renew or changed:
            granting.renew(connection, namespace)
    return before


def check(connection: Connection, namespace: str) -> None:
    """Raise unless the namespace has exactly this program's schema."""
    check_server(connection)
    have = _known(connection, namespace)
    if have != newest():
        named = "" if namespace == NAMESPACE else f" --namespace {namespace}"
        raise SchemaMissing(
            f"namespace {namespace!r} has schema {have or 'none'}, needs {newest()}; run `txsaga{named} db migrate`"
        )


def current(connection: Connection, namespace: str) -> str | None:
    """Return the namespace's revision."""
    table = f'"{namespace}".alembic_version'
    if connection.execute(text("SELECT to_regclass(:table)"), {"table": table}).scalar() is None:
        return None
    found: str | None = connection.execute(text(f"SELECT version_num FROM {table}")).scalar_one_or_none()
    return found


def newest() -> str:
    """Return the revision that this program was written for."""
    return revisions()[0]


@cache
def revisions() -> Sequence[str]:
    """Return the revisions that this program knows, newest first, from their file names."""
    names = [file.name.partition("_")[0] for file in (MIGRATIONS / "versions").glob("[0-9]*_*.py")]
    return tuple(sorted(names, reverse=True))


def check_server(connection: Connection) -> None:
    """Raise on a server that is too old."""
    number = int(connection.execute(text("SHOW server_version_num")).scalar_one())
    if number < OLDEST:
        raise ServerTooOld(
            f"PostgreSQL {number // 10_000} is too old; txsaga needs {OLDEST // 10_000} or later: upgrade the server"
        )


def _known(connection: Connection, namespace: str) -> str | None:
    """Return the namespace's revision; raise if this program can't migrate it."""
    have = current(connection, namespace)
    if have is not None and have < revisions()[-1]:
        raise SchemaMissing(f"namespace {namespace!r} has schema {have}, of a version before 0.1.0: create a new store")
    if have is not None and have not in revisions():
        raise SchemaTooNew(f"namespace {namespace!r} has schema {have}, newer than this program; upgrade txsaga")
    return have


def _upgrade(connection: Connection, namespace: str) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes.update(connection=connection, namespace=namespace)
    command.upgrade(config, "head")
