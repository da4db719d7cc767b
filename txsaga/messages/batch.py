"""
One batch of the hot path: its calls on a connection, and its answers, whatever happens to the connection.

A batch is one transaction: all its stores and decisions are committed, or none. If its answer was lost, it is looked up
by its numbers before anything is sent again: the old backend is ended first, so that it can't store the batch after the
lookup (R14). Without the lookup, a caller would retry a message that is already stored, and an orphan half would wait
for a decision for ever.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from enum import IntEnum, auto
from itertools import chain
from typing import NamedTuple

import psycopg

from txsaga.checkback.profile import MIN_AGE
from txsaga.core.records import Due, End, Half, Row
from txsaga.core.retry import PATIENCE, patiently
from txsaga.errors import InvalidMessage, OutcomeUnknown, StoreError, TxSagaError
from txsaga.messages.hot_statements import Hot, StatementForm
from txsaga.store.pipeline import ConnectionLost, PipelineConnection
from txsaga.store.values import (
    Value,
    bools,
    byteas,
    float8s_or_null,
    int4,
    int4_array,
    int4_or_null,
    int4s,
    int4s_or_null,
    int8,
    int8_array,
    int8s,
)
from txsaga.store.wire import Call, Rows

RESENDS = 3
"""Maximum resends: a batch that breaks every connection would be sent for ever."""


class CallKind(IntEnum):
    """What is stored with a half; an integer for speed: it is looked up per half."""

    HELD = auto()  # nothing: it is decided later
    PLAIN = auto()  # its COMMIT
    LATER = auto()  # the time when it is due


def kind_of(half: Half) -> CallKind:
    """Return the kind of a half."""
    if half.plain:
        return CallKind.PLAIN
    return CallKind.HELD if half.due is None else CallKind.LATER


class HotStore(NamedTuple):
    """A call that stores halves of one kind, and the batch number for finding them."""

    call: Call
    number: Value
    kind: CallKind


class HotBatch:
    """What one transaction writes.

    With `own` its ends are written unchecked: the session stored all their halves itself. Otherwise, even if only some
    are others', all are checked together: two batches with the same ends must take their numbers in the same order.
    """

    def __init__(
        self,
        hot: Hot,
        halves: Sequence[Half],
        ends: Sequence[End],
        own: StatementForm | None = None,
        lone: str | None = None,
    ) -> None:
        self._hot, self._ends, self.own, self._lone = hot, ends, own, lone
        self._alone = len(halves) + len(ends) == 1
        self.stored: dict[CallKind, list[Half]] = {}
        for half in halves:
            self.stored.setdefault(kind_of(half), []).append(half)
        self._stores = [_store(hot, kind, stored) for kind, stored in self.stored.items()]

    def answered(self, line: PipelineConnection, low: int, here: Sequence[Value]) -> tuple[dict[CallKind, Rows], Rows]:
        """Run the batch until its answer is known; return the rows of each kind of half, and of the decisions."""
        try:
            return self._by_kind(self._first(line, here))
        except ConnectionLost:
            pass
        try:
            return self._by_kind(self._again(line, low))
        except (TxSagaError, ConnectionLost) as reason:
            # An error after the first loss shows nothing about the first try.
            raise OutcomeUnknown(f"whether this batch was written is not known: {reason}") from reason

    def _first(self, line: PipelineConnection, here: Sequence[Value]) -> Sequence[Rows]:
        stores, alike = [store.call for store in self._stores], self._hot.prepare_alike
        if self._lone is not None and alike is not None and stores[0].sql == alike.one:
            stored = line.exchange([Call(self._lone, [*stores[0].values, *here])], alone=self._alone)
            if stored[0]:  # empty if the store rejects, or is another one: the full statement finds out which
                return stored
        if not self._ends:
            return line.exchange(stores)
        if self.own is not None:
            try:
                *stored, ((written,),) = line.exchange(
                    [*stores, _own_call(self.own, self._ends, here)], alone=self._alone
                )
                if written == len(self._ends):
                    return [*stored, [(end.txid,) for end in self._ends]]
                self.own = None  # a user's trigger skipped some: ask for the outcome of each
                return [*stored, []]
            except StoreError as refused:
                if not isinstance(refused.__cause__, psycopg.IntegrityError):
                    raise
                self.own = None  # another process decided one of them: nothing was written
        return line.exchange([*stores, *self._decides()])

    def _again(self, line: PipelineConnection, low: int) -> Sequence[Rows]:
        stores, decides = [store.call for store in self._stores], self._decides()
        for _ in range(RESENDS):
            patiently(line.connection, min(line.patience, PATIENCE))
            try:
                return self._found(line, low, decides) or line.exchange([*stores, *decides])
            except ConnectionLost as lost:
                reason = lost
        raise reason

    def _found(self, line: PipelineConnection, low: int, decides: Sequence[Call]) -> list[Rows] | None:
        """If the batch was stored, run only its decisions and return all rows; None if it was not."""
        if not self._stores:
            return None
        lookups = [Call(self._hot.batch, [int8(low), store.number]) for store in self._stores]
        stored: list[Rows] = [*line.exchange(lookups)]
        if not any(stored):
            return None
        return stored + (line.exchange(decides) if decides else [])

    def _decides(self) -> list[Call]:
        """Return the calls that check the halves and decide them."""
        recalls = [end for end in self._ends if end.recalls]
        decides = [end for end in self._ends if not end.recalls] if recalls else self._ends
        kinds = ((self._hot.decide, decides), (self._hot.recall, recalls))
        return [Call(form.of(len(some)), _end_values(some)) for form, some in kinds if some]

    def _by_kind(self, answers: Sequence[Rows]) -> tuple[dict[CallKind, Rows], Rows]:
        stored = dict(zip(self.stored, answers, strict=False))
        return stored, list(chain.from_iterable(answers[len(stored) :]))


def standing(hot: Hot, ends: Sequence[End]) -> Call:
    """Return the call that asks for the final decision, or the fault, of ends that got no row."""
    return Call(hot.standing.of(len(ends)), _named(ends))


def _store(hot: Hot, kind: CallKind, halves: Sequence[Half]) -> HotStore:
    number = int8(random.getrandbits(63))  # distinguishes batches, not a secret
    alike = hot.prepare_alike if kind is CallKind.HELD else hot.publish_alike if kind is CallKind.PLAIN else None
    if alike is not None and (values := _alike_values(halves)):
        return HotStore(Call(alike.of(len(halves)), [number, *values]), number, kind)
    rows = [(at == 0, half, row) for half in halves for at, row in enumerate(half.rows)]
    if not all(half.rows for half in halves):
        raise InvalidMessage("a transaction without messages can't be stored; send at least one")
    form = {CallKind.HELD: hot.prepare, CallKind.PLAIN: hot.publish, CallKind.LATER: hot.schedule}[kind]
    times = _times(rows) if kind is CallKind.LATER else []
    return HotStore(Call(form.of(len(rows)), [number, *_half_values(rows), *times]), number, kind)


def _alike_values(halves: Sequence[Half]) -> list[Value | None]:
    """Lay out single-message halves that differ only in queue and body; return [] if they differ in more."""
    group, _, evidence, immunity = halves[0][:4]
    qids, bodies = [], []
    for half in halves:
        rows = half.rows
        if len(rows) != 1 or (half.group, half.evidence, half.immunity) != (group, evidence, immunity):
            return []
        ((qid, chunk, count, body),) = rows
        if chunk or count != 1:
            return []
        qids.append(qid)
        bodies.append(body)
    plain = int4(group), int4_or_null(evidence), int4_or_null(immunity)
    return [*plain, int4s(qids), byteas(bodies)]


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


def _times(rows: Sequence[tuple[bool, Half, Row]]) -> list[Value | None]:
    due = [half.due or Due() for _, half, _ in rows]
    return [
        float8s_or_null([None if each.delay is None else each.delay.total_seconds() for each in due]),
        float8s_or_null([None if each.at is None else each.at.timestamp() for each in due]),
    ]


def _end_values(ends: Sequence[End]) -> list[Value]:
    decisions = int4s([end.decision for end in ends])
    return [*_named(ends), decisions, bools([end.from_check for end in ends]), int4(MIN_AGE)]


def _own_call(form: StatementForm, ends: Sequence[End], here: Sequence[Value]) -> Call:
    if len(ends) == 1:
        ((number, _, _, decision, *_),) = ends
        return Call(form.one, [int8(number), int4(decision), *here])
    numbers, decisions = int8_array([end.txid for end in ends]), int4_array([end.decision for end in ends])
    return Call(form.many, [numbers, decisions, *here])


def _named(ends: Sequence[End]) -> list[Value]:
    return [
        int8s([end.txid for end in ends]),
        int4s([end.group for end in ends]),
        byteas([end.token for end in ends]),
    ]
