"""
Steps and sagas on PostgreSQL: begins, steps, their results and decisions of many sagas in one commit.

Each call may be repeated after a lost answer: a begin is looked up by its ticket first, a step is stored under its
number, a decision is final, and no step moves twice. If a lost begin were repeated without that, the first one's step
would be compensated although it never ran.

Only the owner of a transaction can write: a superseded one matches no row. A step is written only while its transaction
is open, under its lock (R3): ROLLBACK waits for the write, or the write sees it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import groupby
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, text

from txsaga.checkback.profile import LEASE
from txsaga.checkback.questions import kept
from txsaga.core.decision import Decision
from txsaga.core.records import TxRecord
from txsaga.core.retry import PATIENCE, patiently
from txsaga.errors import (
    DecidedOtherwise,
    OutcomeUnknown,
    Superseded,
    TransactionClosed,
    TransactionsRejected,
    TxSagaError,
    UnknownTransaction,
)
from txsaga.flows import branches_store
from txsaga.flows.branches_store import RESENDS, Answers, Owned, Values, life_of, standing_of, superseded
from txsaga.flows.branches_store import words as words_of
from txsaga.flows.calls import Answer, Close, Mark, OpenSaga, RecordStep, ReleaseSaga, SagaCall, Settle, Start
from txsaga.flows.saga_values import ClaimedSaga, SagaFigures, SagaView
from txsaga.flows.step import STEP, TARGETS, Left, StepEvent, StepKind, StepRecord, StepState
from txsaga.messages.hot_statements import TOKEN, TOKEN_ASKED, called, written
from txsaga.store import sql_files
from txsaga.store.connection import by_index, transaction, translating
from txsaga.store.pipeline import ConnectionLost, ConnectionPool, PipelineConnection, Rows
from txsaga.store.statement import PreparedStatement, StatementCall

SQL = sql_files.read("flows/sql/step.sql")


def _leased(name: str) -> str:
    return SQL[name].replace("{lease}", str(LEASE.total_seconds()))


STEP_TYPES = ("int4[]", "text[]", "text[]", "text[]", "text[]", "text[]", "text[]", "float8[]")
OPEN_TYPES = ("int4[]", "text[]", "int8[]", "int4[]", *STEP_TYPES)
OWNED = ("int8[]", "int4[]")
"""The types of transactions and their owners."""
OPEN_ANSWERS = "ord int8, txid int8, token bytea"
OPEN = _leased("open")
RECORD = _leased("record")
SETTLE = _leased("settle")

SOURCES = {event: ",".join(STEP.sources(event)) for event in TARGETS}
ANY = ",".join(dict.fromkeys(state for state, _ in STEP.moves))
"""A try without an event is recorded for a step in any unfinished state."""

Kind = TypeVar("Kind")


class Steps:
    """Writes steps down before they run, and keeps them until they are finished."""

    def __init__(self, engine: Engine, namespace: str, store: str, *, owner: bool = True) -> None:
        self._engine, self._store, self._s, self._lines = engine, store, f'"{namespace}"', ConnectionPool(engine)
        s = self._s

        def plain(sql: str, *types: str) -> PreparedStatement:
            return PreparedStatement.of(sql.format(s=s), types)

        opened, resolve = written(OPEN, s, "x.pgroup", "x.txid"), branches_store.SQL["resolve"].format(s=s)
        of_branches = branches_store.RESOLVE_TYPES
        self._open = PreparedStatement.of(opened if owner else called(s, "open_sagas", OPEN_TYPES), OPEN_TYPES)
        self._resolve = PreparedStatement.of(resolve if owner else called(s, "resolve", of_branches), of_branches)
        found = written(SQL["opened"], s, "tx.pgroup", "tx.txid", token=TOKEN if owner else TOKEN_ASKED)
        self._opened = PreparedStatement.of(found, ("int4[]", "int8[]"))
        self._lock, self._standing = (plain(branches_store.SQL[name], "int8[]") for name in ("lock", "standing"))
        self._record = plain(RECORD, *OWNED, *STEP_TYPES)
        self._mark = plain(SQL["mark"], *OWNED, "int4[]", *["text[]"] * 5, "int4[]")
        self._settle = plain(SETTLE, *OWNED, "text[]", "int8[]", *STEP_TYPES)
        self._rest = plain(SQL["rest"], *OWNED, "float8[]", "text[]", "bool[]")
        self._close = plain(SQL["close"], *OWNED)

    def write(self, calls: Sequence[SagaCall]) -> Sequence[Answer | TxSagaError]:
        """Execute calls of every kind in ONE commit, each with its own answer: begins, steps, marks, then the rest.

        `OpenSaga` answers its record. `RecordStep` answers None; `DecidedOtherwise`, `Superseded` or
        `TransactionClosed` if the transaction is not open under its owner: then nothing may run. `Settle` answers the
        final decision, as `BranchStore.write` does. The others answer whether anything changed: a superseded driver
        changes nothing, and a step moves only by its lifecycle.
        """
        lives = [(call, _life_of(call)) for call in calls if isinstance(call, RecordStep | Settle)]
        past = superseded([Owned(call, life.txid, life.owner) for call, life in lives])
        answers = self._written([call for call in calls if id(call) not in past]) | past
        return [answers[id(call)] for call in calls]

    def _written(self, calls: Sequence[SagaCall]) -> Answers:
        words = _of(calls, Settle)
        begins = _of(calls, OpenSaga)
        records, marks = _of(calls, RecordStep), _of(calls, Mark)
        rests, closes = _of(calls, ReleaseSaga), _of(calls, Close)
        others: list[RecordStep | Settle | ReleaseSaga | Close] = [*records, *words, *rests, *closes]
        noted = [*marks, *(mark for each in others for mark in each.marks)]
        rest = {
            "locked": self._lock.call(sorted(w.word.life.txid for w in words)) if words else None,
            "records": self._record.call(*_record_values(records)) if records else None,
            "marks": self._mark.call(*_mark_values(noted)) if noted else None,
            "told": self._resolve.call(*words_of([each.word for each in words])) if words else None,
            "settled": self._settle.call(*_settle_values(words)) if words else None,
            "rests": self._rest.call(*_release_values(rests)) if rests else None,
            "closes": self._close.call(*_close_values(closes)) if closes else None,
        }
        asked = {name: statement for name, statement in rest.items() if statement is not None}
        found = self._exchanged(begins, list(asked.values()))
        rows = dict(zip((["begins"] if begins else []) + list(asked), found, strict=True))
        answers = self._begun(begins, rows.get("begins", ()))
        answers |= self._recorded(records, {row[0] for row in rows.get("records", ())})
        answers |= self._told(words, {row[0] for row in rows.get("told", ())})
        moved = set(rows.get("marks", ()))
        answers |= {id(mark): (mark.txid, mark.number, mark.owner) in moved for mark in marks}
        for some, name in ((rests, "rests"), (closes, "closes")):
            changed = set(rows.get(name, ()))
            answers |= {id(each): (each.txid, each.owner) in changed for each in some}
        return answers

    def of(self, txid: int) -> Sequence[StepRecord]:
        """Return the steps of a transaction, in the order of their start."""
        with transaction(self._engine) as connection, translating():
            return steps_of(connection, self._s, txid)

    def of_all(self, txids: Sequence[int]) -> Mapping[int, Sequence[StepRecord]]:
        """Return the steps of many transactions in one query; those without steps are left out."""
        found = map(step_of, self._rows(SQL["of_all"], {"txids": list(txids)}))
        return {txid: list(steps) for txid, steps in groupby(found, lambda step: step.txid)}

    def claim(
        self, driver: str, *, limit: int, lease: timedelta = LEASE, txid: int | None = None
    ) -> Sequence[ClaimedSaga]:
        """Take over, in order, sagas whose driver is gone; each gets a new owner.

        A saga is claimed when its lease has run out, unless it is open and belongs to a run (R5); an open one also when
        something that it reserved has expired. Stalled ones are left alone. The steps of a rolled back one are to be
        compensated. Leases may be shorter by a third, so that the sagas of one process do not all expire at once.
        """
        values = {"driver": driver, "limit": limit, "txid": txid, "lease": lease.total_seconds()}
        return [
            ClaimedSaga(row[0], row[1], row[2], None if row[3] is None else Decision(row[3]), row[4])
            for row in self._rows(SQL["claim"], values)
        ]

    def hold(self, held: Sequence[tuple[int, int]], lease: timedelta) -> None:
        """Renew the leases of these transactions, given with their owners or drivers."""
        txids, owners = ([each[at] for each in held] for at in (0, 1))
        values = {"txids": txids, "owners": owners, "lease": lease.total_seconds()}
        with by_index(self._engine) as connection, translating():
            connection.execute(text(SQL["hold"].format(s=self._s)), values)

    def listed(self, *, limit: int = 1_000, txid: int | None = None) -> Sequence[SagaView]:
        """Return, in order, the unfinished sagas, or one."""
        return [_view(row) for row in self._rows(SQL["listed"], {"limit": limit, "txid": txid})]

    def counted(self) -> SagaFigures:
        """Count the unfinished sagas."""
        ((running, driving, waiting, stalled),) = self._rows(SQL["counted"], {})
        return SagaFigures(running=running, driving=driving, waiting=waiting, stalled=stalled)

    def close(self) -> None:
        """Close the connections that are not in use."""
        self._lines.close()

    def _exchanged(self, begins: Sequence[OpenSaga], others: Sequence[StatementCall]) -> list[Rows]:
        tickets = [random.getrandbits(63) for _ in begins]  # they identify begins, and guard nothing
        first = [self._open.call(*_open_values(begins, tickets))] if begins else []
        with self._lines.taken() as line:
            patiently(line.connection, PATIENCE)
            for _ in range(RESENDS):
                try:
                    return line.exchange([*first, *others])
                except ConnectionLost as lost:
                    reason = lost
                try:
                    patiently(line.connection, PATIENCE)
                    if begins and (found := self._found(line, begins, tickets)):
                        return [found, *(line.exchange(others) if others else [])]
                except (TxSagaError, ConnectionLost) as away:
                    raise OutcomeUnknown(f"whether this was written is not known: {away}") from away
        raise OutcomeUnknown(f"whether this was written is not known: {reason}") from reason

    def _found(self, line: PipelineConnection, begins: Sequence[OpenSaga], tickets: Sequence[int]) -> Rows:
        (rows,) = line.exchange([self._opened.call([begin.group for begin in begins], tickets)])
        return rows

    def _begun(self, begins: Sequence[OpenSaga], rows: Rows) -> Answers:
        found = {ord: (txid, token) for ord, txid, token in rows}
        return {
            id(begin): life_of(begin.group, *found[at], run=begin.run)
            if at in found
            else TransactionsRejected(self._store)
            for at, begin in enumerate(begins, 1)
        }

    def _recorded(self, records: Sequence[RecordStep], done: set[int]) -> Answers:
        answers: Answers = {id(each): None for each in records if each.life.txid in done}
        refused = [each for each in records if each.life.txid not in done]
        stands = self._stands([each.life.txid for each in refused])
        return answers | {id(each): _refusal(each.life, stands.get(each.life.txid)) for each in refused}

    def _told(self, words: Sequence[Settle], done: set[int]) -> Answers:
        answers: Answers = {id(each): each.word.decision for each in words if each.word.life.txid in done}
        others = [each for each in words if each.word.life.txid not in done]
        stands = self._stands([each.word.life.txid for each in others])
        return answers | {id(each): standing_of(each.word, stands.get(each.word.life.txid)) for each in others}

    def _stands(self, txids: Sequence[int]) -> dict[int, tuple[Any, ...]]:
        if not txids:
            return {}
        (rows,) = self._exchanged([], [self._standing.call(txids)])
        return {row[0]: row[1:] for row in rows}

    def _rows(self, statement: str, values: Mapping[str, object]) -> Sequence[Any]:
        with by_index(self._engine) as connection, translating():
            return connection.execute(text(statement.format(s=self._s)), values).all()


def steps_of(connection: Connection, s: str, txid: int) -> list[StepRecord]:
    """Read the steps of a transaction within the caller's database transaction."""
    return [step_of(row) for row in connection.execute(text(SQL["of"].format(s=s)), {"txid": txid})]


