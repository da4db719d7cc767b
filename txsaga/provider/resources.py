"""
What a flow declares about its resources: a name in the flow, an Airflow connection id, and a purpose.

    {"current": "pg_current", "audit": lane("pg_audit"), "cache": local("pg_cache")}

In the store a resource has the name of its connection id in lower case, with `_` for every character that an
environment variable can't contain, so that recovery finds it whichever flow used it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from txsaga.errors import ConfigError
from txsaga.flows.step import HOME
from txsaga.provider.planning.modes import ResourceMode

UNNAMEABLE = re.compile(r"[^a-z0-9_]")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredConnection:
    """A connection and its purpose in a flow."""

    connection: str
    mode: ResourceMode = ResourceMode.MAIN
    kind: str | None = None  # of the database, if the connection's type is unknown when the DAG is parsed


class StoredConnection(TypedDict):
    """The same, as stored in an XCom."""

    connection: str
    mode: str


Said = Mapping[str, str | DeclaredConnection] | Sequence[str]
"""What a user may write: connections by name, or connection ids that also serve as names."""


def local(connection: str, *, kind: str | None = None) -> DeclaredConnection:
    """Declare a connection whose work is settled when its step ends, regardless of the flow's outcome."""
    return DeclaredConnection(connection=connection, mode=ResourceMode.LOCAL, kind=kind)


def main(connection: str, *, kind: str | None = None) -> DeclaredConnection:
    """Declare a connection whose work is settled with the flow; `kind` is the kind of the database."""
    return DeclaredConnection(connection=connection, kind=kind)


def declared(said: Said) -> dict[str, DeclaredConnection]:
    """Parse what a user wrote."""
    named = said if isinstance(said, Mapping) else {each: each for each in said}
    found: dict[str, DeclaredConnection] = {}
    stored: dict[str, str] = {}
    for name, each in named.items():
        read = DeclaredConnection(connection=each) if isinstance(each, str) else each
        if not isinstance(name, str) or not name or not isinstance(read, DeclaredConnection) or not read.connection:
            raise ConfigError(f"resource {name!r} needs an Airflow connection id, or lane(…) of one")
        if name == HOME:
            raise ConfigError(f"resource {name!r} is always there and not named: it is the store's own database")
        known = stored_name(read.connection)
        other = stored.setdefault(known, read.connection)
        if other != read.connection:
            raise ConfigError(
                f"connections {other!r} and {read.connection!r} are both {known!r} in the store: rename one"
            )
        found[name] = read
    return found


def settles_alone(mode: str, coordinated: bool) -> bool:
    """Return whether work on a resource is settled when its step ends, regardless of the flow's outcome."""
    return mode == ResourceMode.LOCAL or (mode == ResourceMode.MAIN and not coordinated)


def stored_name(connection: str) -> str:
    """Return the name of a connection in the store, usable in environment variables as well."""
    return UNNAMEABLE.sub("_", connection.lower())
