"""
Branches, steps and sagas on PostgreSQL: requests of many transactions in one commit, and what is known of them.

Each request may be repeated after a lost answer: a begin with steps is looked up by its ticket first, one without is
empty the first time and is rolled back when it is found, a step is stored under its number, the first decision is
final, and no step moves twice. If a lost answer were taken for a no, a caller would roll back branches that recovery
commits, or compensate a step that never ran.

Only the owner of a transaction can write: a superseded one matches no row. A step is written only while its transaction
is open, under its lock (R3): ROLLBACK waits for the write, or the write sees it. What is bound to a transaction
(ballots, late bodies, offsets, messages) is applied by the one decision path only: such a transaction is left unchanged
here, and the caller decides it there.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from functools import partial
from itertools import count, groupby
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Engine, text

from txsaga import errors
from txsaga.checkback.profile import LEASE
from txsaga.checkback.questions import kept
from txsaga.core.decision import Decision
from txsaga.core.lifecycle import TxState
from txsaga.core.records import TxRecord
from txsaga.core.retry import PATIENCE, patiently
from txsaga.flows.branch import BRANCH, HEURISTIC, NOTHING_DONE, Branch, BranchEvent, BranchState, Vote
from txsaga.flows.flows_store import COLUMNS, step_of
from txsaga.flows.requests import (
    NONE,
    VOTED,
    Answer,
    Begin,
    BranchesWritten,
    BranchOutcome,
    BranchVote,
    ClaimedSaga,
    Close,
    Decide,
    Guest,
    Mark,
    Place,
    RecordSteps,
    Release,
    Request,
    SagaFigures,
    SagaView,
)
from txsaga.flows.step import STEP, TARGETS, Step, StepEvent
from txsaga.flows.work_statements import BRANCHES, STEPS, WorkStatements
from txsaga.store.connection import HomeTransaction, by_index, transaction
from txsaga.store.pipeline import ConnectionLost, ConnectionPool, Rows
from txsaga.store.statement import StatementCall

RESENDS = 3
Answers = dict[int, Answer | errors.TxSagaError]
"""Answers by the `id` of the request."""


class Exchange(NamedTuple):
    """A statement, and how its rows answer the requests that it writes."""

    statement: StatementCall
    read: Callable[[Rows], Answers] = lambda _: {}


class WorkStore:
    """Names branches and steps before their work, and keeps them until they are finished."""

    def __init__(self, engine: Engine, namespace: str, store: str, *, owner: bool = True) -> None:
        self._engine, self._store, self._s, self._lines = engine, store, f'"{namespace}"', ConnectionPool(engine)
        self._sql = WorkStatements(self._s, owner=owner)

    def write(self, requests: Sequence[Request]) -> Sequence[Answer | errors.TxSagaError]:
        """Execute requests of every kind in ONE commit, each with its own answer.

        In this order: begins, steps, marks, decisions, outcomes of branches, releases, closes. `Begin` answers its
        record. `RecordSteps` answers None; `DecidedOtherwise`, `Superseded` or `TransactionClosed` if the transaction
        is not open under its owner: then nothing may run. `Decide` answers the final decision; `Superseded` if the
        transaction has another owner, and `EffectConflict` if something is bound to it that only the decider applies.
        The others answer whether anything changed: a superseded driver changes nothing, and a step moves only by its
        lifecycle.
        """
        answers = _superseded(requests) if len(requests) > 1 else {}
        of = defaultdict[type[Request], list[Any]](list)
        for each in requests:
            if id(each) not in answers:
                of[type(each)].append(each)
        sagas = [each for each in of[Begin] if each.steps]
        tickets = [random.randrange(1, 1 << 63) for _ in sagas]  # they identify begins, and guard nothing
        lookup = self._sql.begun(sagas, tickets) if sagas else None
        exchanges = self._exchanges(of, sagas, tickets)
        found = self._exchanged([each.statement for each in exchanges], lookup) if exchanges else []
        for exchange, rows in zip(exchanges, found, strict=True):
            answers |= exchange.read(rows)
        return [answers[id(each)] for each in requests]

    def branches(self, txid: int) -> Sequence[Branch]:
        """Return every attempt of the branches of a transaction."""
        return [branch_of(row) for row in self._rows(BRANCHES["of"], txid=txid)]

    def written(self, txids: Collection[int]) -> Mapping[int, BranchesWritten]:
        """Return what is written of each of these transactions; those without a row are left out."""
        if not txids:
            return {}
        # Read the branches last: in the other order a decision could be seen without those that it names.
        known = self._rows(BRANCHES["written"], txids=list(txids))
        named = defaultdict[int, list[Branch]](list)
        for row in self._rows(BRANCHES["written_branches"], txids=list(txids)):
            named[row[0]].append(branch_of(row))
        return {
            txid: BranchesWritten(owner, decision and Decision(decision), named[txid])
            for txid, owner, decision in known
        }

    def over(self, places: Collection[Place]) -> Collection[Place]:
        """Return those whose resource has acknowledged the decision, with nothing left to settle by hand."""
        txids, numbers, attempts = zip(*places, strict=True) if places else ((), (), ())
        rows = self._rows(BRANCHES["over"], txids=list(txids), numbers=list(numbers), attempts=list(attempts))
        return {(row.txid, row.number, row.attempt) for row in rows}

    def unfinished(
        self, *, after: Place = NONE, older: timedelta = timedelta(), limit: int = 1_000
    ) -> Sequence[tuple[Branch, Decision]]:
        """Return, in order, branches whose transaction is decided and whose resource has not acknowledged it.

        With `older`, only those that have not changed for so long.
        """
        rows = self._rows(BRANCHES["unfinished"], **_after(after), older=older, limit=limit)
        return [(branch_of(row), Decision(row[9])) for row in rows]

    def branches_in(
        self, states: Collection[BranchState], *, resource: str | None = None, after: Place = NONE, limit: int = 1_000
    ) -> Sequence[Branch]:
        """Return, in order, the branches in one of these states, of one resource or of all."""
        named = [state.value for state in states]
        rows = self._rows(BRANCHES["listed"], states=named, resource=resource, **_after(after), limit=limit)
        return [branch_of(row) for row in rows]

    def guests(self, coordinator: UUID | None = None, *, after: int = 0, limit: int = 1_000) -> Sequence[Guest]:
        """Return, in order, the transactions that voted yes here for another store, or for any.

        One that was decided by force stays listed until its coordinator decides the same, or it is forgotten.
        """
        rows = self._rows(BRANCHES["guests"], coordinator=coordinator, after=after, limit=limit)
        return [Guest(row.txid, row.key, row.coordinator, TxState(row.state)) for row in rows]

    def steps(self, txid: int) -> Sequence[Step]:
        """Return what may have to be undone, or done, of a transaction, in the order of the starts."""
        return [step_of(row) for row in self._rows(STEPS["of"], txid=txid)]

    def steps_of(self, txids: Sequence[int]) -> Mapping[int, Sequence[Step]]:
        """Return the steps of many transactions in one query; those without steps are left out."""
        found = map(step_of, self._indexed(STEPS["of_all"], txids=list(txids)))
        return {txid: list(steps) for txid, steps in groupby(found, lambda step: step.txid)}

    def claim(
        self, driver: str, *, limit: int, lease: timedelta = LEASE, txid: int | None = None
    ) -> Sequence[ClaimedSaga]:
        """Take over, in order, sagas whose driver is gone; each gets a new owner.

        A saga is claimed when its lease has run out, unless it is open and belongs to a run (R5); an open one also when
        something that it reserved has expired. Stalled ones are left alone. The steps of a rolled back one are to be
        compensated. Leases may be shorter by a third, so that the sagas of one process do not all expire at once.
        """
        rows = self._indexed(STEPS["claim"], driver=driver, limit=limit, txid=txid, lease=lease.total_seconds())
        return [
            ClaimedSaga(txid, group, owner, decision and Decision(decision), key)
            for txid, group, owner, decision, key in rows
        ]

    def hold(self, held: Sequence[tuple[int, int]], lease: timedelta) -> None:
        """Renew the leases of these transactions, given with their owners or drivers."""
        txids, owners = ([each[at] for each in held] for at in (0, 1))
        values = {"txids": txids, "owners": owners, "lease": lease.total_seconds()}
        with by_index(self._engine) as connection:
            connection.execute(text(STEPS["hold"].format(s=self._s)), values)

    def sagas(self, *, limit: int = 1_000, txid: int | None = None) -> Sequence[SagaView]:
        """Return, in order, the unfinished sagas, or one."""
        return [_view(row) for row in self._indexed(STEPS["listed"], limit=limit, txid=txid)]

    def saga_figures(self) -> SagaFigures:
        """Count the unfinished sagas."""
        ((running, driving, waiting, stalled),) = self._indexed(STEPS["counted"])
        return SagaFigures(running=running, driving=driving, waiting=waiting, stalled=stalled)

    def close(self) -> None:
        """Close the connections that are not in use."""
        self._lines.close()

    def _exchanges(
        self, of: Mapping[type[Request], list[Any]], sagas: Sequence[Begin], tickets: Sequence[int]
    ) -> list[Exchange]:
        """Return what is sent, in order: begins of sagas first, which are looked up before they are sent again."""
        sql, found = self._sql, list[Exchange]()
        plain = [each for each in of[Begin] if not each.steps]
        records, decisions, releases, closes = of[RecordSteps], of[Decide], of[Release], of[Close]
        marks = [mark for each in (*records, *decisions, *releases, *closes) for mark in each.marks]
        if sagas:
            found.append(Exchange(sql.begin(sagas, tickets), partial(self._begun, sagas)))
        if plain:
            found.append(Exchange(sql.begin(plain, [0] * len(plain)), partial(self._begun, plain)))
        if decisions:
            found.append(Exchange(sql.lock(decisions)))
        if records:
            found.append(Exchange(sql.record(records), partial(self._recorded, records)))
        if marks or of[Mark]:
            found.append(Exchange(sql.mark([*of[Mark], *marks]), partial(_marked, of[Mark])))
        if decisions:
            found.append(Exchange(sql.resolve(decisions), partial(self._decided, decisions)))
        if driven := [each for each in decisions if each.driver is not None]:
            found.append(Exchange(sql.settle(driven)))
        if of[BranchOutcome]:
            found.append(Exchange(sql.note(of[BranchOutcome]), partial(_noted, of[BranchOutcome])))
        if releases:
            found.append(Exchange(sql.release(releases), partial(_changed, releases)))
        if closes:
            found.append(Exchange(sql.close(closes), partial(_changed, closes)))
        return found

    def _exchanged(self, statements: Sequence[StatementCall], lookup: StatementCall | None = None) -> list[Rows]:
        """Send statements until they are answered; the first one is sent again only if `lookup` finds nothing."""
        with self._lines.taken() as line:
            patiently(line.connection, PATIENCE)
            for _ in range(RESENDS):
                try:
                    return line.exchange(statements)
                except ConnectionLost as lost:
                    reason = lost
                try:
                    patiently(line.connection, PATIENCE)
                    if lookup is not None and (found := line.exchange([lookup])[0]):
                        return [found, *(line.exchange(statements[1:]) if statements[1:] else [])]
                except (errors.TxSagaError, ConnectionLost) as away:
                    raise errors.OutcomeUnknown(f"it is unknown whether this was written: {away}") from away
        raise errors.OutcomeUnknown(f"it is unknown whether this was written: {reason}") from reason

    def _begun(self, begins: Sequence[Begin], rows: Rows) -> Answers:
        found = {ord: (txid, token) for ord, txid, token in rows}
        return {
            id(begin): life_of(begin.group, *found[at], run=begin.run)
            if at in found
            else errors.TransactionsRejected(self._store)
            for at, begin in enumerate(begins, 1)
        }

    def _recorded(self, records: Sequence[RecordSteps], rows: Rows) -> Answers:
        done = {row[0] for row in rows}
        refused = [each.life.txid for each in records if each.life.txid not in done]
        stands = self._stands(refused) if refused else {}
        return {
            id(each): None if each.life.txid in done else _refusal(each.life, stands.get(each.life.txid))
            for each in records
        }

    def _decided(self, decisions: Sequence[Decide], rows: Rows) -> Answers:
        done = {row[0] for row in rows}
        refused = [each.life.txid for each in decisions if each.life.txid not in done]
        stands = self._stands(refused) if refused else {}
        return {
            id(each): each.decision if each.life.txid in done else _standing(each, stands.get(each.life.txid))
            for each in decisions
        }

    def _stands(self, txids: Sequence[int]) -> dict[int, tuple[Any, ...]]:
        return {row[0]: row[1:] for row in self._exchanged([self._sql.standing(txids)])[0]}

    def _rows(self, statement: str, **values: object) -> Sequence[Any]:
        with transaction(self._engine) as connection:
            return connection.execute(text(statement.format(s=self._s, columns=COLUMNS)), values).all()

    def _indexed(self, statement: str, **values: object) -> Sequence[Any]:
        with by_index(self._engine) as connection:
            return connection.execute(text(statement.format(s=self._s, columns=COLUMNS)), values).all()


def life_of(group: int, txid: int, token: bytes, *, run: str | None = None) -> TxRecord:
    """Return a new record without a key."""
    state = TxState.ACTIVE
    return TxRecord(txid=txid, group=group, token=token, key=None, epoch=1, owner=1, state=state, run=run)


def _superseded(requests: Sequence[Request]) -> Answers:
    """Refuse the requests of earlier owners in a batch that also has a later owner's.

    A statement takes all requests of a batch and answers by transaction: both owners would get the later one's answer,
    and the earlier one would commit branches that no decision names.
    """
    owned = [each for each in requests if isinstance(each, RecordSteps | Decide)]
    latest: dict[int, int] = {}
    for each in owned:
        latest[each.life.txid] = max(each.life.owner, latest.get(each.life.txid, 0))
    if len(latest) == len(owned):
        return {}
    return {id(each): errors.Superseded(each.life.txid) for each in owned if each.life.owner < latest[each.life.txid]}


def _standing(decide: Decide, stands: tuple[Any, ...] | None) -> Answer | errors.TxSagaError:
    """Return the decision, or why the owner's request changed nothing."""
    life = decide.life
    decision, owner, state, group = stands or (None, None, None, None)
    if group != life.group:
        return _unknown(life)
    if owner != life.owner:  # any decision names another owner's branches
        return errors.Superseded(life.txid)
    if decision is not None:
        return Decision(decision)
    if decide.decision is None and state == TxState.SEALED:
        return None  # already sealed: the answer was lost
    return errors.EffectConflict(f"transaction {life.txid} has something bound to it that is decided with it")


