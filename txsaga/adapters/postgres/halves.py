"""
The hot path on PostgreSQL: one durable statement per batch.

A batch whose answer was lost is looked up by its number before anything is sent again: the old backend is
ended first, so that it can't store the batch after we looked (R14). If that look were left out, a caller
would retry a message that lies there already, and an orphan half would wait for a decision for ever.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Engine, select

from txsaga.adapters.postgres import schema
from txsaga.adapters.postgres.arrays import bools, byteas, int4s, int4s_or_null, int8s
from txsaga.adapters.postgres.connection import ConnectionLost, Line, reconnected, transaction
from txsaga.adapters.postgres.hot import Hot
from txsaga.errors import (
    EndRefused,
    InvalidMessage,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
    TransactionsRejected,
    TxSagaError,
    UnknownTransaction,
)
from txsaga.model.decision import Decision
from txsaga.model.identity import HalfId, StoreId
from txsaga.model.immunity import MIN_AGE
from txsaga.model.records import End, Half, HalfView, Receipt, Standing
from txsaga.model.topic import HALF_TOPIC

PATIENCE = 30.0


class PostgresHalves:
    """Batches of halves, plain messages and decisions."""

    def __init__(self, engine: Engine, hot: Hot, identity: StoreId) -> None:
        self._engine, self._hot, self._identity = engine, hot, identity
        self._stores = {hot.prepare: Line(engine), hot.publish: Line(engine)}
        self._decides = Line(engine)
        self._low: int | None = None

    def prepare(self, halves: Sequence[Half]) -> Sequence[Receipt | TxSagaError]:
        """Store halves."""
        receipts = self._store(self._hot.prepare, halves)
        return receipts or [TransactionsRejected(str(self._identity)) for _ in halves]

    def publish(self, halves: Sequence[Half]) -> Sequence[Receipt | TxSagaError]:
        """Store plain messages with their COMMIT."""
        return self._store(self._hot.publish, halves)

    def decide(self, ends: Sequence[End]) -> Sequence[Standing | TxSagaError]:
        """Write decisions; the first durable one stands."""
        first: dict[int, End] = {}
        repeats = [end for end in ends if first.setdefault(end.txid, end) is not end]
        answers = self._decide_each_once(sorted(first.values()))
        if not repeats:
            return [answers[end.txid] for end in ends]
        later = iter(self.decide(repeats))
        return [answers[end.txid] if first[end.txid] is end else next(later) for end in ends]

    def views(self, txid: int) -> Sequence[HalfView]:
        """Show the halves of a transaction as they lie."""
        h, q, t, o, g = schema.half, schema.queue, schema.topic, schema.op, schema.producer_group
        p = schema.part
        query = (
            select(h, q.c.idx, t.c.name, g.c.name.label("group_name"), o.c.decision, p.c.attempt.label("winner"))
            .join_from(h, q, q.c.qid == h.c.qid)
            .join(t, t.c.id == q.c.topic)
            .join(g, g.c.id == h.c.pgroup)
            .outerjoin(o, o.c.txid == h.c.txid)
            .outerjoin(p, (p.c.txid == h.c.txid) & (p.c.part == h.c.part))
            .where(h.c.txid == txid)
            .order_by(h.c.part, h.c.attempt, h.c.qid, h.c.chunk)
        )
        with transaction(self._engine) as connection:
            return [self._view(row) for row in connection.execute(query)]

    def close(self) -> None:
        """Close the lines."""
        for line in (*self._stores.values(), self._decides):
            line.close()

    def _store(self, sql: str, halves: Sequence[Half]) -> list[Receipt | TxSagaError]:
        line = self._stores[sql]
        batch = random.getrandbits(63)  # tells batches apart, guards nothing
        parameters = _half_parameters(batch, halves)
        with line.lock:
            rows = self._stored(line, sql, parameters)
        receipts: dict[int, Receipt | TxSagaError] = {row[0]: Receipt(*row) for row in rows}
        if receipts and len(receipts) != len(halves):
            raise StoreError(f"{len(halves)} transactions were stored as {len(receipts)}; the schema is damaged")
        self._low = max(self._low or 0, *receipts) if receipts else self._low
        return [receipts[txid] for txid in sorted(receipts)]

    def _stored(self, line: Line, sql: str, parameters: dict[str, Any]) -> list[Any]:
        if self._low is None:  # below it nothing of ours is looked for after a lost answer
            self._low = int(_until_answered(line, self._hot.newest, {})[0][0])
        lookup = {"low": self._low, "batch": parameters["batch"]}
        try:
            return line.execute(sql, parameters)
        except ConnectionLost:
            pass
        while True:
            try:
                reconnected(line, PATIENCE)
            except StoreUnavailable as gone:
                raise OutcomeUnknown(f"whether this batch was stored is not known: {gone}") from gone
            try:
                return line.execute(self._hot.batch, lookup) or line.execute(sql, parameters)
            except ConnectionLost:
                continue

    def _certainly(self, line: Line, sql: str, parameters: dict[str, Any]) -> list[Any]:
        with line.lock:
            return _until_answered(line, sql, parameters)

    def _decide_each_once(self, ends: Sequence[End]) -> dict[int, Standing | TxSagaError]:
        won = {txid for (txid,) in self._certainly(self._decides, self._hot.decide, _end_parameters(ends))}
        answers: dict[int, Standing | TxSagaError] = {
            end.txid: Standing(end.txid, end.decision, True) for end in ends if end.txid in won
        }
        lost = [end for end in ends if end.txid not in won]
        if lost:
            answers.update(self._standing(lost))
        return answers

    def _standing(self, ends: Sequence[End]) -> dict[int, Standing | TxSagaError]:
        parameters = {
            "txid": int8s([end.txid for end in ends]),
            "pgroup": int4s([end.group for end in ends]),
            "token": byteas([end.token for end in ends]),
        }
        rows = {row[0]: row for row in self._certainly(self._decides, self._hot.standing, parameters)}
        return {end.txid: _lost(end, *rows[end.txid][1:]) for end in ends}

    def _view(self, row: Any) -> HalfView:
        counts = not row.keyed or row.winner == row.attempt  # what a superseded attempt left never does
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


def _until_answered(line: Line, sql: str, parameters: dict[str, Any]) -> list[Any]:
    """Run an idempotent statement until it was answered."""
    while True:
        try:
            return line.execute(sql, parameters)
        except ConnectionLost:
            reconnected(line, PATIENCE)


def _lost(
    end: End, decision: int | None, group: int | None, keyed: bool | None, genuine: bool
) -> Standing | TxSagaError:
    refusal = _refusal(end, group, keyed, genuine)
    if refusal is not None:
        return refusal
    if decision is None:
        reason = "the message's own immunity has passed; the check decides"
        return EndRefused("ILLEGAL_OPERATION", f"transaction {end.txid}: {reason}")
    return Standing(end.txid, Decision(decision), False)


def _refusal(end: End, group: int | None, keyed: bool | None, genuine: bool) -> TxSagaError | None:
    reason = None
    if group is None:
        reason = f"half not found: transaction {end.txid} is not in this store"
    elif group != end.group:
        reason = f"producer group wrong: transaction {end.txid} belongs to another group"
    elif keyed:
        reason = f"transaction {end.txid} is keyed; its own transaction decides it"
    if reason is not None:
        return EndRefused("SYSTEM_ERROR", reason)
    if not genuine:
        return UnknownTransaction(f"the token is not that of transaction {end.txid}; nothing was changed")
    return None


def _half_parameters(batch: int, halves: Sequence[Half]) -> dict[str, Any]:
    if not all(half.rows for half in halves):
        raise InvalidMessage("a transaction without messages can't be stored; send at least one")
    rows = [(at == 0, half, row) for half in halves for at, row in enumerate(half.rows)]
    return {
        "batch": batch,
        "first": bools([first for first, _, _ in rows]),
        "pgroup": int4s([half.group for _, half, _ in rows]),
        "qid": int4s([row.qid for _, _, row in rows]),
        "chunk": int4s([row.chunk for _, _, row in rows]),
        "n": int4s([row.count for _, _, row in rows]),
        "evidence": int4s_or_null([half.evidence for _, half, _ in rows]),
        "immunity": int4s_or_null([half.immunity for _, half, _ in rows]),
        "body": byteas([row.body for _, _, row in rows]),
    }


def _end_parameters(ends: Sequence[End]) -> dict[str, Any]:
    return {
        "txid": int8s([end.txid for end in ends]),
        "pgroup": int4s([end.group for end in ends]),
        "token": byteas([end.token for end in ends]),
        "decision": int4s([end.decision for end in ends]),
        "check": bools([end.from_check for end in ends]),
        "min_age": MIN_AGE,
    }
