"""
Branches on PostgreSQL: begins, owners' decisions and outcomes of branches, of many transactions in one commit.

Each call may be repeated after a lost answer: a transaction that was begun twice is empty the first time and is rolled
back when it is found, and the first decision is final. If a lost answer were taken for a no, a caller would roll back
branches that recovery commits.

What is bound to a transaction (ballots, late bodies, offsets, messages) is applied by the one decision path only: such
a transaction is left unchanged here, and the caller decides it there. Each array that a call becomes is one parameter
in `sql/branch.sql`, in the same order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from enum import IntEnum, auto
from itertools import count
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, Engine, func, insert, select, text, update

from txsaga.checkback.questions import kept
from txsaga.core.decision import Decision
from txsaga.core.lifecycle import TxState
from txsaga.core.records import TxRecord
from txsaga.core.retry import PATIENCE, patiently
from txsaga.errors import (
    EffectConflict,
    OutcomeUnknown,
    Superseded,
    TransactionsRejected,
    TxSagaError,
    UnknownTransaction,
)
from txsaga.flows.branch import BRANCH, HEURISTIC, NOTHING_DONE, Branch, BranchEvent, BranchState, Vote
from txsaga.flows.calls import (
    NONE,
    VOTED,
    Answer,
    BeginBranches,
    BranchesWritten,
    BranchOutcome,
    BranchVote,
    Call,
    DecisionRequest,
    Guest,
    Place,
)
from txsaga.messages.hot_statements import called, written
from txsaga.store import schema, sql_files
from txsaga.store.connection import transaction, translating
from txsaga.store.pipeline import ConnectionLost, ConnectionPool, PipelineConnection, Rows
from txsaga.store.statement import PreparedStatement, StatementCall

SQL = sql_files.read("flows/sql/branch.sql")

BEGIN_TYPES = ("int4[]", "text[]", "int4[]", "int4[]", "int4[]")
BEGIN_ANSWERS = "ord int8, txid int8, token bytea"
RESOLVE_TYPES = (
    *("int8[]", "int4[]", "int4[]", "text[]", "text[]", "int4[]"),
    *("int8[]", "int4[]", "int4[]", "int4[]", "bytea[]"),
    *("int8[]", "int4[]", "int4[]", "text[]"),
)
RESOLVE_ANSWERS = "txid int8"
SEALED = 0
"""The decision column of a transaction that is sealed, not decided."""
NOTE_TYPES = ("int8[]", "int4[]", "int4[]", "text[]", "text[]")
NOTE_ANSWERS = "txid int8, number int4, attempt int4"


STATES = {event: state for (_, event), state in BRANCH.moves.items()}
Values = list[list[Any]]
"""The columns of a statement's parameters."""


class Sort(IntEnum):
    """The statement that writes a call; a number, since it is looked up for each."""

    BEGIN = auto()
    WORD = auto()
    NOTE = auto()


def sort_of(call: Call) -> Sort:
    """Return the statement that writes a call."""
    match call:
        case BeginBranches():
            return Sort.BEGIN
        case DecisionRequest():
            return Sort.WORD
        case BranchOutcome():
            return Sort.NOTE


def life_of(group: int, txid: int, token: bytes, *, run: str | None = None) -> TxRecord:
    """Return a new record without a key."""
    state = TxState.ACTIVE
    return TxRecord(txid=txid, group=group, token=token, key=None, epoch=1, owner=1, state=state, run=run)


def begins(calls: Sequence[BeginBranches]) -> Values:
    """Return parameters of begins."""
    named = [(at, n, it) for at, begin in enumerate(calls, 1) for n, it in enumerate(begin.resources, 1)]
    return [
        [begin.group for begin in calls],
        [begin.run or "" for begin in calls],
        *([each[column] for each in named] for column in range(3)),
    ]


