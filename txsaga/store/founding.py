"""
Found, recognise and adopt a store: its identity is bound to one place on one server and timeline.

After a restore, a copy or a failover old and new numbers can't be told apart; roles and producers
then refuse to work until an operator adopts the store, which raises its incarnation. Without this check, presumed
abort would roll back another incarnation's branches, and restored decisions would never be dispatched.
"""

from __future__ import annotations

import secrets
from uuid import UUID, uuid4

from sqlalchemy import Connection, func, insert, select, text, update

from txsaga.consume import ticks
from txsaga.core.identity import StoreId
from txsaga.errors import ConfigError, IdentityChanged, SchemaMissing
from txsaga.store import schema
from txsaga.store.connection import session_name
from txsaga.store.partitions import extend

SERVER = """
SELECT (SELECT system_identifier FROM pg_control_system()),
       CASE WHEN pg_is_in_recovery() THEN NULL
            ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END,
       (SELECT d.oid || '/' || n.oid FROM pg_database d, pg_namespace n
         WHERE d.datname = current_database() AND n.nspname = '{namespace}')"""

KNOWN_TO_ALL = [column for column in schema.store.c if not column.name.startswith("token_")]
"""Columns of `store` that all may read: token keys are the owner's."""

HOME = """s.system_identifier = here.system AND s.place = here.place
       AND s.timeline = coalesce(here.timeline, s.timeline)"""
"""A standby has no timeline to compare."""

# The store of a connection, and whether it is in its own place.
AT_HOME = """
SELECT s.uuid, s.incarnation, {home}
  FROM "{namespace}".store s, ({server}) AS here (system, timeline, place)"""

# Sessions of the previous incarnation would continue under its id: their evidence would look like ours.
END_OTHERS = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
 WHERE datname = current_database() AND application_name = '{name}' AND pid <> pg_backend_pid()"""

NEWEST = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {s}.tx_seq"

# After a restore the stored xids mean nothing. All decisions count as seen, except those missing in the log.
RESET_XIDS = "UPDATE {s}.op SET xid = '3'"
MISSED = """
WITH b AS (
    SELECT h.qid, h.txid, h.part, h.attempt, h.chunk, h.n,
           sum(h.n) OVER (PARTITION BY h.qid ORDER BY h.txid, h.part, h.attempt, h.chunk) - h.n AS rel,
           sum(h.n) OVER (PARTITION BY h.qid) AS total
      FROM {s}.op o JOIN {s}.half h ON h.txid = o.txid
     WHERE o.decision = 1
       AND NOT EXISTS (SELECT FROM {s}.log l WHERE l.qid = h.qid AND l.txid = h.txid)
       AND (NOT o.keyed OR EXISTS (SELECT FROM {s}.part p
            WHERE p.txid = h.txid AND p.part = h.part AND p.attempt = h.attempt))),
 q AS (
    UPDATE {s}.queue SET head = head + t.total FROM (SELECT DISTINCT qid, total FROM b) t
     WHERE t.qid = queue.qid RETURNING queue.qid, queue.head - t.total AS base)
INSERT INTO {s}.log (qid, base, n, txid, part, attempt, chunk)
SELECT b.qid, q.base + b.rel, b.n, b.txid, b.part, b.attempt, b.chunk FROM b JOIN q USING (qid)"""
UNBLOCK = "UPDATE {s}.queue SET reached = NULL WHERE reached IS NOT NULL"  # MISSED adds what these queues lack
REBASE = """
INSERT INTO {s}.tick (id, snap, last_txid)
SELECT max(id) + 1, pg_current_snapshot(), max(last_txid) FROM {s}.tick"""


def found(connection: Connection, namespace: str, *, span_ahead: int) -> None:
    """Make a fresh schema a store: identity, first tick, partitions; an existing store gets partitions."""
    extend(connection, namespace, span_ahead)
    if connection.execute(select(schema.store.c.uuid)).one_or_none() is not None:
        return
    system, timeline, place = connection.execute(text(SERVER.format(namespace=namespace))).one()
    uuid, key = uuid4(), secrets.token_bytes(32)
    connection.execute(
        insert(schema.store).values(
            uuid=uuid,
            incarnation=1,
            system_identifier=system,
            timeline=timeline,
            place=place,
            **_pads(key, uuid, 1),
        )
    )
    connection.execute(
        insert(schema.tick).values(id=0, snap=func.pg_current_snapshot(), last_txid=0),
    )


def recognise(connection: Connection) -> StoreId:
    """Return the store's identity, or raise `IdentityChanged` on another server, timeline or place."""
    row = connection.execute(select(*KNOWN_TO_ALL)).one_or_none()
    if row is None:
        raise SchemaMissing("the namespace holds no store; run `txsaga db migrate`")
    namespace = connection.get_execution_options()["schema_translate_map"][None]
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
    connection.execute(text(END_OTHERS.format(name=session_name(namespace))))
    connection.execute(text(f"LOCK TABLE {s}.op, {s}.half, {s}.tick IN SHARE ROW EXCLUSIVE MODE"))
    row = connection.execute(select(schema.store).with_for_update()).one()
    system, timeline, place = connection.execute(text(SERVER.format(namespace=namespace))).one()
    incarnation = row.incarnation + 1
    births = (*row.births, connection.execute(text(NEWEST.format(s=s))).scalar_one())
    connection.execute(
        update(schema.store).values(
            incarnation=incarnation,
            births=births,
            system_identifier=system,
            timeline=timeline,
            place=place,
            **_pads(row.token_key, row.uuid, incarnation),
        )
    )
    if blocked := connection.execute(text(ticks.BLOCKED.format(s=s))).first():
        told, remedy = ticks.blockage(blocked, s)
        raise ConfigError(f"{told}; as the owner: `{remedy}`, then adopt again")
    for sql in (RESET_XIDS, MISSED, UNBLOCK, REBASE):
        connection.execute(text(sql.format(s=s)))
    return StoreId(row.uuid, incarnation, births)


def at_home(namespace: str) -> str:
    """Return SQL that asks for a connection's store, and whether it is in its own place."""
    return AT_HOME.format(home=HOME, namespace=namespace, server=SERVER.format(namespace=namespace))


def _pads(key: bytes, uuid: UUID, incarnation: int) -> dict[str, bytes]:
    """Return the two pads of an HMAC; the inner one holds the identity, so a token dies with its incarnation."""
    block = key.ljust(64, b"\0")
    return {
        "token_key": key,
        "token_inner": bytes(b ^ 0x36 for b in block) + uuid.bytes + incarnation.to_bytes(4, "big"),
        "token_outer": bytes(b ^ 0x5C for b in block),
    }
