"""
The list of doubts on PostgreSQL: due transactions, results of checks, and check-back's decisions with audit rows.

Many are settled in one statement. If its answer is lost, its decisions are final and the others are due again: the next
round finds out.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Engine

from txsaga.checkback.profile import LEASE, MIN_AGE
from txsaga.checkback.questions import Lead, PutOff, Remark, VerdictRecord, kept
from txsaga.checkback.sweep_statements import INTO, KEPT, LOOKS, SECOND_LOOK, sweep
from txsaga.core.decision import Decision
from txsaga.core.records import DecisionOutcome, Doubt
from txsaga.core.retry import PATIENCE
from txsaga.messages.hot_statements import Hot
from txsaga.store.connection import UNCOMPILED, by_index, transaction
from txsaga.store.pipeline import ConnectionPool, until_answered
from txsaga.store.values import int8
from txsaga.store.wire import Call

logger = logging.getLogger("txsaga")

REMARKS = 20
"""Remarks per doubt; older ones are dropped."""


def with_remark(doubt: str, remark: str) -> str:
    """Return the SQL of a doubt's remarks with one more; an uncounted one replaces its equal, and pushes none out."""
    who, answer, why = remark.split(", ")
    new = f"jsonb_build_object('who', {who}, 'answer', {answer}, 'why', left({why}, 500))"
    return (
        f"CASE WHEN {answer} = 'NOBODY' AND {doubt}.remarks -> -1 @> {new} THEN {doubt}.remarks - -1 "
        f"WHEN jsonb_array_length({doubt}.remarks) >= {REMARKS} THEN {doubt}.remarks - 0 ELSE {doubt}.remarks END "
        f"|| ({new} || jsonb_build_object('at', clock_timestamp()))"
    )


# The time is read once: an index can't be searched for a value that changes from row to row.
WAITING = """
SELECT EXISTS (SELECT FROM {s}.doubt WHERE parked IS NULL AND check_at <= (SELECT clock_timestamp()))
    OR EXISTS (SELECT FROM {s}.question WHERE until <= (SELECT clock_timestamp())
                  OR (until IS NULL AND asked <= (SELECT clock_timestamp()) - interval '1 second'))
    OR EXISTS (SELECT FROM {s}.tx WHERE state IN ('active', 'ended', 'prepared')
                  AND touched <= (SELECT clock_timestamp()) - least(%(age)s, (SELECT min((checks ->> 'min_age')::float8)
                                  FROM {s}.producer_group)) * interval '1 second'
                  AND touched <= (SELECT clock_timestamp()) - interval '1 second'
                      * coalesce((SELECT (p.checks ->> 'min_age')::float8 FROM {s}.producer_group p
                                   WHERE p.id = tx.pgroup), %(age)s)
                  AND (coordinator IS NULL OR state <> 'prepared')
                  AND (state <> 'active' OR touched <= (SELECT clock_timestamp())
                                                         - coalesce(lease, %(lease)s) * interval '1 second')
                  AND NOT EXISTS (SELECT FROM {s}.doubt d WHERE d.txid = tx.txid))
    OR EXISTS (
        SELECT FROM (VALUES (%(first)s, least(%(age)s, (SELECT min((checks ->> 'min_age')::float8)
                       FROM {s}.producer_group))), (%(second)s, %(behind)s)) AS look(name, behind)
         WHERE (SELECT t.last_txid FROM {s}.tick t
                 WHERE t.at <= (SELECT clock_timestamp()) - look.behind * interval '1 second'
                 ORDER BY t.id DESC LIMIT 1)
             > coalesce((SELECT c.txid FROM {s}.checkpoint c WHERE c.name = look.name), 0))"""

