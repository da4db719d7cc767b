"""
Branches on PostgreSQL: begin, the owner's word and what became of branches, of many transactions in one commit.

Each call may be made again after a lost answer: a transaction that was begun twice is empty the first time and rolled
back by whoever finds it, and the first decision stands. If the answer were taken for a no, a caller would roll back
branches that recovery commits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Engine, text

from txsaga.adapters.postgres import branch_statements as sql
from txsaga.adapters.postgres.connection import transaction, translating
from txsaga.adapters.postgres.hot import TOKEN, called, written
from txsaga.adapters.postgres.line import ConnectionLost, Lines
from txsaga.adapters.postgres.values import Value, bytea_array, int4_array, int8_array, text_array
from txsaga.adapters.postgres.wire import Call as Statement
from txsaga.adapters.postgres.wire import Rows
from txsaga.engine.patience import PATIENCE, patiently
from txsaga.errors import (
    EffectConflict,
    OutcomeUnknown,
    Superseded,
    TransactionsRejected,
    TxSagaError,
    UnknownTransaction,
)
from txsaga.model.asking import kept
from txsaga.model.branch import BRANCH, Branch, BranchState
from txsaga.model.decision import Decision
from txsaga.model.lifecycle import TxState
from txsaga.model.records import Life
from txsaga.ports.branches import NONE, VOTED, Answer, Begin, Call, Guest, Noted, Resolve

RESENDS = 3
STATES = {event: state for (_, event), state in BRANCH.moves.items()}


class PostgresBranches:
    """Branches of one namespace."""

    def __init__(self, engine: Engine, namespace: str, store: str, *, owner: bool = True) -> None:
        self._store = store
        s = f'"{namespace}"'
        self._engine, self._s, self._lines = engine, s, Lines(engine)
        if owner:
            self._begin = written(sql.BEGIN, s, "x.pgroup", "x.txid", token=TOKEN)
            self._resolve, self._note = sql.RESOLVE.format(s=s), sql.NOTE.format(s=s)
        else:
            self._begin = called(s, "begin_branches", sql.BEGIN_TYPES)
            self._resolve = called(s, "resolve", sql.RESOLVE_TYPES)
            self._note = called(s, "note_branches", sql.NOTE_TYPES)
        self._lock = sql.LOCK.format(s=s)
        self._standing = sql.STANDING.format(s=s)

    def write(self, calls: Sequence[Call]) -> Sequence[Answer | TxSagaError]:
        """Do calls of every kind in one commit, each with its own answer."""
        begins = [call for call in calls if isinstance(call, Begin)]
        words = [call for call in calls if isinstance(call, Resolve)]
        notes = [call for call in calls if isinstance(call, Noted)]
        statements = [Statement(self._begin, _begins(begins))] if begins else []
        if words:
            locked = Statement(self._lock, [int8_array(sorted(word.life.txid for word in words))])
            statements += [locked, Statement(self._resolve, _words(words))]
        statements += [Statement(self._note, _notes(notes))] if notes else []
        found = iter(self._exchanged(statements))
        answers: dict[int, Answer | TxSagaError] = {}
        if begins:
            answers |= self._begun(begins, next(found))
        if words:
            next(found)
            answers |= self._told(words, {row[0] for row in next(found)})
        if notes:
            known = set(next(found))
            answers |= {id(note): (note.txid, note.number, note.attempt) in known for note in notes}
        return [answers[id(call)] for call in calls]

    def of(self, txid: int) -> Sequence[Branch]:
        """Return the branches of a transaction, every attempt."""
        return [branch_of(row) for row in self._rows(sql.OF, {"txid": txid})]

    def unfinished(
        self, *, after: tuple[int, int, int] = NONE, older: timedelta = timedelta(), limit: int = 1_000
    ) -> Sequence[tuple[Branch, Decision]]:
        """Return, in order, branches whose transaction is decided and whose resource has not acknowledged."""
        rows = self._rows(sql.UNFINISHED, {**_behind(after), "older": older, "limit": limit})
        return [(branch_of(row), Decision(row[9])) for row in rows]

    def listed(
        self,
        states: Collection[BranchState],
        *,
        resource: str | None = None,
        after: tuple[int, int, int] = NONE,
        limit: int = 1_000,
    ) -> Sequence[Branch]:
        """Return, in order, branches that stand in one of these states, of one resource or of all."""
        named = {"states": [state.value for state in states], "resource": resource}
        values = {**named, **_behind(after), "limit": limit}
        return [branch_of(row) for row in self._rows(sql.LISTED, values)]

    def guests(self, coordinator: UUID | None = None, *, after: int = 0, limit: int = 1_000) -> Sequence[Guest]:
        """Return, in order, what voted yes here for another store, or for any."""
        values = {"coordinator": coordinator, "after": after, "limit": limit}
        rows = self._rows(sql.GUESTS, values)
        return [Guest(row.txid, row.key, row.coordinator, TxState(row.state)) for row in rows]

    def close(self) -> None:
        """Close the lines that nobody has."""
        self._lines.close()

    def _exchanged(self, statements: Sequence[Statement]) -> list[Rows]:
        with self._lines.taken() as line:
            patiently(line.connection, PATIENCE)
            for _ in range(RESENDS):
                try:
                    return line.exchange(statements)
                except ConnectionLost as lost:
                    reason = lost
                try:
                    patiently(line.connection, PATIENCE)
                except TxSagaError as away:
                    raise OutcomeUnknown(f"whether this was written is not known: {away}") from away
        raise OutcomeUnknown(f"whether this was written is not known: {reason}") from reason

    def _begun(self, begins: Sequence[Begin], rows: Rows) -> dict[int, Answer | TxSagaError]:
        found = {ord: (txid, token) for ord, txid, token in rows}
        answers: dict[int, Answer | TxSagaError] = {}
        for at, begin in enumerate(begins, 1):
            answers[id(begin)] = _life(begin, *found[at]) if at in found else TransactionsRejected(self._store)
        return answers

    def _told(self, words: Sequence[Resolve], done: set[int]) -> dict[int, Answer | TxSagaError]:
        answers: dict[int, Answer | TxSagaError] = {id(word): word.decision for word in words if word.life.txid in done}
        others = [word for word in words if word.life.txid not in done]
        if others:
            call = Statement(self._standing, [int8_array([word.life.txid for word in others])])
            (rows,) = self._exchanged([call])
            stands = {row[0]: row[1:] for row in rows}
            answers |= {id(word): _standing(word, stands.get(word.life.txid)) for word in others}
        return answers

    def _rows(self, question: str, values: Mapping[str, object]) -> Sequence[Any]:
        with transaction(self._engine) as connection, translating():
            return connection.execute(text(question.format(s=self._s)), values).all()


def _begins(begins: Sequence[Begin]) -> list[Value | None]:
    named = [(at, n, it) for at, begin in enumerate(begins, 1) for n, it in enumerate(begin.resources, 1)]
    return [
        int4_array([begin.group for begin in begins]),
        text_array([begin.run or "" for begin in begins]),
        *(int4_array([each[column] for each in named]) for column in range(3)),
    ]


def _life(begin: Begin, txid: int, token: bytes) -> Life:
    return Life(
        txid=txid,
        group=begin.group,
        token=token,
        key=None,
        epoch=1,
        owner=1,
        state=TxState.ACTIVE,
        run=begin.run,
    )


def _words(words: Sequence[Resolve]) -> list[Value | None]:
    rows = [(word.life.txid, row) for word in words for row in word.rows]
    votes = [(word.life.txid, vote) for word in words for vote in word.votes]
    return [
        int8_array([word.life.txid for word in words]),
        int4_array([word.life.owner for word in words]),
        int4_array([int(word.decision or 0) for word in words]),
        text_array([word.who for word in words]),
        text_array([kept(word.why) for word in words]),
        int4_array([word.evidence or 0 for word in words]),
        int8_array([txid for txid, _ in rows]),
        int4_array([row.qid for _, row in rows]),
        int4_array([row.chunk for _, row in rows]),
        int4_array([row.count for _, row in rows]),
        bytea_array([row.body for _, row in rows]),
        int8_array([txid for txid, _ in votes]),
        int4_array([vote.number for _, vote in votes]),
        int4_array([vote.attempt for _, vote in votes]),
        text_array([VOTED[vote.vote].value for _, vote in votes]),
    ]


def _notes(notes: Sequence[Noted]) -> list[Value | None]:
    return [
        int8_array([note.txid for note in notes]),
        int4_array([note.number for note in notes]),
        int4_array([note.attempt for note in notes]),
        text_array([STATES[note.event].value for note in notes]),
        text_array([kept(note.why) for note in notes]),
    ]


def _standing(word: Resolve, stands: tuple[Any, ...] | None) -> Answer | TxSagaError:
    """Say what stands, or why the owner's word changed nothing."""
    if stands is None:
        return UnknownTransaction(f"transaction {word.life.txid} is not in this store")
    decision, owner, state = stands
    if owner != word.life.owner:  # whatever stands, the branches of this owner are not those that it names
        return Superseded(word.life.txid)
    if decision is not None:
        return Decision(decision)
    if word.decision is None and state == TxState.ENDED:
        return None  # its answer was lost
    return EffectConflict(f"transaction {word.life.txid} has something bound to it that is decided with it")


def branch_of(row: Any) -> Branch:  # a row of any statement that begins like that
    """Read a row."""
    return Branch(row[0], row[1], row[2], row[3], BranchState(row[4]), *row[5:9])


def _behind(after: tuple[int, int, int]) -> dict[str, int]:
    return dict(zip(("txid", "number", "attempt"), after, strict=True))