def _refusal(life: TxRecord, stands: tuple[Any, ...] | None) -> errors.TxSagaError:
    if stands is None:
        return _unknown(life)
    decision, owner, *_ = stands
    if owner != life.owner:
        return errors.Superseded(life.txid)
    if decision is not None:
        return errors.DecidedOtherwise(life.txid, Decision(decision).name)
    return errors.TransactionClosed(f"transaction {life.txid} is sealed; no step can begin any more")


def _unknown(life: TxRecord) -> errors.TxSagaError:
    return errors.UnknownTransaction(f"transaction {life.txid} is not in this store")


def _marked(marks: Sequence[Mark], rows: Rows) -> Answers:
    moved = set(rows)
    return {id(mark): (mark.txid, mark.number, mark.owner) in moved for mark in marks}


def _noted(outcomes: Sequence[BranchOutcome], rows: Rows) -> Answers:
    known = set(rows)
    return {id(each): (each.txid, each.number, each.attempt) in known for each in outcomes}


def _changed(requests: Sequence[Release | Close], rows: Rows) -> Answers:
    changed = set(rows)
    return {id(each): (each.txid, each.owner) in changed for each in requests}


def _after(place: Place) -> dict[str, Any]:
    return dict(zip(("txid", "number", "attempt"), place, strict=True))