# Messages with offsets were committed, even if their decision was deleted: an operator must handle them, or check-back
# would roll back what readers have seen. The log has no index by transaction. It is read from where the oldest of them
# was stored, a place found by binary search, since times rise with offsets; but only for the newest messages: a round
# has a bound.
PARK_DISPATCHED = """
WITH RECURSIVE f AS MATERIALIZED (SELECT unnest(%(txids)s::int8[]) AS txid),
 h AS MATERIALIZED (
    SELECT qid, min(born) - interval '10 seconds' AS born FROM f JOIN LATERAL (
        SELECT qid, born FROM {s}.half WHERE half.txid = f.txid OFFSET 0) h ON true GROUP BY qid),
 place (qid, born, low, high) AS (
    SELECT q.qid, h.born, greatest(q.tail, q.head - %(recent)s / (SELECT count(*) FROM h)), q.head
      FROM h JOIN {s}.queue q USING (qid)
     UNION ALL
    SELECT p.qid, p.born, CASE WHEN l.at >= p.born THEN p.low ELSE (p.low + p.high) / 2 + 1 END,
           CASE WHEN l.at >= p.born THEN (p.low + p.high) / 2 ELSE p.high END
      FROM place p LEFT JOIN LATERAL (
            SELECT at FROM {s}.log WHERE log.qid = p.qid AND log.base <= (p.low + p.high) / 2
             ORDER BY base DESC LIMIT 1) l ON true
     WHERE p.low < p.high),
 found AS MATERIALIZED (
    SELECT DISTINCT l.txid FROM place p JOIN {s}.queue q USING (qid)
      JOIN {s}.log l ON l.qid = p.qid AND l.base >= p.low AND l.base < q.head JOIN f ON f.txid = l.txid
     WHERE p.low = p.high)
UPDATE {s}.doubt d SET parked = clock_timestamp(), remarks = {remark} FROM found
 WHERE d.txid = found.txid AND NOT EXISTS (SELECT FROM {s}.op o WHERE o.txid = d.txid)
RETURNING d.txid"""
RECENT = 4_000_000
"""Messages to search, shared by the queues: that takes some two seconds, and a round's lease is ten."""
DISPATCHED = "its messages were dispatched, and its decision is gone; `txsaga doctor` says what to do"

# Only plain half messages: a keyed transaction is decided with its home effects, by its ledger alone (R2).
SETTLE = """
WITH x AS MATERIALIZED (
    SELECT * FROM unnest(%(txids)s::int8[], %(decisions)s::int2[], %(whys)s::text[]) AS x(txid, decision, why)),
 h AS MATERIALIZED (
    SELECT x.*, h.pgroup FROM x
      JOIN LATERAL (SELECT pgroup FROM {s}.half WHERE half.txid = x.txid AND NOT keyed LIMIT 1) h ON true),
 o AS (
    INSERT INTO {s}.op (txid, decision, from_check) SELECT txid, decision, true FROM h ORDER BY txid
        ON CONFLICT (txid) DO NOTHING RETURNING txid),
 e AS (
    INSERT INTO {s}.event (txid, what, who, why)
    SELECT txid, CASE decision WHEN 1 THEN 'COMMIT' ELSE 'ROLLBACK' END, %(who)s, why FROM h JOIN o USING (txid)
     ORDER BY txid),
 gone AS (DELETE FROM {s}.doubt USING h WHERE doubt.txid = h.txid RETURNING doubt.txid, doubt.remarks),
 r AS ({into}
    {kept}),
 t AS (
    INSERT INTO {s}.tally (pgroup, answer, n)
    SELECT pgroup, CASE decision WHEN 1 THEN 'COMMIT' ELSE 'ROLLBACK' END, count(*) FROM h JOIN o USING (txid)
     GROUP BY 1, 2 ORDER BY 1, 2
        ON CONFLICT (pgroup, answer) DO UPDATE SET n = tally.n + excluded.n)
SELECT txid FROM o""".replace("{into}", INTO).replace("{kept}", KEPT)

STANDS = "SELECT txid, decision FROM {s}.op WHERE txid = ANY (%(lost)s)"

LEADS = """
SELECT FROM {s}.lease WHERE (kind, name, holder, epoch) = (%(kind)s, %(name)s, %(holder)s, %(epoch)s)
   AND until > clock_timestamp() FOR SHARE"""

PUT_OFF = """
WITH x AS (
    SELECT * FROM unnest(%(txids)s::int8[], %(bys)s::float8[], %(whys)s::text[], %(counted)s::bool[], %(anew)s::bool[])
        AS x(txid, by, why, counted, anew)),
 d AS (
    UPDATE {s}.doubt d SET checks = d.checks + x.counted::int,
           remarks = CASE x.why WHEN '' THEN d.remarks ELSE {remark} END,
           check_at = clock_timestamp() + x.by * interval '1 second',
           resumed = CASE WHEN x.anew THEN clock_timestamp() ELSE d.resumed END
      FROM x WHERE d.txid = x.txid RETURNING d.pgroup, x.counted, x.why)
INSERT INTO {s}.tally (pgroup, answer, n)
SELECT pgroup, CASE WHEN counted THEN 'UNKNOWN' ELSE 'NOBODY' END, count(*) FROM d WHERE why <> ''
 GROUP BY 1, 2 ORDER BY 1, 2
    ON CONFLICT (pgroup, answer) DO UPDATE SET n = tally.n + excluded.n"""

