"""
Questions on PostgreSQL: one row per transaction, counted before it is asked.

A lost question (its member died, the server restarted) is collected by the next round: at worst a check is asked twice,
one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Engine

from txsaga.checkback import sweep_statements as checked
from txsaga.checkback.doubts_store import with_remark
from txsaga.checkback.questions import TURNS, Ask, Lead, OpenQuestion, QuestionAnswer, kept
from txsaga.core.records import Doubt, HalfView
from txsaga.messages.hot_statements import TOKEN, TOKEN_ASKED
from txsaga.store.arguments_of_sql import numbered
from txsaga.store.connection import by_index

ASK = """
WITH lead AS MATERIALIZED (
    SELECT FROM {s}.lease WHERE (kind, name, holder, epoch) = (%(kind)s, %(name)s, %(holder)s, %(epoch)s)
       AND until > clock_timestamp() FOR SHARE),
 x AS (
    SELECT * FROM unnest(%(txids)s::int8[], %(groups)s::int4[], %(members)s::text[], %(intervals)s::float8[],
                         %(patience)s::float8[]) AS x(txid, pgroup, member, interval, patience)),
 d AS (
    UPDATE {s}.doubt SET checks = checks + 1, check_at = clock_timestamp() + x.interval * interval '1 second'
      FROM x, lead WHERE doubt.txid = x.txid AND doubt.parked IS NULL
       AND (SELECT o.txid FROM {s}.op o WHERE o.txid = x.txid) IS NULL
       AND (SELECT q.txid FROM {s}.question q WHERE q.txid = x.txid) IS NULL
    RETURNING x.txid, x.pgroup, x.member, x.patience)
