"""
What all parts of Airflow need, done once in the parent: imports, and the schema of Airflow's database.

A process forked from here is ready in half the time and shares two thirds of its memory. The parent must start no
thread and keep no connection: a fork would inherit them in an unusable state.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module

from txsaga.airflow_host.parts import AirflowPart

SHARED = (
    "airflow.settings",
    "airflow.jobs.scheduler_job_runner",
    "airflow.jobs.triggerer_job_runner",
    "airflow.dag_processing.manager",
    "airflow.executors.local_executor",
    "airflow.api_fastapi.app",
    "uvicorn",
    # Every step of a flow needs these; forked workers do not have to import them for each task.
    "psycopg",
    "sqlalchemy.dialects.postgresql.psycopg",
    "airflow.sdk.bases.hook",
    "airflow.sdk.definitions.connection",
    "txsaga.wiring",
    "txsaga.provider.flow_dag",
    "txsaga.provider.operators.begin",
    "txsaga.provider.operators.end",
    "txsaga.provider.operators.publish",
    "txsaga.provider.operators.python",
    "txsaga.provider.operators.sql",
)
NOWHERE = "postgresql+psycopg://nobody:nothing@127.0.0.1:1/nothing"


def load() -> None:
    """Import what every part needs."""
    for module in SHARED:
        import_module(module)
    _warm_up()
    gc.freeze()
    _let_go()


def _warm_up() -> None:
    """Do once what each task would do: read all revisions, compile address patterns, compile statements.

    SQLAlchemy caches what it learns about tables, types and statements when it first compiles one, for all engines.
    """
    from sqlalchemy import bindparam, delete, insert, select, update

    from txsaga.store import migrate, schema
    from txsaga.store.connection import make_engine, parse_url
    from txsaga.wiring.resources import resource_engine

    migrate.newest()
    resource_engine(NOWHERE, "nowhere").dispose()
    engine = make_engine(*parse_url(NOWHERE))
    for table in schema.metadata.tables.values():
        key = next(iter(table.primary_key or table.c))
        for statement in (
            select(table).where(key == bindparam("known")).with_for_update(of=table),
            insert(table),
            update(table).where(key == bindparam("known")),
            delete(table).where(key == bindparam("known")),
        ):
            statement.compile(engine)
    engine.dispose()


def is_migrated(metadata: str) -> bool:
    """Return whether the database has the schema of this Airflow version."""
    import psycopg
    from airflow.utils.db import _REVISION_HEADS_MAP

    head = list(_REVISION_HEADS_MAP.values())[-1]
    with psycopg.connect(metadata.replace("+psycopg", "", 1), connect_timeout=10) as connection:
        row = connection.execute("SELECT to_regclass('alembic_version') IS NOT NULL").fetchone()
        if not row or not row[0]:
            return False
        return connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(head,)]


def migrate() -> None:
    """Migrate the database to the schema of this Airflow, in a child process so that this one keeps nothing of it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            from airflow import settings
            from airflow.utils.db import upgradedb

            settings.configure_orm()  # type: ignore[no-untyped-call]
            upgradedb()
            code = 0
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if status:
        raise SystemExit("the database of Airflow can't be migrated: the lines above say why")


def become(part: AirflowPart) -> int:
    """Run a part of Airflow until it ends; return its exit code."""
    from airflow import settings
    from airflow.__main__ import main

    settings.configure_orm()  # type: ignore[no-untyped-call]
    sys.argv = list(part.command)
    try:
        main()  # type: ignore[no-untyped-call]
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    return 0


def _let_go() -> None:
    from airflow import settings

    settings.dispose_orm(do_log=False)
