"""Installs namespaces without migrations: a spare one, or a script of what the first installation here sent."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event

from tests.services.spares import Spares

Install = Callable[[Connection, str], None]

FRESH = re.compile("_[0-9a-f]{12}$")
"""The end of a name of `fresh_name`: whatever has it in a script is this name."""


@contextmanager
def installed_by_script(spares: Spares | None = None) -> Iterator[Install]:
    """Replace the migrations of a namespace that is empty; yield what does them one by one."""
    from alembic import command

    from txsaga.store import functions, migrate, partitions
    from txsaga.store.connection import transaction

    scripts: dict[int, tuple[str, str]] = {}
    one_by_one: Install = migrate._upgrade
    in_full, to_head, span = migrate.migrate, command.upgrade, partitions.SPAN

    def migrated(engine: Engine, namespace: str, *, renew: bool = True) -> str | None:
        ordinary = migrate._upgrade is install and command.upgrade is to_head and partitions.SPAN == span
        if spares is not None and ordinary and FRESH.search(namespace):
            with transaction(engine) as connection:
                if _is_spare(connection, namespace, spares):
                    return None
        return in_full(engine, namespace, renew=renew)

    def install(connection: Connection, namespace: str) -> None:
        fresh = FRESH.search(namespace) and migrate.current(connection, namespace) is None
        if not fresh or command.upgrade is not to_head:
            one_by_one(connection, namespace)
        elif partitions.SPAN in scripts:
            script, of = scripts[partitions.SPAN]
            _send(connection, script.replace(of, namespace))
        else:
            with _recorded(connection) as sent:
                one_by_one(connection, namespace)
                functions.write(connection, namespace)
            scripts[partitions.SPAN] = ";\n".join(sent), namespace

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrate, "_upgrade", install)
        patch.setattr(migrate, "migrate", migrated)
        yield one_by_one


def _is_spare(connection: Connection, namespace: str, spares: Spares) -> bool:
    """Make a spare namespace a store of this name, if there is one."""
    from txsaga.store import founding, granting, migrate

    migrate.check_server(connection)
    granting.one_by_one(connection, namespace)
    if not spares.take(connection, namespace):
        return False
    connection.exec_driver_sql(f'SET LOCAL search_path TO "{namespace}"')
    _send(connection, ";".join(_functions(namespace)))
    founding.found(connection, namespace)
    return True


def _send(connection: Connection, script: str) -> None:
    """Send statements in one message; the server compiles a function when it is called."""
    connection.connection.cursor().execute(
        f"SET LOCAL check_function_bodies = off; {script}; SET LOCAL check_function_bodies = on"
    )


def _functions(namespace: str) -> Iterator[str]:
    """Yield what makes the functions of a spare namespace name this one."""
    from txsaga.store import functions

    for function in functions.functions(f'"{namespace}"'):
        yield function.statement


@contextmanager
def _recorded(connection: Connection) -> Iterator[list[str]]:
    sent: list[str] = []

    def record(_connection: object, _cursor: object, sql: str, parameters: object, context: Any, _many: bool) -> None:
        if not sql.lstrip().upper().startswith("SELECT"):
            assert not parameters, f"{sql} can't be sent again as it is"
            sent.append((sql if context.no_parameters else sql.replace("%%", "%")).strip().rstrip(";"))

    event.listen(connection, "before_cursor_execute", record)
    try:
        yield sent
    finally:
        event.remove(connection, "before_cursor_execute", record)
