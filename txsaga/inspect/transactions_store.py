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
    states = only.states or frozenset()
    decided = frozenset() if undecided else states & DECIDED.keys()
    if decided and decided != states:  # of the decided ones the newest are enough, the undecided ones are few
        parts = [only._replace(states=part) for part in (decided, states - decided)]
        found = [each for part in parts for each in transactions(connection, identity, limit=limit, only=part)]
        return sorted(found, key=lambda each: -each.txid)[:limit]
    namespace = connection.get_execution_options()["schema_translate_map"][None]
    values = only._asdict() | {"states": sorted(states) or None, "txid": txid, "limit": limit}
    values |= {"decisions": [int(DECIDED[state]) for state in decided]}
    values["first"] = None if states and not decided else limit  # such a state is read from several tables
    wanted = ["decided"] * bool(decided) + ["undecided"] * (undecided or bool(states and not decided))
    wanted += [name for name in ("txid", "group", "key") if values[name] is not None]
    sql = SQL["list"]
    for place, table, topic in (("{halves}", "half", "topic_of_half"), ("{lives}", "tx", "topic_of_tx")):
        names = wanted if only.topic is None else [*wanted, topic]
        sql = sql.replace(place, " AND ".join(["true", *(SQL[name].replace("{t}", table) for name in names)]))
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