def words(calls: Sequence[DecisionRequest]) -> Values:
    """Return parameters of decisions."""
    votes = [(word.life.txid, vote) for word in calls for vote in word.votes]
    return [
        [word.life.txid for word in calls],
        [word.life.owner for word in calls],
        [int(word.decision or SEALED) for word in calls],
        [word.who for word in calls],
        [kept(word.why) for word in calls],
        [word.evidence or 0 for word in calls],
        *_rows(calls),
        [txid for txid, _ in votes],
        [vote.number for _, vote in votes],
        [vote.attempt for _, vote in votes],
        [VOTED[vote.vote].value for _, vote in votes],
    ]


def notes(calls: Sequence[BranchOutcome]) -> Values:
    """Return parameters of branch outcomes."""
    return [
        [note.txid for note in calls],
        [note.number for note in calls],
        [note.attempt for note in calls],
        [STATES[note.event].value for note in calls],
        [kept(note.why) for note in calls],
    ]


def standing_of(word: DecisionRequest, stands: tuple[Any, ...] | None) -> Answer | TxSagaError:
    """Return the decision, or why the owner's request changed nothing."""
    life = word.life
    decision, owner, state, group = stands or (None, None, None, None)
    if group != life.group:
        return UnknownTransaction(f"transaction {life.txid} is not in this store")
    if owner != life.owner:  # any decision names another owner's branches
        return Superseded(life.txid)
    if decision is not None:
        return Decision(decision)
    if word.decision is None and state == TxState.SEALED:
        return None  # already sealed: the answer was lost
    return EffectConflict(f"transaction {life.txid} has something bound to it that is decided with it")


def _rows(calls: Sequence[DecisionRequest]) -> Values:
    rows = [(word.life.txid, row) for word in calls for row in word.rows]
    return [
        [txid for txid, _ in rows],
        [row.qid for _, row in rows],
        [row.chunk for _, row in rows],
        [row.count for _, row in rows],
        [row.body for _, row in rows],
    ]


class Owned(NamedTuple):
    """A request by an owner."""

    call: object
    txid: int
    owner: int


def superseded(calls: Sequence[Owned]) -> dict[int, Superseded]:
    """Refuse the requests of earlier owners in a batch that also has a later owner's, by the `id` of each.

    A statement takes all requests of a batch and answers by transaction: both owners would get the later one's answer,
    and the earlier one would commit branches that no decision names.
    """
    latest: dict[int, int] = {}
    for _, txid, owner in calls:
        if owner > latest.get(txid, 0):
            latest[txid] = owner
    if len(latest) == len(calls):
        return {}
    return {id(call): Superseded(txid) for call, txid, owner in calls if owner < latest[txid]}


RESENDS = 3
Answers = dict[int, Answer | TxSagaError]


class Task(NamedTuple):
    """The calls of one sort: their statements, and how the last answer is read for each call."""

    statements: Sequence[StatementCall]
    read: Callable[[Rows], Answers]