def step_of(row: Any) -> StepRecord:
    """Read a row."""
    txid, number, name, attempt, state, kind, *middle = row
    resource, input, compensation, action, output, left, *last = middle
    words = (resource, input, compensation, action, output)
    return StepRecord(txid, number, name, attempt, StepState(state), StepKind(kind), *words, Left(left), *last)


def compensates(connection: Connection, s: str, txid: int) -> bool:
    """Return whether something of a transaction is still to be undone."""
    return bool(connection.execute(text(SQL["uncompensated"].format(s=s)), {"txid": txid}).scalar())


def move(connection: Connection, s: str, txid: int, number: int, event: StepEvent, why: str) -> bool:
    """Move a step by hand and let its saga go on at once."""
    sources = [state.value for state in STEP.sources(event)]
    values = {"txid": txid, "number": number, "target": TARGETS[event].value, "sources": sources, "why": why}
    moved = connection.execute(text(SQL["move"].format(s=s)), values).rowcount == 1
    if moved:
        connection.execute(text(SQL["wake"].format(s=s)), {"txid": txid})
    return moved


def _of(calls: Sequence[SagaCall], kind: type[Kind]) -> list[Kind]:
    return [call for call in calls if isinstance(call, kind)]


def _life_of(call: RecordStep | Settle) -> TxRecord:
    return call.life if isinstance(call, RecordStep) else call.word.life


