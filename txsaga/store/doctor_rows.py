"""
Find rows of a store that contradict each other: they were changed by hand, or part of a backup was restored.

Only the newest rows are compared, so that checking a store with a long history is cheap. Retention drops rows from all
tables at once, so it causes no finding. Each finding names the first row, and the statement that fixes it.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import text

from txsaga.consume import ticks
from txsaga.store import sql_files
from txsaga.store.connection import transaction
from txsaga.store.finding import Finding, error, ok
from txsaga.store.store import Store

RECENT = 200_000
"""Messages, and transaction numbers, that are checked: a second for all of them."""

SQL = sql_files.read("store/sql/doctor.sql")


def blocked(store: Store) -> Finding:
    """Compare the log with the head of each queue: a row from the head on stops ticks from writing to the queue."""
    found, s = _rows(store, ticks.SQL["blocked"])
    if not found:
        return ok("log", "every queue ends where its log ends")
    told, remedy = ticks.blockage(found[0], s)
    return error("log", f"{told}: its messages wait{_more(found)}", f"as the owner: `{remedy}`")


def undecided(store: Store) -> Finding:
    """Find messages that have offsets but were not committed."""
    found, s = _rows(store, SQL["dispatched"])
    if not found:
        return ok("decisions", "every message with an offset was committed")
    txid, qid, base, keyed, decision = found[0]
    if keyed is None:
        told = f"the log has a row for transaction {txid}, which is not stored"
        remedy = f"`DELETE FROM {s}.log WHERE qid = {qid} AND base = {base}`, or restore its rows of half and op"
    elif decision is None:
        told = f"transaction {txid} was dispatched, and its decision is gone"
        # With an old xid it counts as dispatched; with a new one it would be dispatched again.
        sql = f"INSERT INTO {s}.op (txid, xid, decision, keyed) VALUES ({txid}, '3', 1, {str(keyed).lower()})"
        remedy = f"`{sql}{_moved(s, txid, keyed)}`"
    else:
        told = f"transaction {txid} was dispatched, and its decision is ROLLBACK"
        sql = f"UPDATE {s}.op SET decision = 1 WHERE txid = {txid}"  # its xid stays: ticks have seen it
        remedy = f"`{sql}{_moved(s, txid, keyed)}`, since readers have seen it"
    return error("decisions", told + _more(found), f"as the owner: {remedy}")


def _moved(s: str, txid: object, keyed: object) -> str:
    return f"; UPDATE {s}.tx SET state = 'committed' WHERE txid = {txid}" if keyed else ""


def unowned(store: Store) -> Finding:
    """Find decisions of keyed transactions whose row of tx is gone: their key is free again."""
    found, s = _rows(store, SQL["unowned"])
    if not found:
        return ok("keys", "every decision under a key has its row of tx")
    txid, decision, group = found[0]
    state = "committed" if decision == 1 else "rolled_back"
    return error(
        "keys",
        f"transaction {txid} is {state}, and its row of tx is gone: its key can be used again" + _more(found),
        f"as the owner, with the key that it had: `INSERT INTO {s}.tx (txid, pgroup, key, epoch, state) "
        f"VALUES ({txid}, {group or '<group>'}, <key>, 1, '{state}')`",
    )


def _rows(store: Store, sql: str) -> tuple[list[tuple[object, ...]], str]:
    s = f'"{store.namespace}"'
    with transaction(store.engine) as connection:
        return [tuple(row) for row in connection.execute(text(sql.format(s=s)), {"recent": RECENT})], s


def _more(found: list[tuple[object, ...]]) -> str:
    return f", and {len(found) - 1} more" if found[1:] else ""


ROWS: dict[str, Callable[[Store], Finding]] = {"log": blocked, "decisions": undecided, "keys": unowned}
