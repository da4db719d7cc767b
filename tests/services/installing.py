"""Installs namespaces by a script: what the first installation of this process sent, in one message."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, event

Install = Callable[[Connection, str], None]

FRESH = re.compile("_[0-9a-f]{12}$")
"""The end of a name of `fresh_name`: whatever has it in a script is this name."""


@contextmanager
def installed_by_script() -> Iterator[Install]:
    """Replace the migrations of a namespace that is empty; yield what does them one by one."""
    from alembic import command

    from txsaga.store import functions, migrate, schema

    scripts: dict[int, tuple[str, str]] = {}
    one_by_one: Install = migrate._upgrade
    to_head = command.upgrade

    def install(connection: Connection, namespace: str) -> None:
        fresh = FRESH.search(namespace) and migrate.current(connection, namespace) is None
        if not fresh or command.upgrade is not to_head:
            one_by_one(connection, namespace)
        elif schema.SPAN in scripts:
            script, of = scripts[schema.SPAN]
            connection.connection.cursor().execute(script.replace(of, namespace))
        else:
            with _recorded(connection) as sent:
                one_by_one(connection, namespace)
                functions.write(connection, namespace)
            scripts[schema.SPAN] = ";\n".join(sent), namespace

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrate, "_upgrade", install)
        yield one_by_one


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