def _unknown(life: TxRecord) -> TxSagaError:
    return UnknownTransaction(f"transaction {life.txid} is not in this store")


def _refusal(life: TxRecord, stands: tuple[Any, ...] | None) -> TxSagaError:
    if stands is None:
        return _unknown(life)
    decision, owner, *_ = stands
    if owner != life.owner:
        return Superseded(life.txid)
    if decision is not None:
        return DecidedOtherwise(life.txid, Decision(decision).name)
    return TransactionClosed(f"transaction {life.txid} is closed; no step can begin any more")


def _view(row: Any) -> SagaView:
    names = ("txid", "group", "key", "decision", "steps", "waiting", "driver", "until", "stalled", "why")
    found = dict(zip(names, row, strict=True))
    return SagaView(**{**found, "decision": None if row[3] is None else Decision(row[3])})


def _step_values(starts: Sequence[Start]) -> Values:
    return [
        [each.number for each in starts],
        [each.name for each in starts],
        [each.kind.value for each in starts],
        [each.resource or "" for each in starts],
        [each.input for each in starts],
        [each.compensation or "" for each in starts],
        [each.action or "" for each in starts],
        [-1.0 if each.expires is None else each.expires.total_seconds() for each in starts],
    ]


def _open_values(begins: Sequence[OpenSaga], tickets: Sequence[int]) -> Values:
    """Encode begins with their first steps; a ticket finds each of them again."""
    named = [(at, step) for at, begin in enumerate(begins, 1) for step in begin.steps]
    return [
        [begin.group for begin in begins],
        [begin.run or "" for begin in begins],
        list(tickets),
        [at for at, _ in named],
        *_step_values([step for _, step in named]),
    ]


