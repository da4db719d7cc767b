"""
Partitions of `half` and `op`: added ahead of the transaction numbers, dropped when nothing in them is needed.

A partition is built as a separate table and attached under a short lock timeout: `CREATE … PARTITION OF`
would wait for one long reader and stall every producer meanwhile (R13). Before a drop it is locked against
writers and checked again: a half message with an old number may have been committed while the drop waited for
its lock. Spared rows are then copied to a partition that replaces it. If no process adds partitions, inserts
fail with a clear error once the numbers pass the last one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlalchemy import Connection, Engine, text

from txsaga.checkback.sweep_statements import LOOKS
from txsaga.errors import StoreUnavailable
from txsaga.store import schema
from txsaga.store.connection import transaction
from txsaga.store.retention import COPY, NOBODYS, SPARES, left, needed, some, weigh

TABLES = ("half", "op")
LOCK_TIMEOUT = "500ms"
LOCKED_TIMEOUT = "200ms"
"""Lock timeout once a drop keeps others waiting: far below the server's `deadlock_timeout`."""
TICKS = 20_000
"""Upper bound of old ticks that one round drops."""
_BOUNDS = re.compile(r"FROM \('(\d+)'\) TO \('(\d+)'\)")

ONE_BY_ONE = "SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))"

LIST = """
SELECT c.relname, pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits i
  JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = to_regclass(:parent)"""

# A scan of the sweep goes from its checkpoint to a tick that is old enough: no tick before both checkpoints is read
# again. The newest one stays, since the next tick begins there.
OLD_TICKS = """
BEGIN
    DELETE FROM {s}.tick WHERE id IN (
        SELECT id FROM {s}.tick
         WHERE id < (SELECT max(id) FROM {s}.tick)
           AND last_txid <= (SELECT CASE WHEN count(*) = {looks} THEN min(txid) END
                               FROM {s}.checkpoint WHERE name IN ({names}))
         ORDER BY id LIMIT $1);
END"""

FLOWS = ("flow_resource", "flow_step", "flow_unit", "flow_statement")
COORDINATED = ("branch", "ballot", "vote", "reservation", *FLOWS, "step", "saga")
OF_TRANSACTIONS = ("part", "effect", "table_intent", *COORDINATED, "tx", "doubt", "event", "scheduled")
"""Tables whose rows are deleted with the partition of their transaction."""

# This may delete a million rows: meanwhile only writers to this partition wait. The queues are updated last, since
# every tick writes to them.
FORGET = """
    DELETE FROM {s}.weight WHERE low = $1;
    WITH gone AS (DELETE FROM {s}.log WHERE txid >= $1 AND txid < high RETURNING qid, base + n AS up_to),
     far AS (SELECT qid, max(up_to) AS up_to FROM gone GROUP BY qid)
    SELECT array_agg(qid), array_agg(up_to) INTO qids, tails FROM far;
    FOREACH place IN ARRAY ARRAY[{places}] LOOP
        EXECUTE format('DELETE FROM {s}.%I x WHERE x.txid >= %s AND x.txid < %s', place, $1, high)
            || CASE WHEN copied THEN format(' AND {nobodys}', halves || '_spared') ELSE '' END;
    END LOOP;"""
MOVE_TAILS = """
    UPDATE {s}.queue q SET tail = greatest(q.tail, g.up_to) FROM unnest(qids, tails) g (qid, up_to)
     WHERE q.qid = g.qid;"""

# With its indexes, and a check that saves the scan when it is attached.
BUILD = """
    EXECUTE format('CREATE TABLE {s}.%I (LIKE {s}.%I INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE'
                   ' INCLUDING INDEXES, CONSTRAINT bounds CHECK (txid >= %s AND txid < %s))', {built}, {parent}, {low},
                   high);"""
JOIN = """
    EXECUTE format('ALTER TABLE {s}.%I ATTACH PARTITION {s}.%I FOR VALUES FROM (%s) TO (%s)', {parent}, {built}, {low},
                   high);
    EXECUTE format('ALTER TABLE {s}.%I DROP CONSTRAINT bounds', {built});
    EXECUTE format('ALTER TABLE {s}.%I ENABLE ROW LEVEL SECURITY', {built});  -- of who names it past its table"""

