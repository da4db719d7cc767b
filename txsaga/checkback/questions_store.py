"""
Questions on PostgreSQL: one row per transaction, counted before it is asked.

A lost question (its member died, the server restarted) is collected by the next round: at worst a check is asked twice,
one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Engine

from txsaga.checkback.doubts_store import with_remark
from txsaga.checkback.questions import TURNS, Ask, Lead, OpenQuestion, QuestionAnswer, kept
from txsaga.core.records import Doubt, HalfView
from txsaga.messages.hot_statements import TOKEN, TOKEN_ASKED
from txsaga.store import sql_files
from txsaga.store.connection import by_index
from txsaga.store.sql_files import numbered

SQL = sql_files.read("checkback/sql/question.sql")

MINE = " AND ({s}.mine({pgroup}) OR {theirs})"
# A reported decision that was not written stays on the list: otherwise it would never be checked again.
DECIDED = " AND (SELECT o.txid FROM {s}.op o WHERE o.txid = q.txid) IS NOT NULL"


def taking(s: str, theirs: str) -> str:
    """Return the statement that takes up a login's own questions; the SQL condition `theirs` may add other groups'."""
    mine = MINE.format(s=s, pgroup="pgroup", theirs=theirs)
    return numbered(SQL["take"].replace("{mine}", mine).format(s=s), ("member", "limit"))


def answering(s: str, theirs: str) -> str:
    """Return the statement that removes a login's own questions; the SQL condition `theirs` may add other groups'."""
    sql = _answered(MINE.format(s=s, pgroup="question.pgroup", theirs=theirs), DECIDED).format(s=s)
    return numbered(sql, ("member", "txids", "answers", "whys"))


def _answered(mine: str, decided: str) -> str:
    remark = with_remark("%(member)s::text, q.answer, q.why")
    return SQL["answered"].replace("{mine}", mine).replace("{decided}", decided).replace("{remark}", remark)


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
        self._take = SQL["take"].replace("{mine}", "") if owner else SQL["call_take"]
        self._answered = _answered("", "") if owner else SQL["call_answered"]
        self._asked = SQL["asked"].format(
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
        return [txid for (txid,) in self._run(SQL["ask"], columns | lead._asdict())]

    def backlog(self) -> Mapping[str, int]:
        """Return how many questions each member has."""
        return dict(map(tuple, self._run(SQL["backlog"], {})))

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
            "answers": ["NO_ANSWER" if each.state is None else str(each.state) for each in answers],
            "whys": [kept(each.why) for each in answers],
        }
        with by_index(self._engine) as connection:
            connection.exec_driver_sql(self._answered.format(s=self._schema), columns | {"member": member})

    def collect(self) -> int:
        """Remove unanswered questions, with a remark; one that was not taken up, for `TURNS` times, does not count."""
        why = "CASE WHEN g.late THEN 'no answer in time' ELSE 'its member left or did not take it up' END"
        remark = with_remark(f"g.member, CASE WHEN g.late THEN 'UNKNOWN' ELSE 'NO_ANSWER' END, {why}")
        ((count,),) = self._run(SQL["collect"].replace("{remark}", remark).replace("{turns}", str(TURNS)), {})
        return int(count)

    def _run(self, sql: str, parameters: Mapping[str, object]) -> Sequence[Any]:
        with by_index(self._engine) as connection:
            return connection.exec_driver_sql(sql.format(s=self._schema), dict(parameters)).all()