INSERT INTO {s}.question (txid, pgroup, member, patience)
SELECT txid, pgroup, member, patience * interval '1 second' FROM d RETURNING txid"""

TAKE = """
WITH t AS MATERIALIZED (
    SELECT txid FROM {s}.question WHERE member = %(member)s AND until IS NULL{mine}
     ORDER BY asked LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
UPDATE {s}.question q SET until = clock_timestamp() + q.patience FROM t WHERE q.txid = t.txid RETURNING q.txid"""

ASKED = """
SELECT q.txid, q.pgroup, {token}, t.txid IS NOT NULL, coalesce(t.evidence, h.evidence), coalesce(t.opened, h.born),
       coalesce(d.checks, 0), clock_timestamp() - coalesce(t.opened, h.born), t.run, t.key,
       q.patience
  FROM {s}.question q LEFT JOIN {s}.tx t USING (txid) LEFT JOIN {s}.doubt d USING (txid)
  LEFT JOIN LATERAL (SELECT evidence, born FROM {s}.half WHERE half.txid = q.txid LIMIT 1) h ON true
 WHERE q.txid = ANY (%(txids)s) ORDER BY q.txid"""

# Decided transactions leave the list of doubts, with their checks as history; the others keep a remark, and an answer
# without a checker does not count.
ANSWERED = """
WITH x AS (
    SELECT * FROM unnest(%(txids)s::int8[], %(answers)s::text[], %(whys)s::text[]) AS x(txid, answer, why)),
 q AS (
    DELETE FROM {s}.question USING x WHERE question.txid = x.txid AND question.member = %(member)s{mine}
    RETURNING question.pgroup, x.*),
 decided AS (SELECT * FROM q WHERE q.answer NOT IN ('UNKNOWN', 'NOBODY'){decided}),
 gone AS (
    DELETE FROM {s}.doubt USING decided WHERE doubt.txid = decided.txid RETURNING doubt.txid, doubt.remarks),
 history AS (
    {into}
    {kept}
     UNION ALL
    SELECT txid, clock_timestamp(), 'CHECK ' || answer, %(member)s::text, left(why, 500) FROM decided),
 told AS (
    UPDATE {s}.doubt d SET remarks = {remark}, checks = d.checks - (q.answer = 'NOBODY')::int,
           check_at = CASE q.answer WHEN 'NOBODY' THEN clock_timestamp() ELSE d.check_at END
      FROM q WHERE d.txid = q.txid AND q.answer IN ('UNKNOWN', 'NOBODY'))
INSERT INTO {s}.tally (pgroup, answer, n)
SELECT pgroup, answer, count(*) FROM q GROUP BY 1, 2 ORDER BY 1, 2
    ON CONFLICT (pgroup, answer) DO UPDATE SET n = tally.n + excluded.n"""

# A decided question that its member took up is left to the member: it removes it soon, in an order of its own, and the
# two would deadlock. So would a member that answers just when its time is over.
COLLECT = """
WITH o AS MATERIALIZED (
    SELECT q.txid, (SELECT o.txid FROM {s}.op o WHERE o.txid = q.txid) IS NOT NULL AS decided FROM {s}.question q
     WHERE q.until <= clock_timestamp()
        OR (q.until IS NULL AND q.asked + {turns} * q.patience <= clock_timestamp())
        OR NOT EXISTS (SELECT FROM {s}.lease l WHERE l.kind = 'checker:' || q.pgroup AND l.name = q.member
              AND l.until > clock_timestamp())
        OR (q.until IS NULL AND (SELECT o.txid FROM {s}.op o WHERE o.txid = q.txid) IS NOT NULL)
       FOR UPDATE SKIP LOCKED),
 gone AS (
    DELETE FROM {s}.question q USING o WHERE q.txid = o.txid
    RETURNING q.txid, q.pgroup, q.member, q.until IS NOT NULL AS late, o.decided),
 told AS (
    UPDATE {s}.doubt d SET remarks = {remark}, checks = d.checks - (NOT g.late)::int,
           check_at = CASE WHEN g.late THEN d.check_at ELSE clock_timestamp() END
      FROM gone g WHERE d.txid = g.txid AND d.txid = ANY (ARRAY(SELECT txid FROM gone))),
 t AS (
    INSERT INTO {s}.tally (pgroup, answer, n)
    SELECT pgroup, CASE WHEN late THEN 'UNKNOWN' ELSE 'NOBODY' END, count(*) FROM gone
     WHERE NOT decided GROUP BY 1, 2 ORDER BY 1, 2
        ON CONFLICT (pgroup, answer) DO UPDATE SET n = tally.n + excluded.n)
SELECT count(*) FROM gone"""

CALL_TAKE = "SELECT * FROM {s}.take(%(member)s::text, %(limit)s::int4)"
CALL_ANSWERED = "SELECT {s}.answered(%(member)s::text, %(txids)s::int8[], %(answers)s::text[], %(whys)s::text[])"
MINE = " AND ({s}.mine({pgroup}) OR {theirs})"
# A reported decision that was not written stays on the list: otherwise it would never be checked again.
DECIDED = " AND (SELECT o.txid FROM {s}.op o WHERE o.txid = q.txid) IS NOT NULL"


def taking(s: str, theirs: str) -> str:
    """Return the statement that takes up a login's own questions; the SQL condition `theirs` may add other groups'."""
    mine = MINE.format(s=s, pgroup="pgroup", theirs=theirs)
    return numbered(TAKE.replace("{mine}", mine).format(s=s), ("member", "limit"))


def answering(s: str, theirs: str) -> str:
    """Return the statement that removes a login's own questions; the SQL condition `theirs` may add other groups'."""
    sql = _answered(MINE.format(s=s, pgroup="question.pgroup", theirs=theirs), DECIDED).format(s=s)
    return numbered(sql, ("member", "txids", "answers", "whys"))


def _answered(mine: str, decided: str) -> str:
    remark = with_remark("d", "%(member)s::text, q.answer, q.why")
    sql = ANSWERED.replace("{mine}", mine).replace("{decided}", decided).replace("{remark}", remark)
    return sql.replace("{into}", checked.INTO).replace("{kept}", checked.KEPT)


class Questions:
    """The questions of one namespace."""

    def __init__(
        self,
        engine: Engine,
        namespace: str,
        views: Callable[[Sequence[int]], Mapping[int, tuple[HalfView, ...]]],
        *,
        owner: bool,
    ) -> None:
        self._engine, self._schema, self._views = engine, f'"{namespace}"', views
        self._take = TAKE.replace("{mine}", "") if owner else CALL_TAKE
        self._answered = _answered("", "") if owner else CALL_ANSWERED
        self._asked = ASKED.format(
            s="{s}", token=(TOKEN if owner else TOKEN_ASKED).format(s="{s}", group="q.pgroup", txid="q.txid")
        )

    def ask(self, asks: Sequence[Ask], lead: Lead) -> Sequence[int]:
        """Ask questions and count their checks in one durable step; return the transactions that are asked about.

        None of them where the lead was lost; not one that is decided or has an open question.
        """
        columns: dict[str, object] = {
            "txids": [each.txid for each in asks],
            "groups": [each.group for each in asks],
            "members": [each.member for each in asks],
            "intervals": [each.interval.total_seconds() for each in asks],
            "patience": [each.patience.total_seconds() for each in asks],
        }
        return [txid for (txid,) in self._run(ASK, columns | lead._asdict())]

    def backlog(self) -> Mapping[str, int]:
        """Return how many questions each member has."""
        return dict(map(tuple, self._run("SELECT member, count(*) FROM {s}.question GROUP BY member", {})))

    def take(self, member: str, limit: int) -> Sequence[OpenQuestion]:
        """Take up a member's questions; from now on its time to answer runs."""
        txids = [txid for (txid,) in self._run(self._take, {"member": member, "limit": limit})]
        if not txids:
            return []
        views = self._views(txids)
        rows = self._run(self._asked, {"txids": txids})
        return [OpenQuestion(Doubt(*row[:-2]), row[-2], views.get(row[0], ()), row[-1]) for row in rows]

    def answered(self, member: str, answers: Sequence[QuestionAnswer]) -> None:
        """Remove questions: decided transactions leave the list of doubts, UNKNOWN leaves a remark.

        An answer without a state does not count, and the next check is due at once.
        """
        columns = {
            "txids": [each.txid for each in answers],
            "answers": ["NOBODY" if each.state is None else str(each.state) for each in answers],
            "whys": [kept(each.why) for each in answers],
        }
        with by_index(self._engine) as connection:
            connection.exec_driver_sql(self._answered.format(s=self._schema), columns | {"member": member})

    def collect(self) -> int:
        """Remove unanswered questions, with a remark; one that was not taken up does not count.

        A question waits twenty times its patience to be taken up, and once to be answered. One about a decided
        transaction goes at once if it was not taken up; otherwise its member removes it.
        """
        why = "CASE WHEN g.late THEN 'no answer in time' ELSE 'its member left or did not take it up' END"
        remark = with_remark("d", f"g.member, CASE WHEN g.late THEN 'UNKNOWN' ELSE 'NOBODY' END, {why}")
        ((count,),) = self._run(COLLECT.replace("{remark}", remark).replace("{turns}", str(TURNS)), {})
        return int(count)

    def _run(self, sql: str, parameters: Mapping[str, object]) -> Sequence[Any]:
        with by_index(self._engine) as connection:
            return connection.exec_driver_sql(sql.format(s=self._schema), dict(parameters)).all()