# Both need the owner of the tables; the login that runs the roles need not be that.
ATTACH = """
DECLARE
    high int8 := $2 + {span};
    added text := $1 || '_' || $2 / {span};
    last int8;
BEGIN
    SELECT coalesce(max((regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO [(]''([0-9]+)''[)]'))[1]::int8), 0)
      INTO last FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
     WHERE i.inhparent = to_regclass(format('{s}.%I', $1));
    IF $1 NOT IN ('half', 'op') OR $2 % {span} <> 0 OR $2 < 0 OR $2 <> last THEN
        RAISE insufficient_privilege USING MESSAGE = 'that is no partition of this store';
    END IF;
    {build}
    PERFORM set_config('lock_timeout', '{lock_timeout}', true);
    {join}
END"""
DROP = """
DECLARE
    high int8 := $1 + {span};
    halves text := 'half_' || $1 / {span};
    ops text := 'op_' || $1 / {span};
    last int8;
    copied bool;
    place text;
    qids int4[];
    tails int8[];
BEGIN
    IF $1 < 0 OR $1 % {span} <> 0 OR (
        SELECT count(*) FROM unnest(ARRAY['half', 'op']) t (name) JOIN pg_inherits
            ON inhparent = to_regclass(format('{s}.%I', t.name))
           AND inhrelid = to_regclass(format('{s}.%I', t.name || '_' || $1 / {span}))) < 2 THEN
        RAISE insufficient_privilege USING MESSAGE = 'that is no partition of this store';
    END IF;
    EXECUTE format('LOCK TABLE {s}.%I, {s}.%I IN SHARE ROW EXCLUSIVE MODE', halves, ops);
    SELECT last_value INTO last FROM {s}.tx_seq;
    IF last < high THEN RETURN false; END IF;
    {needed}
    copied := ({spares});
    IF copied THEN
        FOREACH place IN ARRAY ARRAY['half', 'op'] LOOP {build} END LOOP;
        EXECUTE format('{copy}', halves || '_spared', $1, high);
    END IF;
    {forget}
    LOCK TABLE ONLY {s}.half IN ACCESS EXCLUSIVE MODE;
    PERFORM set_config('lock_timeout', '{locked_timeout}', true);
    EXECUTE format('DROP TABLE {s}.%I, {s}.%I', halves, ops);
    IF copied THEN
        FOREACH place IN ARRAY ARRAY['half', 'op'] LOOP {join}
            EXECUTE format('ALTER TABLE {s}.%I RENAME TO %I', {built}, place || '_' || $1 / {span});
        END LOOP;
    END IF;
    {move_tails}
    RETURN true;
END"""


class Partitions:
    """The partitions of one namespace."""

    def __init__(self, engine: Engine, namespace: str) -> None:
        self._engine, self._namespace = engine, namespace

    def extend(self, ahead: int) -> int:
        """Add partitions until `ahead` more transaction numbers fit; return how many were added."""
        with transaction(self._engine) as connection:
            return extend(connection, self._namespace, ahead)

    def drop(self) -> int:
        """Drop old ticks, and the oldest partitions while only spared rows are needed in them; return how many."""
        self._drop_ticks()
        there = self._bounds()
        weigh(self._engine, self._namespace, there)
        dropped = 0
        for low, high in there[:-1]:
            if self._left(low, high):
                continue
            if not self._drop(low, high):
                break
            dropped += 1
        return dropped

    def _bounds(self) -> list[tuple[int, int]]:
        with transaction(self._engine) as connection:
            return bounds(connection, self._namespace, "half")

    def _drop_ticks(self) -> None:
        with transaction(self._engine) as connection:
            connection.execute(text(f'SELECT "{self._namespace}".drop_ticks(:most)'), {"most": TICKS})

    def _left(self, low: int, high: int) -> bool:
        s, values = f'"{self._namespace}"', {"low": low, "bound": high}
        with transaction(self._engine) as connection:
            return all(connection.execute(text(asked), values).scalar_one() for asked in (some(s), left(s)))

    def _drop(self, low: int, high: int) -> bool:
        s = f'"{self._namespace}"'
        try:
            with transaction(self._engine) as connection:
                connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'"))
                connection.execute(text(ONE_BY_ONE), {"name": f"{s}.partitions"})
                there = (low, high) in bounds(connection, self._namespace, "half")
                if not there or self._needed(connection, high):
                    return False
                # This locks it against writers, checks it again, and drops it.
                return bool(connection.execute(text(f"SELECT {s}.drop_partition(:low)"), {"low": low}).scalar_one())
        except StoreUnavailable:
            return False  # a long reader or writer holds it; the next round tries again

    def _needed(self, connection: Connection, high: int) -> bool:
        s = f'"{self._namespace}"'
        last = connection.execute(text(f"SELECT last_value FROM {s}.tx_seq")).scalar_one()
        return last < high or any(connection.execute(text(sql), {"bound": high}).scalar_one() for sql in needed(s))


