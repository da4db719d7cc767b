"""
The list of doubts on PostgreSQL: due transactions, results of checks, and check-back's decisions with audit rows.

Many are settled in one statement. If its answer is lost, its decisions are final and the others are due again: the next
round finds out.

The sweep examines each half message once when it is old enough, and once more much later: that finds those whose number
was taken long before their commit. Keyed transactions are found by their row: closed ones soon, open ones when their
owner sent no heartbeat for a lease. If the sweep never runs, undecided half messages stay invisible and unchecked, and
their partitions are never dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Engine

from txsaga.checkback.profile import LEASE, MIN_AGE
from txsaga.checkback.questions import Lead, PutOff, Remark, VerdictRecord, kept
from txsaga.core.decision import Decision
from txsaga.core.records import DecisionOutcome, Doubt
from txsaga.messages.hot_statements import Hot
from txsaga.store import sql_files
from txsaga.store.connection import UNCOMPILED, by_index, transaction
from txsaga.store.pipeline import ConnectionPool

logger = logging.getLogger("txsaga")

REMARKS = 20
"""Remarks per doubt; older ones are dropped."""


def with_remark(remark: str) -> str:
    """Return the SQL of the remarks of doubt `d` with one more; an uncounted one replaces its equal."""
    who, answer, why = remark.split(", ")
    new = f"jsonb_build_object('who', {who}, 'answer', {answer}, 'why', left({why}, 500))"
    return (
        f"CASE WHEN {answer} = 'NO_ANSWER' AND d.remarks -> -1 @> {new} THEN d.remarks - -1 "
        f"WHEN jsonb_array_length(d.remarks) >= {REMARKS} THEN d.remarks - 0 ELSE d.remarks END "
        f"|| ({new} || jsonb_build_object('at', clock_timestamp()))"
    )


SQL = sql_files.read("checkback/sql/doubt.sql")

LOOKS = ("sweep", "second look")
"""The checkpoints of the two passes of the sweep."""
SECOND_LOOK = timedelta(minutes=10)
RANGE = 200_000
"""Numbers examined per sweep and pass: a round has a bound."""
RECENT = 4_000_000
"""Messages to search, shared by the queues: that takes some two seconds, and a round's lease is ten."""
DISPATCHED = "its messages were dispatched, but its decision is missing; run `txsaga doctor` for the fix"
HELD = "unnest(%(txids)s::int8[], %(groups)s::int4[], %(keyed)s::bool[])"
# A login that does not own the namespace does not name the groups, and can't hold for longer than a heartbeat does.
OWN = """(SELECT n.txid, h.pgroup, h.keyed FROM (SELECT DISTINCT unnest($1) AS txid) n
   JOIN LATERAL (SELECT pgroup, true AS keyed FROM {s}.tx WHERE tx.txid = n.txid
                 UNION ALL (SELECT pgroup, false FROM {s}.half WHERE half.txid = n.txid AND NOT half.keyed LIMIT 1)
                 LIMIT 1) h ON true
  WHERE {s}.mine(h.pgroup) OR {theirs})"""


def holding(s: str, theirs: str) -> str:
    """Return the statement that holds a login's own transactions; the SQL condition `theirs` may add other groups'."""
    capped = f"least(greatest($2, 0), {LEASE.total_seconds()})"
    return SQL["hold"].replace("%(lease)s", capped).format(s=s, held=OWN.format(s=s, theirs=theirs)).strip()