# A row locked by another session is left to the next heartbeat: it does not keep others from being held. When the work
# is over, the hold is over too, but not the minimum age that its group sets.
HOLD = """
WITH x AS MATERIALIZED (
SELECT x.txid, x.pgroup, x.keyed FROM {held} AS x(txid, pgroup, keyed)
 WHERE (SELECT o.txid FROM {s}.op o WHERE o.txid = x.txid) IS NULL),
 l AS MATERIALIZED (
    SELECT d.txid FROM {s}.doubt d WHERE d.txid = ANY (ARRAY(SELECT txid FROM x)) FOR UPDATE SKIP LOCKED),
 u AS (
    UPDATE {s}.doubt d SET check_at = greatest(d.check_at, clock_timestamp() + %(lease)s * interval '1 second')
     WHERE d.txid = ANY (ARRAY(SELECT txid FROM l)))
INSERT INTO {s}.doubt (txid, pgroup, keyed, check_at)
SELECT x.txid, x.pgroup, x.keyed, greatest(
       clock_timestamp() + %(lease)s * interval '1 second',
       coalesce((SELECT t.touched FROM {s}.tx t WHERE t.txid = x.txid),
                (SELECT h.born FROM {s}.half h WHERE h.txid = x.txid LIMIT 1))
       + (SELECT (p.checks ->> 'min_age')::float8 FROM {s}.producer_group p WHERE p.id = x.pgroup)
         * interval '1 second')
  FROM x WHERE (SELECT d.txid FROM {s}.doubt d WHERE d.txid = x.txid) IS NULL ORDER BY x.txid
    ON CONFLICT (txid) DO NOTHING"""
HELD = "unnest(%(txids)s::int8[], %(groups)s::int4[], %(keyed)s::bool[])"
# A login that does not own the namespace does not name the groups, and can't hold for longer than a heartbeat does.
OWN = """(SELECT n.txid, h.pgroup, h.keyed FROM (SELECT DISTINCT unnest($1) AS txid) n
   JOIN LATERAL (SELECT pgroup, true AS keyed FROM {s}.tx WHERE tx.txid = n.txid
                 UNION ALL (SELECT pgroup, false FROM {s}.half WHERE half.txid = n.txid AND NOT half.keyed LIMIT 1)
                 LIMIT 1) h ON true
  WHERE {s}.mine(h.pgroup) OR {theirs})"""
CALL_HOLD = "SELECT {s}.hold(%(txids)s::int8[], %(lease)s::float8)"


def holding(s: str, theirs: str) -> str:
    """Return the statement that holds a login's own transactions; the SQL condition `theirs` may add other groups'."""
    capped = f"least(greatest($2, 0), {LEASE.total_seconds()})"
    return HOLD.replace("%(lease)s", capped).format(s=s, held=OWN.format(s=s, theirs=theirs)).strip()


IS_HELD = """
SELECT txid FROM {s}.doubt WHERE txid = %(txid)s AND check_at > clock_timestamp() AND parked IS NULL
   AND checks = 0 AND remarks = '[]'"""


# The same times as in a sweep.
RESTS = """
SELECT FROM (
    (SELECT pgroup, touched AS born, CASE state WHEN 'active' THEN lease END AS least FROM {s}.tx WHERE txid = %(txid)s)
     UNION ALL
    (SELECT pgroup, born, CASE WHEN immunity IS NOT NULL THEN greatest(immunity, %(least)s) END FROM {s}.half
      WHERE txid = %(txid)s AND NOT keyed LIMIT 1)) x
  LEFT JOIN {s}.producer_group p ON p.id = x.pgroup
 WHERE x.born + interval '1 second' * greatest(coalesce((p.checks ->> 'min_age')::float8, %(age)s), x.least)
       > clock_timestamp()"""


