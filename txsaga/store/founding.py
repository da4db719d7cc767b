"""
Found, recognise and adopt a store: its identity is bound to one place on one server and timeline.

After a restore, a copy or a failover old and new numbers can't be told apart; roles and producers
then refuse to work until an operator adopts the store, which raises its incarnation. Without this check, presumed
abort would roll back another incarnation's branches, and restored decisions would never be dispatched.
"""

from __future__ import annotations

import secrets
from uuid import UUID, uuid4

from sqlalchemy import Connection, text

from txsaga.consume import log_store
from txsaga.core.identity import StoreId
from txsaga.errors import ConfigError, IdentityChanged, SchemaMissing
from txsaga.store import partitions, sql_files
from txsaga.store.connection import session_name

SQL = sql_files.read("store/sql/founding.sql")

SERVER = SQL["server"]

HOME = """s.system_identifier = here.system AND s.place = here.place
       AND s.timeline = coalesce(here.timeline, s.timeline)"""
"""A standby has no timeline to compare."""


def found(connection: Connection, namespace: str) -> None:
    """Make a fresh schema a store: identity, first tick, partitions; an existing store gets partitions."""
    partitions.extend(connection, namespace, partitions.SPAN)
    s = f'"{namespace}"'
    if connection.execute(text(SQL["known"].format(s=s))).one_or_none() is not None:
        return
    uuid = uuid4()
    values = {"uuid": uuid, **_here(connection, namespace), **_pads(secrets.token_bytes(32), uuid, 1)}
    connection.execute(text(SQL["found"].format(s=s)), values)
    connection.execute(text(SQL["first_tick"].format(s=s)))


def recognise(connection: Connection) -> StoreId:
    """Return the store's identity, or raise `IdentityChanged` on another server, timeline or place."""
    namespace = connection.get_execution_options()["schema_translate_map"][None]
    row = connection.execute(text(SQL["known"].format(s=f'"{namespace}"'))).one_or_none()
    if row is None:
        raise SchemaMissing("the namespace holds no store; run `txsaga db migrate`")
    system, timeline, place = connection.execute(text(SERVER.format(namespace=namespace))).one()
    here = system, timeline or row.timeline, place
    if here != (row.system_identifier, row.timeline, row.place):
        raise IdentityChanged(
            f"this store was made on server {row.system_identifier} (timeline {row.timeline}, place {row.place}), "
            f"this is server {system} (timeline {timeline}, place {place}); after a restore, a copy or a failover "
            f"run `txsaga db adopt`"
        )
    return StoreId(row.uuid, row.incarnation, tuple(row.births))


def adopt(connection: Connection, namespace: str) -> StoreId:
    """Raise the incarnation on this server and restart the ticks; return the new identity."""
    s = f'"{namespace}"'
    # A process that connects from here on waits, and finds the new incarnation.
    connection.execute(text(f"LOCK TABLE {s}.store IN ACCESS EXCLUSIVE MODE"))
    connection.execute(text(SQL["end_others"].format(name=session_name(namespace))))
    connection.execute(text(f"LOCK TABLE {s}.op, {s}.half, {s}.tick IN SHARE ROW EXCLUSIVE MODE"))
    row = connection.execute(text(SQL["locked"].format(s=s))).one()
    incarnation = row.incarnation + 1
    births = (*row.births, connection.execute(text(SQL["newest"].format(s=s))).scalar_one())
    changed = {**_here(connection, namespace), **_pads(row.token_key, row.uuid, incarnation)}
    values = {"incarnation": incarnation, "births": [*births], **changed}
    connection.execute(text(SQL["adopt"].format(s=s)), values)
    if blocked := connection.execute(text(log_store.SQL["blocked"].format(s=s))).first():
        told, remedy = log_store.blockage(blocked, s)
        raise ConfigError(f"{told}; as the owner: `{remedy}`, then adopt again")
    for sql in (SQL["reset_xids"], SQL["missed"], SQL["unblock"], SQL["rebase"]):
        connection.execute(text(sql.format(s=s)))
    return StoreId(row.uuid, incarnation, births)


def _here(connection: Connection, namespace: str) -> dict[str, object]:
    row = connection.execute(text(SERVER.format(namespace=namespace))).one()
    return dict(zip(("system_identifier", "timeline", "place"), row, strict=True))


def at_home(namespace: str) -> str:
    """Return SQL that asks for a connection's store, and whether it is in its own place."""
    return SQL["at_home"].format(home=HOME, namespace=namespace, server=SERVER.format(namespace=namespace))


def _pads(key: bytes, uuid: UUID, incarnation: int) -> dict[str, bytes]:
    """Return the two pads of an HMAC; the inner one holds the identity, so a token dies with its incarnation."""
    block = key.ljust(64, b"\0")
    return {
        "token_key": key,
        "token_inner": bytes(b ^ 0x36 for b in block) + uuid.bytes + incarnation.to_bytes(4, "big"),
        "token_outer": bytes(b ^ 0x5C for b in block),
    }
