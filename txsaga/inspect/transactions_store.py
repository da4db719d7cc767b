"""Transactions as shown to people: plain and keyed ones in one list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, text

from txsaga.core.decision import Decision
from txsaga.core.identity import StoreId
from txsaga.core.records import EVERY, TxFilter, TxView
from txsaga.store import sql_files

SQL = sql_files.read("inspect/sql/transactions.sql")
DECIDED = {"committed": Decision.COMMIT, "rolled_back": Decision.ROLLBACK}


def transactions(
    connection: Connection,
    identity: StoreId,
    *,
    limit: int,
    undecided: bool = False,
    txid: int | None = None,
    only: TxFilter = EVERY,
) -> Sequence[TxView]:
    """List transactions, newest first."""
    namespace = connection.get_execution_options()["schema_translate_map"][None]
    decisions = [int(DECIDED[state]) for state in only.states or () if state in DECIDED]
    values = only._asdict() | {"txid": txid, "limit": limit, "decisions": decisions}
    conditions = [name for name in ("txid", "group", "key", "topic") if values[name] is not None]
    if undecided or (only.states and not decisions):
        conditions.append("undecided")
    elif only.states and len(decisions) == len(only.states):
        conditions.append("decided")
    values["states"] = None if only.states is None else sorted(only.states)
    # A state that is read from several tables is looked for among all that can have it.
    values["first"] = limit if only.states is None or "decided" in conditions else None
    sql = SQL["list"]
    for place, table in (("{halves}", "half"), ("{lives}", "tx")):
        sql = sql.replace(place, " AND ".join(["true", *(SQL[name].replace("{t}", table) for name in conditions)]))
    rows = connection.execute(text(sql.format(s=f'"{namespace}"')), values)
    return [_view(identity, row) for row in rows]


def _view(identity: StoreId, row: Any) -> TxView:
    return TxView(
        txid=row.txid,
        id=identity.transaction(row.txid),
        group=row.group_name,
        key=row.key,
        epoch=row.epoch,
        state=row.state,
        resource=row.resource,
        born=row.born,
        decision=None if row.decision is None else Decision(row.decision),
        from_check=row.from_check,
        due=row.due,
    )