def _record_values(given: Sequence[RecordStep]) -> Values:
    named = [(each.life, step) for each in given for step in each.steps]
    owners = [[life.txid for life, _ in named], [life.owner for life, _ in named]]
    return [*owners, *_step_values([step for _, step in named])]


def _mark_values(given: Sequence[Mark]) -> Values:
    """Encode marks, with the states that each event may leave."""
    return [
        [mark.txid for mark in given],
        [mark.owner for mark in given],
        [mark.number for mark in given],
        [TARGETS[mark.event].value if mark.event else "" for mark in given],
        [SOURCES[mark.event] if mark.event else ANY for mark in given],
        [mark.left.value if mark.left else "" for mark in given],
        [mark.output or "" for mark in given],
        [kept(mark.error) for mark in given],
        [-1 if mark.event is StepEvent.RESUME else mark.tries for mark in given],
    ]


def _settle_values(given: Sequence[Settle]) -> Values:
    """Encode the drivers of decided sagas, and the steps after their decisions."""
    named = [(each.word.life.txid, step) for each in given for step in each.steps]
    return [
        [each.word.life.txid for each in given],
        [each.word.life.owner for each in given],
        [each.driver for each in given],
        [txid for txid, _ in named],
        *_step_values([step for _, step in named]),
    ]


def _release_values(given: Sequence[ReleaseSaga]) -> Values:
    return [
        [each.txid for each in given],
        [each.owner for each in given],
        [each.by.total_seconds() for each in given],
        [kept(each.why) for each in given],
        [each.stalled for each in given],
    ]


def _close_values(given: Sequence[Close]) -> Values:
    return [[each.txid for each in given], [each.owner for each in given]]
