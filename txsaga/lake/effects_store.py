"""
Effects and pointers on PostgreSQL, inside the transaction of a ledger.

Pointers are swapped in the order of their names, so that two decisions never deadlock. If one no longer has the
expected value, the whole decision is undone: none of its tables changes, and none of its messages is published.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, func, insert, literal, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert

from txsaga.errors import PointerMoved
from txsaga.lake import catalog_tables as lake_tables
from txsaga.lake.table import Effect, Swap, TableName
from txsaga.store import schema, sql_files
from txsaga.store.connection import translating

effect, part = schema.effect, schema.part
pointer, properties = lake_tables.iceberg_tables, lake_tables.iceberg_namespace_properties

FIRST = 1_000_000
"""Smaller sequence numbers belong to late bodies."""

SQL = sql_files.read("lake/sql/reservation.sql")


class TableLedger:
    """Effects of transactions and pointers of tables, inside one open database transaction."""

    _connection: Connection
    _schema: str

    @property
    def connection(self) -> Connection:
        """The connection, for operations that only PostgreSQL offers."""
        return self._connection

    def keep(self, txid: int, kept: Effect) -> None:
        """Store what the decision of an undecided transaction does in the home database."""
        self._require_undecided(txid)
        payload = {**kept.payload, "part": kept.part, "attempt": kept.attempt}
        last = select(func.coalesce(func.max(effect.c.seq), 0)).where(effect.c.txid == txid).scalar_subquery()
        seq = func.greatest(last, FIRST) + 1
        with translating():
            self._connection.execute(insert(effect).values(txid=txid, seq=seq, kind=kept.kind, payload=payload))

    def effects(self, txid: int) -> Sequence[Effect]:
        """Return the effects that count, in order: those of the attempts that won their parts (R4)."""
        named = effect.c.payload["part"].as_integer() == part.c.part
        won = effect.c.payload["attempt"].as_integer() == part.c.attempt
        counts = (part.c.txid == effect.c.txid) & named & won
        query = select(effect.c.kind, effect.c.payload).join(part, counts)
        query = query.where(effect.c.txid == txid, effect.c.seq > FIRST).order_by(effect.c.seq)
        with translating():
            return [_effect(row) for row in self._connection.execute(query)]

    def pointer(self, name: TableName) -> str | None:
        """Return the location of a table's newest metadata; None if there is no such table."""
        query = select(pointer.c.metadata_location).where(*_at(name))
        with translating():
            found: str | None = self._connection.execute(query).scalar()
        return found

    def swap(self, swaps: Sequence[Swap]) -> None:
        """Move pointers, each from its expected metadata; raise `PointerMoved` if one has another."""
        for swap in sorted(swaps, key=lambda each: each.name):
            with translating():
                moved = self._create(swap) if swap.old is None else self._move(swap)
            if not moved:
                raise PointerMoved(f"the metadata of table {swap.name} is not {swap.old or 'absent'} any more")

    def reserve_table(self, txid: int, name: TableName, parts: Sequence[str]) -> int | None:
        """Reserve parts of a table for this undecided transaction to overwrite ('' is the whole table).

        Return the undecided transaction that holds one of them, or None if they are now ours.
        """
        self._require_undecided(txid)
        values = {**name._asdict(), "name": name.table, "parts": list(parts), "txid": txid}
        with translating():
            self._connection.execute(text(SQL["turn"]), {"key": "/".join(["table", self._schema, *name])})
            query = text(SQL["reserve"].format(s=self._schema))
            holder: int | None = self._connection.execute(query, values).scalar()
            if holder is None:
                self._connection.execute(text(SQL["take"].format(s=self._schema)), values)
        return holder

    def _move(self, swap: Swap) -> bool:
        statement = update(pointer).where(*_at(swap.name), pointer.c.metadata_location == swap.old)
        values = {"metadata_location": swap.new, "previous_metadata_location": swap.old}
        return self._connection.execute(statement.values(values)).rowcount == 1

    def _create(self, swap: Swap) -> bool:
        catalog, namespace, table = swap.name
        space = {"catalog_name": catalog, "namespace": namespace, "property_key": "exists", "property_value": "true"}
        self._connection.execute(upsert(properties).values(space).on_conflict_do_nothing())
        row = {"catalog_name": catalog, "table_namespace": namespace, "table_name": table}
        statement = upsert(pointer).values({**row, "metadata_location": swap.new, "iceberg_type": "TABLE"})
        created = statement.on_conflict_do_nothing().returning(literal(1))
        return self._connection.execute(created).scalar() is not None

    def _require_undecided(self, txid: int) -> None:
        raise NotImplementedError


def _at(name: TableName) -> tuple[Any, ...]:
    c = pointer.c
    return c.catalog_name == name.catalog, c.table_namespace == name.namespace, c.table_name == name.table


def _effect(row: Any) -> Effect:
    payload = dict(row.payload)
    return Effect(row.kind, payload.pop("part"), payload.pop("attempt"), payload)