class Doubts:
    """Undecided transactions, when each is checked next, and how often it was."""

    def __init__(self, engine: Engine, hot: Hot, namespace: str, *, owner: bool = True) -> None:
        self._engine, self._hot, self._schema = engine, hot, f'"{namespace}"'
        self._lines = ConnectionPool(engine)
        self._hold = HOLD.replace("{held}", HELD) if owner else CALL_HOLD

    def waiting(self, age: timedelta) -> bool:
        """Return whether a round would find anything; writes nothing."""
        first, second = LOOKS
        parameters = {"age": age.total_seconds(), "behind": max(age, SECOND_LOOK).total_seconds()}
        ((found,),) = self._run(
            WAITING, parameters | {"lease": LEASE.total_seconds(), "first": first, "second": second}
        )
        return bool(found)

    def sweep(self, age: timedelta) -> int:
        """Put half messages and closed transactions older than `age`, or than their group's setting, on the list.

        Each half message is examined once, and again later for numbers older than their commit. An open transaction is
        listed when its owner sent no heartbeat for `LEASE`.
        """
        with transaction(self._engine) as connection:
            connection.exec_driver_sql(UNCOMPILED).close()  # it is planned as if no number had a decision
            return sweep(connection, self._hot, self._schema, age)

    def due(self, limit: int) -> Sequence[Doubt]:
        """Return transactions that are due, without a decision and without an open question; oldest first."""
        asked = Call(self._hot.doubts, [int8(limit)])
        with self._lines.taken() as line:
            (rows,) = until_answered(line, PATIENCE, lambda: line.exchange([asked]))
        doubts = list(map(Doubt._make, rows))
        dispatched = self._park_dispatched([doubt.txid for doubt in doubts]) if doubts else ()
        return [doubt for doubt in doubts if doubt.txid not in dispatched]

    def _park_dispatched(self, txids: Sequence[int]) -> set[int]:
        remark = with_remark("d", "'check-back', 'NOBODY', %(why)s")
        sql = PARK_DISPATCHED.replace("{remark}", remark)
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
        self._do(self._hold, columns | {"lease": lease.total_seconds()})

    def _is_held(self, txid: int) -> bool:
        return bool(self._run(IS_HELD, {"txid": txid}))

    def rests(self, txid: int, age: timedelta) -> bool:
        """Return whether a transaction must not be checked yet, listed or not.

        It is younger than `age`, its group's minimum age or its own immunity, or it is held.
        """
        young = {"txid": txid, "age": age.total_seconds(), "least": MIN_AGE}
        return bool(self._run(RESTS, young)) or self._is_held(txid)

    def settle(self, verdicts: Sequence[VerdictRecord], who: str) -> Sequence[DecisionOutcome]:
        """Decide plain half messages with their audit rows, and remove them from the list, all in one step."""
        columns = {
            "txids": [verdict.txid for verdict in verdicts],
            "decisions": [int(verdict.decision) for verdict in verdicts],
            "whys": [kept(verdict.why) for verdict in verdicts],
        }
        won = {txid for (txid,) in self._run(SETTLE, columns | {"who": who})}
        lost = [verdict.txid for verdict in verdicts if verdict.txid not in won]
        found = self._run(STANDS, {"lost": lost}) if lost else []
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
        remark = with_remark("d", "'check-back', CASE WHEN x.counted THEN 'UNKNOWN' ELSE 'NOBODY' END, x.why")
        with by_index(self._engine) as connection:
            if lead is not None:
                held = connection.exec_driver_sql(LEADS.format(s=self._schema), lead._asdict()).rowcount
                if not held:
                    return False
            connection.exec_driver_sql(PUT_OFF.format(s=self._schema, remark=remark), columns)
        return True

    def close(self) -> None:
        """Close the idle connections."""
        self._lines.close()

    def _run(self, sql: str, parameters: Mapping[str, object]) -> Sequence[Any]:
        with by_index(self._engine) as connection:
            return connection.exec_driver_sql(sql.format(s=self._schema), dict(parameters)).all()

    def _do(self, sql: str, parameters: Mapping[str, object]) -> None:
        with by_index(self._engine) as connection:
            connection.exec_driver_sql(sql.format(s=self._schema), dict(parameters))


def remark_of(kept: Mapping[str, str]) -> Remark:
    """Parse a stored remark."""
    return Remark(datetime.fromisoformat(kept["at"]), kept["who"], kept["answer"], kept["why"])