def branch_of(row: Any) -> Branch:  # a row of any statement with these columns first
    """Return a row's branch."""
    return Branch(row[0], row[1], row[2], row[3], BranchState(row[4]), *row[5:9])


def _view(row: Any) -> SagaView:
    names = ("txid", "group", "key", "decision", "steps", "waiting", "driver", "until", "stalled", "why")
    found = dict(zip(names, row, strict=True))
    return SagaView(**{**found, "decision": None if row[3] is None else Decision(row[3])})


STANDING = [state.value for state in HEURISTIC]
OPEN = [state.value for state in BRANCH.sources(BranchEvent.ROLL_BACK)]


class BranchLedger(HomeTransaction):
    """Branches and steps of transactions, inside one open database transaction."""

    def name(self, life: TxRecord, resources: Sequence[int], *, aux: bool = False) -> Sequence[int]:
        """Record a branch for each resource, in this owner's attempt; return their numbers, the same in each attempt.

        A unit of an auxiliary lane gets a new number each time.
        """
        known = self._run(BRANCHES["named"], txid=life.txid).all()
        fresh = count(max((row.number for row in known), default=0) + 1)
        numbers = {} if aux else {row.resource: row.number for row in known if not row.aux}
        named = {row.number for row in known if row.attempt == life.owner}
        for resource in resources:
            if resource not in numbers:
                numbers[resource] = next(fresh)
        common = {"txid": life.txid, "attempt": life.owner, "aux": aux}
        fresh_ones = [each for each in resources if numbers[each] not in named]
        if values := [{"number": numbers[each], "resource": each, **common} for each in fresh_ones]:
            self._connection.execute(text(BRANCHES["name"].format(s=self._schema)), values)
        return [numbers[resource] for resource in resources]

    def record_votes(self, txid: int, votes: Sequence[BranchVote]) -> None:
        """Record what branches voted, in the ledger block of the decision that names them."""
        for number, attempt, vote in votes:
            voted = {"state": VOTED[vote].value, "why": NOTHING_DONE if vote is Vote.READ_ONLY else None}
            self._run(BRANCHES["vote"], txid=txid, number=number, attempt=attempt, open=OPEN, **voted)

    def forget(self, txid: int, number: int, attempt: int) -> bool:
        """Forget a branch whose outcome contradicts its decision; return whether it was one."""
        same = {"txid": txid, "number": number, "attempt": attempt}
        return self._run(BRANCHES["forget"], **same, standing=STANDING).rowcount == 1

    def has_open_saga(self, txid: int) -> bool:
        """Return whether a rolled back transaction still has something to undo (R6)."""
        return bool(self._run(STEPS["uncompensated"], txid=txid).scalar())

    def move_step(self, txid: int, number: int, event: StepEvent, why: str) -> bool:
        """Change the state of a step by hand and let its saga continue at once; False if the table forbids it."""
        sources = [state.value for state in STEP.sources(event)]
        values = {"number": number, "target": TARGETS[event].value, "sources": sources, "why": kept(why)}
        moved = self._run(STEPS["move"], txid=txid, **values).rowcount == 1
        if moved:
            self._run(STEPS["wake"], txid=txid)
        return moved
