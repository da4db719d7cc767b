"""
Effects and pointers on PostgreSQL, inside the transaction of a ledger.

Pointers are swapped in the order of their names, so that two decisions never deadlock. If one no longer has the
expected value, the whole decision is undone: none of its tables changes, and none of its messages is published.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sqlalchemy import Connection

from txsaga.errors import PointerMoved, TableMoved
from txsaga.lake.table import Effect, Swap, TableName
from txsaga.store import sql_files
from txsaga.store.connection import HomeTransaction

FIRST = 1_000_000
"""Smaller sequence numbers belong to late bodies."""

SQL = sql_files.read("lake/sql/effect.sql")


class TableLedger(HomeTransaction):
    """Effects of transactions and pointers of tables, inside one open database transaction."""

    @property
    def connection(self) -> Connection:
        """The connection, for operations that only PostgreSQL offers."""
        return self._connection

    def keep(self, txid: int, kept: Sequence[Effect]) -> None:
        """Store what the decision of a transaction does in the home database; its record is locked and undecided."""
        if kept:
            payloads = [json.dumps({**each.payload, "part": each.part, "attempt": each.attempt}) for each in kept]
            self._run(SQL["keep"], txid=txid, kinds=[each.kind for each in kept], payloads=payloads, first=FIRST)

    def effects(self, txid: int) -> Sequence[Effect]:
        """Return the effects that count, in order: those of the attempts that won their parts (R4)."""
        rows = self._run(SQL["counting"], txid=txid, first=FIRST)
        return [Effect(kind, payload.pop("part"), payload.pop("attempt"), payload) for kind, payload in rows]

    def swap(self, swaps: Sequence[Swap]) -> None:
        """Move pointers, each from its expected metadata; raise `PointerMoved` if one has another."""
        for swap in sorted(swaps, key=lambda each: each.name):
            if swap.old is None:
                self._run(SQL["create_namespace"], **swap.name._asdict())
            statement = SQL["create" if swap.old is None else "drop" if swap.new is None else "move"]
            moved = self._run(statement, **swap.name._asdict(), old=swap.old, new=swap.new)
            if moved.rowcount != 1 and swap.old is None and self._run(SQL["is_view"], **swap.name._asdict()).scalar():
                raise TableMoved(f"{swap.name} was created as a view meanwhile; begin again, with another name")
            if moved.rowcount != 1:
                raise PointerMoved(f"the metadata of table {swap.name} is not {swap.old or 'absent'} any more")

    def reserve_table(self, txid: int, name: TableName, parts: Sequence[str]) -> int | None:
        """Reserve parts of a table for this undecided transaction to overwrite ('' is the whole table).

        Return the undecided transaction that holds one of them, or None if they are now ours.
        """
        self._require_undecided(txid)
        values = {**name._asdict(), "parts": list(parts), "txid": txid}
        self._run(SQL["turn"], key="/".join(["table", self._schema, *name]))
        holder: int | None = self._run(SQL["reserve"], **values).scalar()
        if holder is None:
            self._run(SQL["take"], **values)
        return holder

    def _require_undecided(self, txid: int) -> None:
        raise NotImplementedError


def pointers_of(
    run: Callable[[str, tuple[list[str], ...]], Iterable[Any]], namespace: str, names: Sequence[TableName]
) -> dict[TableName, str]:
    """Return the locations of the newest metadata of tables; `run` runs a statement of the driver."""
    if not names:
        return {}
    columns = tuple(list(column) for column in zip(*names, strict=True))
    return {TableName(*name): at for *name, at in run(SQL["pointers"].format(s=f'"{namespace}"'), columns)}
