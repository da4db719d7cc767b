"""
The hot path on PostgreSQL: halves, plain messages and decisions, a batch of all three in one commit.

Each batch has exclusive use of a connection. If a batch never runs, its callers got no answer and none of it is stored.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain, groupby, repeat
from typing import Any

from sqlalchemy import Engine

from txsaga import errors
from txsaga.checkback.profile import MIN_AGE
from txsaga.core.decision import Decision
from txsaga.core.identity import HalfId, StoreId
from txsaga.core.records import Content, DecisionOutcome, End, Half, HalfView, HalvesWritten, Receipt
from txsaga.core.retry import PATIENCE, patiently
from txsaga.core.topic import HALF_TOPIC
from txsaga.messages.hot_statements import Hot
from txsaga.store import sql_files
from txsaga.store.connection import by_index, transaction
from txsaga.store.pipeline import ConnectionLost, ConnectionPool, PipelineConnection, Rows
from txsaga.store.statement import PreparedStatement


def _lost(
    end: End, decision: int | None, group: int | None, keyed: bool | None, genuine: bool
) -> DecisionOutcome | errors.TxSagaError:
    reason = None
    if group is None:
        reason = f"half not found: transaction {end.txid} is not in this store"
    elif group != end.group:
        reason = f"producer group wrong: transaction {end.txid} belongs to another group"
    elif keyed:
        reason = f"transaction {end.txid} is keyed; its own transaction decides it"
    if reason is not None:
        return errors.EndRefused("SYSTEM_ERROR", reason)
    if not genuine:
        return errors.UnknownTransaction(f"the token is not that of transaction {end.txid}; nothing was changed")
    if decision is None:
        reason = "the message's own immunity has passed; the check decides"
        return errors.EndRefused("ILLEGAL_OPERATION", f"transaction {end.txid}: {reason}")
    return DecisionOutcome(end.txid, Decision(decision), False)


RESENDS = 3
"""Maximum resends: a batch that breaks every connection would be sent for ever."""


class HalfBatch:
    """What one transaction writes: all its halves and decisions are committed, or none.

    If its answer was lost, it is looked up by its numbers before anything is sent again: the old backend is ended
    first, so that it can't store the batch after the lookup (R14). Without the lookup, a caller would retry a message
    that is already stored, and an orphan half would wait for a decision for ever.
    """

    def __init__(self, hot: Hot, halves: Sequence[Half], ends: Sequence[End]) -> None:
        by_statement: dict[str, list[int]] = {}
        for at, half in enumerate(halves):
            by_statement.setdefault(_statement_for(half), []).append(at)
        self.places = list(by_statement.values())  # of halves that one statement stores
        self._find, self._numbers = hot.batch, [random.getrandbits(63) for _ in by_statement]  # no secrets
        self._stores = [
            hot.writers[name].call(_rows([halves[at] for at in places]), before=(number,))
            for number, (name, places) in zip(self._numbers, by_statement.items(), strict=True)
        ]
        kinds = (("decide", [end for end in ends if not end.recalls]), ("recall", [end for end in ends if end.recalls]))
        self._decides = [
            hot.writers[name].call([end[:5] for end in some], after=(MIN_AGE,)) for name, some in kinds if some
        ]

    def answered(self, line: PipelineConnection, low: int) -> tuple[Sequence[Rows], Rows]:
        """Run the batch until its answer is known; return the rows of each list of halves, and of the decisions."""
        try:
            rows = line.exchange([*self._stores, *self._decides])
        except ConnectionLost:
            try:
                rows = self._again(line, low)
            except (errors.TxSagaError, ConnectionLost) as reason:
                # An error after the first loss shows nothing about the first try.
                raise errors.OutcomeUnknown(f"it is unknown whether this batch was written: {reason}") from reason
        return rows[: len(self._stores)], list(chain.from_iterable(rows[len(self._stores) :]))

    def _again(self, line: PipelineConnection, low: int) -> list[Rows]:
        for _ in range(RESENDS):
            patiently(line.connection, min(line.patience, PATIENCE))
            try:
                return self._found(line, low) or line.exchange([*self._stores, *self._decides])
            except ConnectionLost as lost:
                reason = lost
        raise reason

    def _found(self, line: PipelineConnection, low: int) -> list[Rows] | None:
        """If the batch was stored, run only its decisions and return all rows; None if it was not."""
        stored = line.exchange([self._find.call(low, number) for number in self._numbers])
        return stored + line.exchange(self._decides) if any(stored) else None


def _statement_for(half: Half) -> str:
    if half.plain:
        return "publish"
    return "prepare" if half.due is None else "schedule"


def _rows(halves: Sequence[Half]) -> list[tuple[object, ...]]:
    if not all(half.rows for half in halves):
        raise errors.InvalidMessage("a transaction without messages can't be stored; send at least one")
    return [
        (at == 0, half.group, row.qid, row.chunk, row.count, half.evidence, half.immunity, row.body, *times)
        for half in halves
        for times in [() if half.due is None else _times(*half.due)]
        for at, row in enumerate(half.rows)
    ]


def _times(delay: timedelta | None, at: datetime | None) -> tuple[float | None, float | None]:
    return (None if delay is None else delay.total_seconds(), None if at is None else at.timestamp())


class HalfStore:
    """Stores and decides many transactions in one durable step.

    If a batch raises, nothing was stored; the store has verified that by reading back.
    """

    def __init__(self, engine: Engine, hot: Hot, identity: StoreId, patience: float = PATIENCE) -> None:
        self._engine, self._hot, self._identity = engine, hot, identity
        self._lines = ConnectionPool(engine, patience)
        self._newest = 0  # a number that is assigned: those of a later batch are higher

    def write(self, halves: Sequence[Half], ends: Sequence[End]) -> HalvesWritten:
        """Store halves in the given order, plain ones together with their COMMIT, and write decisions.

        A half with `due` goes on the schedule, undecided; a ROLLBACK that `recalls` removes it.

        A half is durable and invisible when this returns. The first durable decision is final. Refused (an error in
        its position, nothing changed): an end of a half that does not exist or that belongs to another group or a
        keyed transaction, a wrong token, an ordinary end after the message's own immunity.
        """
        # The first of each number, in the order of numbers: two batches with the same ends wait, but never deadlock.
        wanted = sorted({end.txid: end for end in reversed(ends)}.values())
        batch = HalfBatch(self._hot, halves, wanted)
        with self._lines.taken() as line:
            line.reopen()
            if halves and not self._newest:
                ((self._newest,),) = line.ask(self._hot.newest.call())
            stored, decided = batch.answered(line, self._newest)
            # The batch is written: from here on an error is the answer to one item, never to the whole batch.
            standings = self._standings(line, wanted, decided) if ends else {}
        receipts = self._receipts(halves, batch, stored) if halves else []
        if len(wanted) == len(ends):
            return HalvesWritten(receipts, [standings[end.txid] for end in ends])
        return HalvesWritten(receipts, self._repeated(ends, standings))

    def _receipts(
        self, halves: Sequence[Half], batch: HalfBatch, stored: Sequence[Rows]
    ) -> Sequence[Receipt | errors.TxSagaError]:
        answers: dict[int, Receipt | errors.TxSagaError] = {}
        for places, rows in zip(batch.places, stored, strict=True):
            tokens: dict[int, bytes] = dict(rows)
            numbers = sorted(tokens)
            if len(numbers) == len(places):
                self._newest = max(self._newest, numbers[-1])
                for at, txid in zip(places, numbers, strict=True):
                    answers[at] = Receipt(txid, halves[at].group, tokens[txid])
            elif numbers:
                wrong = f"{len(places)} transactions were stored as {len(numbers)}; the schema is damaged"
                answers |= {at: errors.StoreError(wrong) for at in places}
            else:
                answers |= {at: errors.TransactionsRejected(str(self._identity)) for at in places}
        return [answers[at] for at in range(len(halves))]

    def _standings(
        self, line: PipelineConnection, ends: Sequence[End], decided: Rows
    ) -> dict[int, DecisionOutcome | errors.TxSagaError]:
        won = set(chain.from_iterable(decided))
        answers: dict[int, DecisionOutcome | errors.TxSagaError] = {
            end.txid: DecisionOutcome(end.txid, end.decision, True) for end in ends if end.txid in won
        }
        lost = [end for end in ends if end.txid not in won]
        if not lost:
            return answers
        try:
            rows = line.ask(self._hot.standing.call([(end.txid, end.group, end.token) for end in lost]))
        except errors.TxSagaError as reason:
            silent = errors.StoreUnavailable(f"the decision is unknown: {reason}; retrying is safe")
            return answers | {end.txid: silent for end in lost}
        stands = {row[0]: row[1:] for row in rows}
        return answers | {end.txid: _lost(end, *stands[end.txid]) for end in lost}

    def _repeated(
        self, ends: Sequence[End], standings: dict[int, DecisionOutcome | errors.TxSagaError]
    ) -> Sequence[DecisionOutcome | errors.TxSagaError]:
        """Run the later ends of a number once its first one is decided."""
        told = [standings.pop(end.txid, None) for end in ends]
        later = [end for end, answer in zip(ends, told, strict=True) if answer is None]
        answers: Iterator[DecisionOutcome | errors.TxSagaError]
        try:
            answers = iter(self.write((), later).standings)
        except errors.TxSagaError as reason:
            answers = repeat(reason)
        return [next(answers) if answer is None else answer for answer in told]

    def views(self, txid: int) -> Sequence[HalfView]:
        """Return the stored halves of a transaction; none for an unknown one."""
        return list(self.views_of([txid]).get(txid, ()))

    def views_of(self, txids: Sequence[int]) -> Mapping[int, tuple[HalfView, ...]]:
        """Return the stored halves of several transactions."""
        with by_index(self._engine) as connection:
            rows = connection.exec_driver_sql(self._hot.views, {"txids": list(txids)}).all()
        return {txid: tuple(map(self._view, lying)) for txid, lying in groupby(rows, lambda row: row.txid)}

    def contents(self, txid: int) -> Sequence[Content]:
        """Return what a transaction would deliver: its halves; for a keyed one, those of the attempts that count."""
        with transaction(self._engine) as connection:
            rows = connection.exec_driver_sql(self._hot.contents, {"txid": txid})
            return [Content(topic, bytes(body)) for topic, body in rows]

    def close(self) -> None:
        """Close the idle connections; those in use are closed when they are returned."""
        self._lines.close()

    def _view(self, row: Any) -> HalfView:
        counts = not row.keyed or row.winner == row.attempt  # halves of a superseded attempt never count
        committed = row.decision == Decision.COMMIT and counts
        half = HalfId(self._identity, row.txid, row.part, row.attempt, row.qid, row.chunk, 0)
        return HalfView(
            id=half.encode(),
            topic=row.name if committed else HALF_TOPIC,
            queue=row.idx if committed else 0,
            real_topic=row.name,
            real_queue=row.idx,
            group=row.group_name,
            prepared=row.decision is None,
            flag="NOT" if row.decision is None else "COMMIT" if committed else "ROLLBACK",
            count=row.n,
            born=row.born,
        )


SCHEDULE = sql_files.read("messages/sql/schedule.sql")


class Schedule:
    """The schedule of delayed messages: those that are due get their COMMIT and leave it, in one transaction.

    A tick assigns offsets by (commit, number), so for each queue one round takes only messages whose numbers ascend in
    due order; one with a lower number that is due later gets a later commit. One round runs at a time: the statement
    takes a lock. If no process runs it, messages wait and nothing is lost.
    """

    def __init__(self, engine: Engine, namespace: str) -> None:
        self._line = PipelineConnection(engine)
        self._commit_due = PreparedStatement.of(SCHEDULE["commit_due"].format(s=f'"{namespace}"'), ("int4",))

    def commit_due(self, limit: int) -> int:
        """Commit up to `limit` due messages; return how many left the schedule.

        Later ticks assign their offsets, in each queue in due order, whatever order they were sent in. The first
        decision is final: an already decided message only leaves the schedule. Return 0 if nothing is due, or if
        another process is doing it.
        """
        with self._line.lock:
            try:
                (((count,),),) = self._line.exchange([self._commit_due.call(limit)])
            except ConnectionLost as lost:
                raise errors.StoreUnavailable(
                    f"the home database became unavailable in a round of the scheduler: {lost}"
                ) from lost
        return int(count)

    def close(self) -> None:
        """Close the connection."""
        self._line.close()