class BranchStore:
    """Names branches before their work, and keeps them until they are finished."""

    def __init__(self, engine: Engine, namespace: str, store: str, *, owner: bool = True) -> None:
        self._store = store
        s = f'"{namespace}"'
        self._engine, self._s, self._lines = engine, s, ConnectionPool(engine)

        def statement(
            name: str, function: str, types: Sequence[str], group: str = "", txid: str = ""
        ) -> PreparedStatement:
            return PreparedStatement.of(
                written(SQL[name], s, group, txid) if owner else called(s, function, types), types
            )

        self._begin = statement("begin", "begin_branches", BEGIN_TYPES, "x.pgroup", "x.txid")
        self._resolve = statement("resolve", "resolve", RESOLVE_TYPES)
        self._note = statement("note", "note_branches", NOTE_TYPES)
        self._lock, self._standing = (
            PreparedStatement.of(SQL[name].format(s=s), ("int8[]",)) for name in ("lock", "standing")
        )

    def write(self, calls: Sequence[Call]) -> Sequence[Answer | TxSagaError]:
        """Execute calls of every kind in ONE commit, each with its own answer.

        `DecisionRequest` answers `Superseded` if the transaction has another owner, and `EffectConflict` if something
        is bound to it that only the decider applies (late bodies, offsets, messages).
        """
        sorts: dict[Sort, list[Any]] = {sort: [] for sort in Sort}
        past = superseded(
            [Owned(call, call.life.txid, call.life.owner) for call in calls if isinstance(call, DecisionRequest)]
        )
        for call in calls:
            if id(call) not in past:
                sorts[sort_of(call)].append(call)
        tasks = [self._task(sort, mine) for sort, mine in sorts.items() if mine]
        found = iter(self._exchanged([statement for task in tasks for statement in task.statements]))
        answers: Answers = {**past}
        for task in tasks:
            *_, rows = [next(found) for _ in task.statements]
            answers |= task.read(rows)
        return [answers[id(call)] for call in calls]

    def of(self, txid: int) -> Sequence[Branch]:
        """Return every attempt of the branches of a transaction."""
        return [branch_of(row) for row in self._rows(SQL["of"], {"txid": txid})]

    def written(self, txids: Collection[int]) -> Mapping[int, BranchesWritten]:
        """Return what is written of each of these transactions; those without a row are left out."""
        if not txids:
            return {}
        # Read the branches last: in the other order a decision could be seen without those that it names.
        known = self._rows(SQL["written"], {"txids": list(txids)})
        named = defaultdict[int, list[Branch]](list)
        for row in self._rows(SQL["written_branches"], {"txids": list(txids)}):
            named[row[0]].append(branch_of(row))
        return {
            txid: BranchesWritten(owner, decision and Decision(decision), named[txid])
            for txid, owner, decision in known
        }

    def over(self, places: Collection[Place]) -> Collection[Place]:
        """Return those whose resource has acknowledged the decision, with nothing left to settle by hand."""
        columns = zip(*places, strict=True) if places else ((), (), ())
        values = dict(zip(("txids", "numbers", "attempts"), map(list, columns), strict=True))
        return {(row.txid, row.number, row.attempt) for row in self._rows(SQL["over"], values)}

    def unfinished(
        self, *, after: tuple[int, int, int] = NONE, older: timedelta = timedelta(), limit: int = 1_000
    ) -> Sequence[tuple[Branch, Decision]]:
        """Return, in order, branches whose transaction is decided and whose resource has not acknowledged it.

        With `older`, only those that have not changed for so long.
        """
        rows = self._rows(SQL["unfinished"], {**_behind(after), "older": older, "limit": limit})
        return [(branch_of(row), Decision(row[9])) for row in rows]

    def listed(
        self,
        states: Collection[BranchState],
        *,
        resource: str | None = None,
        after: tuple[int, int, int] = NONE,
        limit: int = 1_000,
    ) -> Sequence[Branch]:
        """Return, in order, the branches in one of these states, of one resource or of all."""
        named = {"states": [state.value for state in states], "resource": resource}
        values = {**named, **_behind(after), "limit": limit}
        return [branch_of(row) for row in self._rows(SQL["listed"], values)]

    def guests(self, coordinator: UUID | None = None, *, after: int = 0, limit: int = 1_000) -> Sequence[Guest]:
        """Return, in order, the transactions that voted yes here for another store, or for any.

        One that was decided by force stays listed until its coordinator decides the same, or it is forgotten.
        """
        values = {"coordinator": coordinator, "after": after, "limit": limit}
        rows = self._rows(SQL["guests"], values)
        return [Guest(row.txid, row.key, row.coordinator, TxState(row.state)) for row in rows]

    def close(self) -> None:
        """Close the idle connections."""
        self._lines.close()

    def _exchanged(self, statements: Sequence[StatementCall]) -> list[Rows]:
        with self._lines.taken() as line:
            return _sent(line, statements)

    def _task(self, sort: Sort, calls: list[Any]) -> Task:
        match sort:
            case Sort.BEGIN:
                return Task([self._begin.call(*begins(calls))], lambda rows: self._begun(calls, rows))
            case Sort.WORD:
                locked = self._lock.call(sorted(word.life.txid for word in calls))
                resolved = self._resolve.call(*words(calls))
                return Task([locked, resolved], lambda rows: self._told(calls, {row[0] for row in rows}))
            case Sort.NOTE:
                return Task([self._note.call(*notes(calls))], lambda rows: _noted(calls, set(rows)))

    def _begun(self, begun: Sequence[BeginBranches], rows: Rows) -> Answers:
        found = {ord: (txid, token) for ord, txid, token in rows}
        answers: Answers = {}
        for at, begin in enumerate(begun, 1):
            stored = life_of(begin.group, *found[at], run=begin.run) if at in found else None
            answers[id(begin)] = stored or TransactionsRejected(self._store)
        return answers

    def _told(self, told: Sequence[DecisionRequest], done: set[int]) -> Answers:
        answers: Answers = {id(word): word.decision for word in told if word.life.txid in done}
        others = [word for word in told if word.life.txid not in done]
        stands = self._stands([word.life.txid for word in others])
        return answers | {id(word): standing_of(word, stands.get(word.life.txid)) for word in others}

    def _stands(self, txids: Sequence[int]) -> dict[int, tuple[Any, ...]]:
        if not txids:
            return {}
        (rows,) = self._exchanged([self._standing.call(txids)])
        return {row[0]: row[1:] for row in rows}

    def _rows(self, question: str, values: Mapping[str, object]) -> Sequence[Any]:
        with transaction(self._engine) as connection, translating():
            return connection.execute(text(question.format(s=self._s)), values).all()


