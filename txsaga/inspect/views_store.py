"""
Transactions as shown to people: plain and keyed ones in one list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, text

from txsaga.core.decision import Decision
from txsaga.core.identity import StoreId
from txsaga.core.records import SCHEDULED, TxView

LIST = """
SELECT f.txid, coalesce(g.name, '') AS group_name, t.key, t.epoch, t.state, r.name AS resource,
       coalesce(t.opened, h.born) AS born, o.decision, coalesce(o.from_check, false) AS from_check, d.parked,
       CASE WHEN o.decision IS NULL THEN w.at END AS due
  FROM (
    SELECT txid FROM (SELECT DISTINCT txid FROM {s}.half {halves} ORDER BY txid DESC LIMIT :limit) a
    UNION SELECT txid FROM (SELECT txid FROM {s}.tx {lives} ORDER BY txid DESC LIMIT :limit) b) f
  LEFT JOIN {s}.tx t USING (txid)
  LEFT JOIN LATERAL (SELECT pgroup, evidence, born FROM {s}.half WHERE half.txid = f.txid LIMIT 1) h ON true
  LEFT JOIN {s}.producer_group g ON g.id = coalesce(t.pgroup, h.pgroup)
  LEFT JOIN {s}.resource r ON r.id = coalesce(t.evidence, h.evidence)
  LEFT JOIN {s}.op o USING (txid)
  LEFT JOIN {s}.doubt d USING (txid)
  LEFT JOIN {s}.scheduled w USING (txid)
 ORDER BY f.txid DESC LIMIT :limit"""

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
    filters = {"half": "", "tx": ""}
    for table in filters:
        if txid is not None:
            filters[table] = "WHERE txid = :txid"
        elif undecided:
            filters[table] = UNDECIDED.format(s=schema, t=table)
    sql = LIST.format(s=schema, halves=filters["half"], lives=filters["tx"])
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
