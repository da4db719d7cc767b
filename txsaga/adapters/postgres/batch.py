"""
One batch of the hot path as calls of a line, and its answers, whatever happens to the connection.

A batch is one transaction: its stores and its decisions are all there or none is. When its answer was lost
it is looked up by its numbers before anything is sent again: the old backend is ended first, so that it
can't store the batch after we looked (R14). If that look were left out, a caller would retry a message that
lies there already, and an orphan half would wait for a decision for ever.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from txsaga.adapters.postgres.hot import Form, Hot
from txsaga.adapters.postgres.line import ConnectionLost, Line
from txsaga.adapters.postgres.values import Value, bools, byteas, int4, int4s, int4s_or_null, int8, int8s
from txsaga.adapters.postgres.wire import Call, Rows
from txsaga.engine.patience import PATIENCE, patiently
from txsaga.errors import InvalidMessage, OutcomeUnknown, TxSagaError
from txsaga.model.immunity import MIN_AGE
from txsaga.model.records import End, Half, Row

RESENDS = 3
"""A batch that breaks each connection it is sent on would be sent for ever."""


class Store(NamedTuple):
    """A call that stores halves, and the number that finds them again."""

    call: Call
    number: Value


class Batch:
    """What one transaction writes."""

    def __init__(self, hot: Hot, halves: Sequence[Half], ends: Sequence[End]) -> None:
        self._hot, self.ends = hot, ends
        self.held = [half for half in halves if not half.plain]
        self.plain = [half for half in halves if half.plain]
        kinds = ((hot.prepare, self.held), (hot.publish, self.plain))
        self._stores = [_store(form, stored) for form, stored in kinds if stored]
        self._decides = [Call(hot.decide.of(len(ends)), _end_values(ends))] if ends else []

    def answered(self, line: Line, low: int) -> tuple[Rows, Rows, Rows]:
        """Run the batch until its answer is known: rows of held halves, of plain ones, of decisions."""
        calls = [*(store.call for store in self._stores), *self._decides]
        if line.hung_up():
            line.close()
            patiently(line.connection, PATIENCE)  # nothing was sent: whatever this raises is a clear no
        try:
            return self._by_kind(line.exchange(calls) if calls else [])
        except ConnectionLost:
            pass
        try:
            return self._by_kind(self._again(line, low, calls))
        except (TxSagaError, ConnectionLost) as reason:
            # Whatever went wrong behind the first loss, it says nothing about the first try.
            raise OutcomeUnknown(f"whether this batch was written is not known: {reason}") from reason

    def _again(self, line: Line, low: int, calls: Sequence[Call]) -> Sequence[Rows]:
        for _ in range(RESENDS):
            patiently(line.connection, PATIENCE)
            try:
                return self._found(line, low) or line.exchange(calls)
            except ConnectionLost as lost:
                reason = lost
        raise reason

    def _found(self, line: Line, low: int) -> list[Rows] | None:
        """Look whether the batch was stored; then its decisions are asked for alone."""
        if not self._stores:
            return None
        lookups = [Call(self._hot.batch, [int8(low), store.number]) for store in self._stores]
        stored: list[Rows] = [*line.exchange(lookups)]
        if not any(stored):
            return None
        return stored + (line.exchange(self._decides) if self._decides else [])

    def _by_kind(self, answers: Sequence[Rows]) -> tuple[Rows, Rows, Rows]:
        found = iter(answers)
        kinds = (self.held, self.plain, self.ends)
        held, plain, decided = (next(found) if asked else () for asked in kinds)
        return held, plain, decided


def standing(hot: Hot, ends: Sequence[End]) -> Call:
    """Ask what stands for ends that got no row of their own, or what is wrong with them."""
    return Call(hot.standing.of(len(ends)), _named(ends))


def _store(form: Form, halves: Sequence[Half]) -> Store:
    number = int8(random.getrandbits(63))  # tells batches apart, guards nothing
    rows = [(at == 0, half, row) for half in halves for at, row in enumerate(half.rows)]
    if not all(half.rows for half in halves):
        raise InvalidMessage("a transaction without messages can't be stored; send at least one")
    return Store(Call(form.of(len(rows)), [number, *_half_values(rows)]), number)


def _half_values(rows: Sequence[tuple[bool, Half, Row]]) -> list[Value | None]:
    return [
        bools([first for first, _, _ in rows]),
        int4s([half.group for _, half, _ in rows]),
        int4s([row.qid for _, _, row in rows]),
        int4s([row.chunk for _, _, row in rows]),
        int4s([row.count for _, _, row in rows]),
        int4s_or_null([half.evidence for _, half, _ in rows]),
        int4s_or_null([half.immunity for _, half, _ in rows]),
        byteas([row.body for _, _, row in rows]),
    ]


def _end_values(ends: Sequence[End]) -> list[Value]:
    decisions = int4s([end.decision for end in ends])
    return [*_named(ends), decisions, bools([end.from_check for end in ends]), int4(MIN_AGE)]


def _named(ends: Sequence[End]) -> list[Value]:
    return [
        int8s([end.txid for end in ends]),
        int4s([end.group for end in ends]),
        byteas([end.token for end in ends]),
    ]