def _sent(line: PipelineConnection, statements: Sequence[StatementCall]) -> list[Rows]:
    """Send statements that are safe to repeat, until they are answered."""
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


def _noted(calls: Sequence[BranchOutcome], known: set[tuple[Any, ...]]) -> Answers:
    return {id(note): (note.txid, note.number, note.attempt) in known for note in calls}


def branch_of(row: Any) -> Branch:  # a row of any statement with these columns first
    """Return a row's branch."""
    return Branch(row[0], row[1], row[2], row[3], BranchState(row[4]), *row[5:9])


def _behind(after: tuple[int, int, int]) -> dict[str, int]:
    return dict(zip(("txid", "number", "attempt"), after, strict=True))


branch = schema.branch
STANDING = [state.value for state in HEURISTIC]
OPEN = [state.value for state in BRANCH.sources(BranchEvent.ROLL_BACK)]


def name(connection: Connection, life: TxRecord, resources: Sequence[int], *, aux: bool) -> Sequence[int]:
    """Name a branch for each resource; one that was named in an earlier attempt keeps its number."""
    query = select(branch.c.resource, branch.c.number, branch.c.attempt, branch.c.aux)
    with translating():
        known = connection.execute(query.where(branch.c.txid == life.txid)).all()
        fresh = count(max((row.number for row in known), default=0) + 1)
        numbers = {} if aux else {row.resource: row.number for row in known if not row.aux}
        named = {row.number for row in known if row.attempt == life.owner}
        for resource in resources:
            if resource not in numbers:
                numbers[resource] = next(fresh)
        common = {"txid": life.txid, "attempt": life.owner, "state": BranchState.ACTIVE.value, "aux": aux}
        values = [
            {**common, "number": numbers[resource], "resource": resource}
            for resource in resources
            if numbers[resource] not in named
        ]
        if values:
            connection.execute(insert(branch), values)
    return [numbers[resource] for resource in resources]


def elect(connection: Connection, txid: int, votes: Sequence[BranchVote]) -> None:
    """Record the votes of branches."""
    with translating():
        for vote in votes:
            same = (branch.c.txid == txid, branch.c.number == vote.number, branch.c.attempt == vote.attempt)
            voted = {"state": VOTED[vote.vote].value, "why": NOTHING_DONE if vote.vote is Vote.READ_ONLY else None}
            connection.execute(update(branch).where(*same, branch.c.state.in_(OPEN)).values(voted))


def forget(connection: Connection, txid: int, number: int, attempt: int) -> bool:
    """Forget a branch whose outcome contradicts its decision."""
    same = (branch.c.txid == txid, branch.c.number == number, branch.c.attempt == attempt)
    statement = update(branch).where(*same, branch.c.state.in_(STANDING))
    with translating():
        forgotten = statement.values(state=BranchState.FORGOTTEN.value, at=func.clock_timestamp())
        return connection.execute(forgotten).rowcount == 1
