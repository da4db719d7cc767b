"""Transactions as shown to people: plain and keyed ones in one list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, text

from txsaga.core.decision import Decision
from txsaga.core.identity import StoreId
from txsaga.core.records import SCHEDULED, TxView
from txsaga.store import sql_files

SQL = sql_files.read("inspect/sql/transactions.sql")
UNDECIDED = "WHERE NOT EXISTS (SELECT FROM {s}.op WHERE op.txid = {t}.txid)"


def transactions(
    connection: Connection,
    identity: StoreId,
    *,
    limit: int,
    undecided: bool = False,
    txid: int | None = None,
) -> Sequence[TxView]:
    """List transactions, newest first."""
    namespace = connection.get_execution_options()["schema_translate_map"][None]
    schema = f'"{namespace}"'
    only = "WHERE txid = :txid" if txid is not None else UNDECIDED if undecided else ""
    halves, lives = (only.format(s=schema, t=table) for table in ("half", "tx"))
    sql = SQL["list"].format(s=schema, halves=halves, lives=lives)
    parameters = {"limit": limit} if txid is None else {"limit": limit, "txid": txid}
    return [_view(identity, row) for row in connection.execute(text(sql), parameters)]


def _view(identity: StoreId, row: Any) -> TxView:
    decision = None if row.decision is None else Decision(row.decision)
    waits = "prepared" if row.due is None else SCHEDULED
    state = {None: row.state or waits, Decision.COMMIT: "committed", Decision.ROLLBACK: "rolled_back"}
    return TxView(
        txid=row.txid,
        id=identity.transaction(row.txid),
        group=row.group_name,
        key=row.key,
        epoch=row.epoch,
        state="parked" if row.parked and decision is None else state[decision],
        resource=row.resource,
        born=row.born,
        decision=decision,
        from_check=row.from_check,
        due=row.due,
    )