class Doubts:
    """Undecided transactions, when each is checked next, and how often it was."""

    def __init__(self, engine: Engine, hot: Hot, namespace: str, *, owner: bool = True) -> None:
        self._engine, self._hot, self._schema = engine, hot, f'"{namespace}"'
        self._lines = ConnectionPool(engine)
        self._hold = SQL["hold"].replace("{held}", HELD) if owner else SQL["call_hold"]

    def waiting(self, age: timedelta) -> bool:
        """Return whether a round would find anything; writes nothing."""
        first, second = LOOKS
        parameters = {"age": age.total_seconds(), "behind": max(age, SECOND_LOOK).total_seconds()}
        ((found,),) = self._run(
            SQL["waiting"], parameters | {"lease": LEASE.total_seconds(), "first": first, "second": second}
        )
        return bool(found)

    def sweep(self, age: timedelta) -> int:
        """Put half messages and closed transactions older than `age`, or than their group's setting, on the list."""
        with transaction(self._engine) as connection:
            connection.exec_driver_sql(UNCOMPILED).close()  # it is planned as if no number had a decision
            return sweep(connection, self._hot, self._schema, age)

    def due(self, limit: int) -> Sequence[Doubt]:
        """Return transactions that are due, without a decision and without an open question; oldest first."""
        asked = self._hot.doubts.call(limit)
        with self._lines.taken() as line:
            rows = line.ask(asked)
        doubts = list(map(Doubt._make, rows))
        dispatched = self._park_dispatched([doubt.txid for doubt in doubts]) if doubts else ()
        return [doubt for doubt in doubts if doubt.txid not in dispatched]

    def _park_dispatched(self, txids: Sequence[int]) -> set[int]:
        remark = with_remark("'check-back', 'NO_ANSWER', %(why)s")
        sql = SQL["park_dispatched"].replace("{remark}", remark)
        parked = {txid for (txid,) in self._run(sql, {"txids": list(txids), "why": DISPATCHED, "recent": RECENT})}
        for txid in sorted(parked):
            logger.error("transaction %d is parked: %s", txid, DISPATCHED, extra={"txid": txid})
        return parked

    def of(self, txid: int) -> Doubt | None:
        """Return what is needed to decide one transaction, listed or not, decided or not; None for an unknown one."""
        rows = self._run(self._hot.doubt, {"txid": txid})
        return Doubt(*rows[0]) if rows else None

    def hold(self, held: Sequence[Doubt], lease: timedelta) -> None:
        """Delay the checks of transactions that are being worked on by at least `lease` from now."""
        columns = {
            "txids": [doubt.txid for doubt in held],
            "groups": [doubt.group for doubt in held],
            "keyed": [doubt.keyed for doubt in held],
        }
        with by_index(self._engine) as connection:
            lasting = columns | {"lease": lease.total_seconds()}
            connection.exec_driver_sql(self._hold.format(s=self._schema), lasting)

    def rests(self, txid: int, age: timedelta) -> bool:
        """Return whether a transaction is held, or younger than `age`, its group's minimum age or its own immunity."""
        young = {"txid": txid, "age": age.total_seconds(), "least": MIN_AGE}
        return bool(self._run(SQL["rests"], young) or self._run(SQL["is_held"], {"txid": txid}))

    def settle(self, verdicts: Sequence[VerdictRecord], who: str) -> Sequence[DecisionOutcome]:
        """Decide plain half messages with their audit rows, and remove them from the list, all in one step."""
        columns = {
            "txids": [verdict.txid for verdict in verdicts],
            "decisions": [int(verdict.decision) for verdict in verdicts],
            "whys": [kept(verdict.why) for verdict in verdicts],
        }
        won = {txid for (txid,) in self._run(SQL["settle"], columns | {"who": who})}
        lost = [verdict.txid for verdict in verdicts if verdict.txid not in won]
        found = self._run(SQL["stands"], {"lost": lost}) if lost else []
        stands = {verdict.txid: verdict.decision for verdict in verdicts if verdict.txid in won}
        stands |= {txid: Decision(decision) for txid, decision in found}
        return [
            DecisionOutcome(each.txid, stands[each.txid], each.txid in won) for each in verdicts if each.txid in stands
        ]

    def put_off(self, doubts: Sequence[PutOff], lead: Lead | None = None) -> bool:
        """Postpone checks, with a remark each; False, and nothing done, when the lead was lost."""
        columns: dict[str, object] = {
            "txids": [each.txid for each in doubts],
            "bys": [each.by.total_seconds() for each in doubts],
            "whys": [kept(each.why) for each in doubts],
            "counted": [each.counted for each in doubts],
            "anew": [each.anew for each in doubts],
        }
        remark = with_remark("'check-back', CASE WHEN x.counted THEN 'UNKNOWN' ELSE 'NO_ANSWER' END, x.why")
        with by_index(self._engine) as connection:
            if lead is not None:
                held = connection.exec_driver_sql(SQL["leads"].format(s=self._schema), lead._asdict()).rowcount
                if not held:
                    return False
            connection.exec_driver_sql(SQL["put_off"].format(s=self._schema, remark=remark), columns)
        return True

    def close(self) -> None:
        """Close the idle connections."""
        self._lines.close()

    def _run(self, sql: str, parameters: Mapping[str, object]) -> Sequence[Any]:
        with by_index(self._engine) as connection:
            return connection.exec_driver_sql(sql.format(s=self._schema), dict(parameters)).all()


def remark_of(kept: Mapping[str, str]) -> Remark:
    """Parse a stored remark."""
    return Remark(datetime.fromisoformat(kept["at"]), kept["who"], kept["answer"], kept["why"])


def sweep(connection: Connection, hot: Hot, namespace: str, age: timedelta) -> int:
    """Put half messages and closed transactions without a decision on the list of doubts; return how many."""
    forget(connection, namespace)
    connection.exec_driver_sql(hot.ghosts)
    first, second = LOOKS
    ages = {"age": age.total_seconds(), "lease": LEASE.total_seconds()}
    shortest = connection.exec_driver_sql(SQL["shortest"].format(s=namespace), ages).scalar_one()
    found = _look(connection, hot, namespace, first, age, behind=shortest)
    found += _look(connection, hot, namespace, second, age, behind=max(age, SECOND_LOOK).total_seconds())
    left = connection.exec_driver_sql(SQL["left_alone"].format(s=namespace), ages | {"shortest": shortest})
    return found + left.rowcount


def forget(connection: Connection, namespace: str) -> None:
    """Remove from the list what has been decided since; one with an open question is removed with the question."""
    connection.exec_driver_sql(SQL["forget"].format(s=namespace))


def _look(connection: Connection, hot: Hot, namespace: str, name: str, age: timedelta, *, behind: float) -> int:
    """Examine the next numbers of one pass, up to those that were taken `behind` seconds ago."""
    point = {"name": name, "behind": behind, "range": RANGE}
    for statement in ("checkpoint", "examined"):
        found = connection.exec_driver_sql(SQL[statement].format(s=namespace), point)
    low, high = found.one_or_none() or (0, 0)
    if high <= low:
        return 0
    values = {"lo": low, "hi": high, "age": age.total_seconds(), "least": MIN_AGE}
    listed = connection.exec_driver_sql(hot.sweep, values).rowcount
    connection.exec_driver_sql(SQL["examine_on"].format(s=namespace), {"name": name, "txid": high})
    return listed