def attaching(s: str) -> str:
    """Return the function body that adds a partition to a table."""
    build, join = (part.format(s=s, built="added", parent="$1", low="$2") for part in (BUILD, JOIN))
    return ATTACH.format(s=s, span=schema.SPAN, lock_timeout=LOCK_TIMEOUT, build=build, join=join)


def dropping(s: str) -> str:
    """Return the function body that drops a partition but for spared rows, unless other rows are needed."""
    built = f"place || '_' || $1 / {schema.SPAN} || '_spared'"
    places = ", ".join(f"'{table}'" for table in OF_TRANSACTIONS)
    holding = [*needed(s), left(s)]
    written = DROP.format(
        s=s,
        span=schema.SPAN,
        locked_timeout=LOCKED_TIMEOUT,
        needed="\n".join(f"IF ({sql}) THEN RETURN false; END IF;" for sql in holding),
        spares=SPARES.format(s=s).strip(),
        copy=COPY.format(s=s).strip(),
        forget=FORGET.format(s=s, places=places, nobodys=NOBODYS.format(s=s)),
        move_tails=MOVE_TAILS.format(s=s),
        built=built,
        build=BUILD.format(s=s, built=built, parent="place", low="$1"),
        join=JOIN.format(s=s, built=built, parent="place", low="$1"),
    )
    return written.replace(":bound", "high").replace(":low", "$1")


def dropping_ticks(s: str) -> str:
    """Return the function body that drops old ticks, never the newest one."""
    names = ", ".join(f"'{name}'" for name in LOOKS)
    return OLD_TICKS.format(s=s, looks=len(LOOKS), names=names)


def extend(connection: Connection, namespace: str, ahead: int) -> int:
    """Add partitions in the caller's transaction; return how many were added."""
    s = f'"{namespace}"'
    connection.execute(text(ONE_BY_ONE), {"name": f"{s}.partitions"})
    last = connection.execute(text(f"SELECT last_value FROM {s}.tx_seq")).scalar_one()
    added = 0
    for table in TABLES:
        have = bounds(connection, namespace, table)
        low = have[-1][1] if have else 0
        while low <= last + ahead:
            connection.execute(text(f"SELECT {s}.attach_partition(:table, :low)"), {"table": table, "low": low})
            low, added = low + schema.SPAN, added + 1
    return added


def is_dropped(connection: Connection, namespace: str, txid: int) -> bool:
    """Return whether the partition of a number existed and is dropped; wait while one is being replaced."""
    connection.execute(text(ONE_BY_ONE), {"name": f'"{namespace}".partitions'})
    there = bounds(connection, namespace, "op")
    return bool(there) and txid < there[-1][1] and not any(low <= txid < high for low, high in there)


def bounds(connection: Connection, namespace: str, table: str) -> list[tuple[int, int]]:
    """Return the bounds of a table's partitions, lowest first."""
    rows: Sequence[tuple[str, str | None]] = [
        (row[0], row[1]) for row in connection.execute(text(LIST), {"parent": f'"{namespace}".{table}'})
    ]
    found = [_BOUNDS.search(bound) for _, bound in rows if bound]  # None if another process just dropped it
    return sorted((int(match[1]), int(match[2])) for match in found if match)
