"""
Grant and revoke rights, and list who has which: the catalog records that, no table of ours does.

Where a group role can be created, it gets the rights and logins are its members; otherwise the login gets them
directly. A role of that name without a right in this namespace is not ours and left alone. Every
`db migrate` grants the rights of each login again, so that they cover what a new schema adds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, text

from txsaga.errors import ConfigError
from txsaga.store import functions, sql_files
from txsaga.store.privileges import privileges
from txsaga.store.right import EVERY_RIGHT, SIGN, Login, Right

SQL = sql_files.read("store/sql/right.sql")

TAKE_ALL = (
    "REVOKE ALL ON ALL TABLES IN SCHEMA {s} FROM {role}",
    "REVOKE ALL ON ALL SEQUENCES IN SCHEMA {s} FROM {role}",
    "REVOKE ALL ON ALL FUNCTIONS IN SCHEMA {s} FROM {role}",
    "REVOKE ALL ON SCHEMA {s} FROM {role}",
)


class Holder(NamedTuple):
    """One right of a role, the group role it comes through, the role's producer groups."""

    role: str
    right: Right
    through: str | None
    groups: tuple[str, ...]


def login(connection: Connection, namespace: str) -> Login:
    """Return the rights of a connection's login; the owner has every right."""
    named = {"sign": f'"{namespace}".{SIGN}', "rights": [*Right]}
    owner, rights = connection.execute(text(SQL["here"]), named).one()
    return Login(owner, EVERY_RIGHT if owner else frozenset(map(Right, rights)))


def holders(connection: Connection, namespace: str) -> Sequence[Holder]:
    """Return which role has which right, and which producer groups are its own."""
    owned: dict[str, list[str]] = {}
    for role, group in connection.execute(text(SQL["groups"].format(s=f'"{namespace}"'))):
        owned.setdefault(role, []).append(group)
    rows = connection.execute(text(SQL["holders"]), {"sign": f'"{namespace}".{SIGN}'})
    return [Holder(role, Right(right), through, tuple(owned.get(role, ()))) for role, right, through in rows]


def one_by_one(connection: Connection, namespace: str) -> None:
    """Wait for migrations and changes of rights in the namespace; exclude them until this transaction ends."""
    connection.execute(text(SQL["lock"]), {"name": f"txsaga migrate {namespace}"})


def grant(connection: Connection, namespace: str, right: Right, role: str, groups: Sequence[str]) -> list[str]:
    """Return statements that give a role a right, and make producer groups its own."""
    one_by_one(connection, namespace)
    named, s = _named(connection, role), f'"{namespace}"'
    common = f"{namespace}_{right}"
    has = {holder.role for holder in holders(connection, namespace) if holder.right is right}
    statements = [] if common in has else _new_group(connection, common)
    if statements or (common in has and connection.execute(text(SQL["lets_in"]), {"role": common}).scalar()):
        statements += [*_granted(right, s, f'"{common}"'), f'GRANT "{common}" TO {named}']
    else:
        statements = list(_granted(right, s, named))
    return statements + [_own(connection, s, group, role) for group in groups]


def revoke(connection: Connection, namespace: str, right: Right, role: str) -> list[str]:
    """Return statements that take a right from a role; of its other grants here, those of rights are kept."""
    one_by_one(connection, namespace)
    named, held = _named(connection, role), [h for h in holders(connection, namespace) if h.role == role]
    common = f"{namespace}_{right}"
    of_right = [holder for holder in held if holder.right is right]
    if not of_right:
        raise ConfigError(f"role {role!r} has no {right} right here; see `txsaga db rights`")
    ways = [holder.through for holder in of_right if holder.through is not None]
    if others := [way for way in ways if way != common]:
        raise ConfigError(
            f"role {role!r} has the {right} right as a member of {', '.join(others)}, which may mean more than that: "
            f"take it out there, or take the right from {others[0]}"
        )
    statements = [f'REVOKE "{common}" FROM {named}' for _ in ways]
    if any(holder.through is None for holder in of_right):
        rest = {holder.right for holder in held if holder.through is None} - {right}
        statements += _anew(f'"{namespace}"', named, rest)
    return statements


def renew(connection: Connection, namespace: str) -> None:
    """Grant each role its rights again, following this program's table of rights."""
    direct: dict[str, set[Right]] = {}
    for holder in holders(connection, namespace):
        if holder.through is None:
            direct.setdefault(holder.role, set()).add(holder.right)
    for role, rights in direct.items():
        run(connection, _anew(f'"{namespace}"', _named(connection, role), rights))


def run(connection: Connection, statements: Sequence[str]) -> None:
    """Execute statements without parameters."""
    for statement in statements:
        connection.exec_driver_sql(statement, execution_options={"no_parameters": True})


def _anew(s: str, named: str, rights: set[Right]) -> list[str]:
    taken = [statement.format(s=s, role=named) for statement in TAKE_ALL]
    return taken + [statement for right in sorted(rights) for statement in _granted(right, s, named)]


def _granted(right: Right, s: str, named: str) -> Iterator[str]:
    there = [function.name for function in functions.functions(s)]
    for wanted, on in privileges(right, s, there):
        yield f"GRANT {wanted} ON {on} TO {named}"


def _new_group(connection: Connection, name: str) -> list[str]:
    if not connection.execute(text(SQL["makes_roles"])).scalar_one():
        return []
    taken = connection.execute(text(SQL["named"]), {"role": name}).scalar_one_or_none()
    return [] if taken is not None else [f'CREATE ROLE "{name}" NOLOGIN']


def _own(connection: Connection, s: str, group: str, role: str) -> str:
    if connection.execute(text(SQL["group"].format(s=s)), {"name": group}).one_or_none() is None:
        raise ConfigError(f"producer group {group!r} is not registered yet; its first producer does that")
    quoted = [value.replace("'", "''") for value in (role, group)]
    return f"UPDATE {s}.producer_group SET role = '{quoted[0]}' WHERE name = '{quoted[1]}'"


def _named(connection: Connection, role: str) -> str:
    named: str | None = connection.execute(text(SQL["named"]), {"role": role}).scalar_one_or_none()
    if named is None:
        quoted = connection.execute(text("SELECT quote_ident(:role)"), {"role": role}).scalar_one()
        raise ConfigError(f"role {role!r} does not exist on this server; create it first: CREATE ROLE {quoted} LOGIN")
    return named
