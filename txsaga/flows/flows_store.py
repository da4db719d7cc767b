"""
Flows on PostgreSQL: the rows of one locked flow, and the locks that all flows hold.

The caller has locked the flow's row in the same transaction: no two processes change one flow at the same time, and
nothing is written after its decision (R3).
"""

from __future__ import annotations

import json
from collections import namedtuple
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import (
    Connection,
    Engine,
    Interval,
    String,
    and_,
    cast,
    delete,
    func,
    insert,
    literal,
    null,
    select,
    text,
    tuple_,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.dialects.postgresql import insert as upsert

from txsaga.checkback.profile import LEASE
from txsaga.checkback.questions import kept
from txsaga.core.decision import Decision
from txsaga.core.lifecycle import TxState
from txsaga.core.records import TxRecord
from txsaga.errors import EffectConflict, TransactionClosed, VotedNo
from txsaga.flows.branch import BRANCH, BranchEvent, BranchState, Vote
from txsaga.flows.calls import Entered, NamedBranch, Start
from txsaga.flows.declaration import Hold
from txsaga.flows.step import STEP, TARGETS, Left, StepEvent, StepState
from txsaga.flows.step_records import (
    HOME,
    Amendment,
    Enrolled,
    FlowStep,
    FlowStepState,
    FlowUnit,
    HeldLocks,
    Journalled,
    Overdue,
)
from txsaga.flows.store_tables import saga, step
from txsaga.resources import journal
from txsaga.store import schema, sql_files
from txsaga.store.connection import transaction, translating

SQL = sql_files.read("flows/sql/flow.sql")

AMENDS = -1
"""The place of an amendment among the effects of its transaction: before ties and late bodies."""
FIELDS = [name for name in FlowStep._fields if name != "statements"]
RECORD, READ = SQL["record"], [SQL[name] for name in ("outcome", "resources", "steps")]

WRITTEN = [name for name in FIELDS if name not in ("started", "ended", "late")]
"""Columns that are written when an attempt begins; the server fills in the others."""
START = f"""
INSERT INTO {{s}}.flow_step (txid, {", ".join(WRITTEN)})
VALUES (%(txid)s, {", ".join(f"%({name})s" for name in WRITTEN)})"""
JOURNAL = """
recorded AS (
    INSERT INTO {s}.flow_statement (txid, step, seq, resource, unit, text, parameters, rows)
    SELECT %(txid)s, %(number)s, j.seq, j.resource, j.unit, j.text, j.parameters::jsonb, j.rows
      FROM unnest(%(seqs)s::int[], %(resources)s::text[], %(units)s::int[], %(texts)s::text[], %(parameters)s::text[],
                  %(rows)s::int[]) AS j (seq, resource, unit, text, parameters, rows)),"""


OfTx = namedtuple("OfTx", "txid pgroup token key epoch owner state evidence run coordinator lease")


class FlowRounds:
    """What every attempt of a step reads and writes, in one (quoted) namespace: each in one round trip.

    A task of a flow is a process with a new session, in which each separate statement costs a millisecond or more. The
    row of the transaction is locked by a statement before those that read: they see what the previous holder of the
    lock left (R3). A single statement would see the flow as it was before it waited for the lock.
    """

    def __init__(self, s: str, token: str, unlist: str) -> None:
        self._s, self._token, self._unlist = s, token, unlist

    def look(self, connection: Connection, txid: int) -> Entered | None:
        """Return a flow without locking it."""
        return self._asked(connection, txid, [RECORD.replace("{lock}", ""), *READ])

    def enter(self, connection: Connection, txid: int) -> Entered | None:
        """Lock a flow, renew its lease, and return it."""
        locked = RECORD.replace("{lock}", " FOR UPDATE")
        return self._asked(connection, txid, [locked, SQL["touch"], "{unlist}", *READ])

    def start(self, connection: Connection, txid: int, step: FlowStep) -> None:
        """Record a new attempt."""
        self._run(connection, START.format(s=self._s), {**_values(step), "txid": txid})

    def finish(
        self, connection: Connection, txid: int, step: FlowStep, journal: Sequence[Journalled], output: str | None
    ) -> None:
        """Record that an attempt is done, with its journal statements."""
        sources = [state.value for state in STEP.sources(StepEvent.FINISH)]
        declared = {"target": TARGETS[StepEvent.FINISH].value, "left": Left.WORK.value, "sources": sources}
        values = {**_values(step), **declared, "txid": txid, "output": output}
        if journal:
            values |= {
                "seqs": [each.seq for each in journal],
                "resources": [each.resource for each in journal],
                "units": [each.unit for each in journal],
                "texts": [each.text for each in journal],
                "parameters": [json.dumps(dict(each.parameters)) for each in journal],
                "rows": [each.rows for each in journal],
            }
        record = JOURNAL.format(s=self._s) if journal else ""
        self._run(connection, SQL["finish"].format(s=self._s, record=record), values)

    def _run(self, connection: Connection, statement: str, values: dict[str, Any]) -> None:
        with translating():
            connection.exec_driver_sql(statement, values).close()

    def _asked(self, connection: Connection, txid: int, questions: Sequence[str]) -> Entered | None:
        token = self._token.format(s=self._s, group="pgroup", txid="txid")
        fields = ", ".join(f"f.{name}" for name in FIELDS)
        unlist = self._unlist.format(s=self._s).replace(":txid", str(int(txid)))
        sql = ";\n".join(questions).format(
            s=self._s, token=token, txid=int(txid), unlist=unlist, amends=AMENDS, fields=fields
        )
        with translating():
            result = connection.exec_driver_sql(sql, execution_options={"no_parameters": True})
            found = _rows_of(result.cursor)
            result.close()
        lives, ((decision, amendment),), enrolled, steps = found[0], *found[-3:]  # a function's rows may lie in between
        if not lives:
            return None
        return Entered(
            life=life_of(OfTx(*lives[0])),
            standing=None if decision is None else Decision(decision),
            amendment=None if amendment is None else Amendment(**amendment),
            enrolled=[Enrolled(name, lane, timedelta(seconds=budget)) for name, lane, budget in enrolled],
            steps=[_step(row) for row in steps],
        )


def _rows_of(cursor: Any) -> list[list[Any]]:
    """Return the rows of each answer that has rows, in order."""
    found = []
    while True:
        if cursor.description is not None:
            found.append(cursor.fetchall())
        if not cursor.nextset():
            return found


def life_of(row: Any) -> TxRecord:
    """Return the record in a row of `tx` with its token."""
    return TxRecord(
        txid=row.txid,
        group=row.pgroup,
        token=row.token,
        key=row.key,
        epoch=row.epoch,
        owner=row.owner,
        state=TxState(row.state),
        evidence=row.evidence,
        run=row.run,
        coordinator=row.coordinator,
        lease=None if row.lease is None else timedelta(seconds=row.lease),
    )


def _step(row: Any) -> FlowStep:
    values = dict(zip(FIELDS, row, strict=False))
    hold = values["hold"] and Hold(values["hold"])
    return FlowStep(**{**values, "state": FlowStepState(values["state"]), "hold": hold}, statements=row[-1])


def _values(step: FlowStep) -> dict[str, Any]:
    values = {name: getattr(step, name) for name in WRITTEN}
    return values | {"state": step.state.value, "hold": step.hold and step.hold.value, "why": kept(step.why)}


tx, branch, effect = schema.tx, schema.branch, schema.effect
resource_of, step_of, unit_of, statement_of = (
    schema.flow_resource,
    schema.flow_step,
    schema.flow_unit,
    schema.flow_statement,
)
NOW = func.clock_timestamp()
OPEN = [state.value for state in BRANCH.sources(BranchEvent.ROLL_BACK)]
LEFT = {Vote.PREPARED: BranchState.ENDED, Vote.READ_ONLY: BranchState.COMMITTED}
SETTLED = {Decision.COMMIT: BranchState.PREPARED.value, Decision.ROLLBACK: branch.c.state}
"""Committing a unit marks its branches as prepared; others keep their state and are rolled back."""


class FlowLedger:
    """The rows of one locked flow inside one database transaction."""

    def __init__(self, connection: Connection, rounds: FlowRounds, lock: Callable[[int], TxRecord | None]) -> None:
        self._connection, self._rounds, self._lock = connection, rounds, lock

    def look(self, txid: int) -> Entered | None:
        """Return a flow as it is, without a lock."""
        return self._rounds.look(self._connection, txid)

    def enter(self, txid: int) -> Entered | None:
        """Lock a flow as `Ledger.lock` does, and return it; if it is open, show that a process is at work in it."""
        return self._rounds.enter(self._connection, txid)

    def enrol(self, txid: int, enrolled: Sequence[Enrolled]) -> None:
        """Store what a flow may work in."""
        rows = [
            {"txid": txid, "resource": each.resource, "lane": each.lane, "budget": each.budget.total_seconds()}
            for each in enrolled
        ]
        if rows:
            self._run(insert(resource_of), rows)

    def enrolled(self, txid: int) -> Sequence[Enrolled]:
        """Return what a flow may work in, by name."""
        c = resource_of.c
        rows = self._run(select(c.resource, c.lane, c.budget).where(c.txid == txid).order_by(c.resource, c.lane))
        return [Enrolled(row.resource, row.lane, timedelta(seconds=row.budget)) for row in rows]

    def amend(self, txid: int, amendment: Amendment) -> None:
        """Store why a transaction record was begun, and what it amends; a repeated call overwrites it."""
        self._run(delete(effect).where(effect.c.txid == txid, effect.c.seq == AMENDS))
        row = {"txid": txid, "seq": AMENDS, "kind": "amends", "payload": amendment._asdict()}
        self._run(insert(effect).values(row))

    def amendment(self, txid: int) -> Amendment | None:
        """Return why a transaction record was begun, if that is stored."""
        c = effect.c
        found = self._run(select(c.payload).where(c.txid == txid, c.seq == AMENDS)).scalar()
        return None if found is None else Amendment(**found)

    def steps(self, txid: int, name: str | None = None) -> Sequence[FlowStep]:
        """Return every attempt of every step, or of one, in order."""
        return steps_of(self._connection, txid, name)

    def start(self, txid: int, step: FlowStep) -> None:
        """Write a new attempt; the journal of the previous one is deleted."""
        self._rounds.start(self._connection, txid, step)
        if step.attempt > 1:  # the previous one may have recorded statements
            self._run(delete(statement_of).where(statement_of.c.txid == txid, statement_of.c.step == step.number))

    def finish(self, txid: int, step: FlowStep, journal: Sequence[Journalled], output: str | None) -> None:
        """Write together that an attempt is done, its journal, and the result of its declared step."""
        self._rounds.finish(self._connection, txid, step, journal, output)

    def close(self, txid: int, step: FlowStep) -> None:
        """Record how an attempt ended."""
        c = step_of.c
        closed = update(step_of).where(c.txid == txid, c.number == step.number, c.attempt == step.attempt)
        values = {"state": step.state.value, "mark": step.mark, "why": kept(step.why), "branch": step.branch}
        self._run(closed.values(ended=func.clock_timestamp(), **values))

    def journal(self, txid: int) -> Sequence[Journalled]:
        """Return the statements of all steps, in the order of the steps."""
        c = statement_of.c
        fields = [c[name] for name in Journalled._fields]
        rows = self._run(select(*fields).where(c.txid == txid).order_by(c.step, c.seq))
        return [Journalled(*row) for row in rows]

    def units(self, txid: int) -> Sequence[FlowUnit]:
        """Return the units of all lanes, and of main work that was run from the journal."""
        return units_of(self._connection, txid)

    def put(self, txid: int, unit: FlowUnit) -> None:
        """Store the current state of a unit."""
        decision = None if unit.decision is None else int(unit.decision)
        values = {"branch": unit.branch, "attempt": unit.attempt, "decision": decision}
        fresh = upsert(unit_of).values(txid=txid, resource=unit.resource, number=unit.number, **values)
        changed = {**values, "at": func.clock_timestamp()}
        self._run(fresh.on_conflict_do_update(index_elements=["txid", "resource", "number"], set_=changed))

    def name(self, txid: int, resource: int, attempt: int, *, aux: bool, number: int | None = None) -> int:
        """Name an attempt of a branch, a new one or the one of that number; return its number."""
        if number is None:
            last = self._run(select(func.max(branch.c.number)).where(branch.c.txid == txid)).scalar()
            number = (last or 0) + 1
        values = {"number": number, "attempt": attempt, "resource": resource, "aux": aux}
        self._run(insert(branch).values(txid=txid, state=BranchState.ACTIVE.value, **values))
        return int(number)

    def hold(self, txid: int, branch: NamedBranch, vote: Vote) -> None:
        """Record that the work of a branch is over, and its vote."""
        self._change(txid, [branch], state=LEFT[vote].value)

    def settle(self, txid: int, branches: Sequence[NamedBranch], decision: Decision) -> None:
        """Decide branches on their own, independently of the flow; finished ones stay as they are."""
        if branches:
            self._change(txid, branches, decision=int(decision), state=SETTLED[decision])

    def declare(self, txid: int, start: Start, attempt: int) -> None:
        """Write what undoes a step before an attempt of it runs: it is used after ROLLBACK.

        It replaces what an earlier attempt declared, where the lifecycle allows that.
        """
        values: dict[str, Any] = {
            "name": start.name,
            "attempt": attempt,
            "state": StepState.STARTED.value,
            "kind": start.kind.value,
            "resource": start.resource,
            "input": _json(start.input),
            "compensation": _json(start.compensation),
            "left": Left.UNKNOWN.value,
        }
        fresh = upsert(step).values(txid=txid, number=start.number, **values)
        again = fresh.on_conflict_do_update(
            index_elements=["txid", "number"],
            set_={**values, "output": None, "error": None, "at": NOW},
            where=step.c.state.in_([state.value for state in STEP.sources(StepEvent.RETRY)]),
        )
        with translating():
            self._connection.execute(again)
            self._connection.execute(upsert(saga).values(txid=txid, ticket=0, until=_soon()).on_conflict_do_nothing())

    def mark(self, txid: int, number: int, event: StepEvent, left: Left, output: str | None, error: str) -> None:
        """Write what became of a declared step; it moves only by its lifecycle."""
        values = {"state": TARGETS[event].value, "left": left.value, "error": kept(error) or None, "at": NOW}
        if output is not None:
            values["output"] = _json(output)
        found = update(step).where(step.c.txid == txid, step.c.number == number)
        sources = [state.value for state in STEP.sources(event)]
        self._run(found.where(step.c.state.in_(sources)).values(**values))

    def let_stand(self, txid: int) -> None:
        """Have the steps of a flow left as they are: what they did stays."""
        self._run(delete(saga).where(saga.c.txid == txid))

    def take_over(self, txid: int) -> TxRecord:
        """Raise the owner: from here on only the new owner ends the flow, and steps can't be added.

        After ROLLBACK, its steps are reserved for this owner for a time.
        """
        raised = update(tx).where(tx.c.txid == txid, tx.c.state == TxState.ACTIVE.value)
        if self._run(raised.values(owner=tx.c.owner + 1, touched=func.clock_timestamp())).rowcount != 1:
            raise TransactionClosed(f"transaction {txid} is closed; nobody can end it any more")
        self._run(update(saga).where(saga.c.txid == txid).values(until=_soon()))
        life = self._lock(txid)
        assert life is not None
        return life

    def do_home_work(self, txid: int) -> None:
        """Execute what is journalled for the home database, in this very transaction.

        `EffectConflict` if a statement fails, or changes another number of rows.
        """
        statements = [each for each in self.journal(txid) if each.resource == HOME]
        try:
            with translating():
                journal.do(self._connection, statements, HOME)
        except VotedNo as no:
            raise EffectConflict(str(no)) from no

    def alarm(self, txid: int, number: int, attempt: int) -> bool:
        """Note that a step holds its locks for too long; return False if that was noted before."""
        c = step_of.c
        same = and_(c.txid == txid, c.number == number, c.attempt == attempt, ~c.late)
        return bool(self._run(update(step_of).where(same).values(late=True)).rowcount)

    def _change(self, txid: int, branches: Sequence[NamedBranch], **values: Any) -> None:
        named = tuple_(branch.c.number, branch.c.attempt).in_(list(branches))
        changed = update(branch).where(branch.c.txid == txid, named, branch.c.state.in_(OPEN))
        self._run(changed.values(at=func.clock_timestamp(), **values))

    def _run(self, statement: Any, values: Any = None) -> Any:
        with translating():
            return self._connection.execute(statement, values)


class Flows:
    """The locks that undecided flows of one namespace hold."""

    def __init__(self, engine: Engine, namespace: str) -> None:
        self._engine, self._s = engine, f'"{namespace}"'

    def held(self) -> Sequence[HeldLocks]:
        """Return what is held in each resource, by name."""
        with transaction(self._engine) as connection:
            return [HeldLocks(*row) for row in connection.execute(text(SQL["held"].format(s=self._s)))]

    def overdue(self, limit: int = 1_000) -> Sequence[Overdue]:
        """Return steps that hold their locks for longer than their budget and were not reported yet."""
        with transaction(self._engine) as connection:
            return [
                Overdue(*row) for row in connection.execute(text(SQL["overdue"].format(s=self._s)), {"limit": limit})
            ]


def steps_of(connection: Connection, txid: int, name: str | None = None) -> list[FlowStep]:
    """Read the attempts of the steps of a flow, or of one step."""
    c, s = step_of.c, statement_of.c
    count = select(func.count()).where(s.txid == c.txid, s.step == c.number, c.state == FlowStepState.DONE.value)
    query = select(step_of, count.scalar_subquery().label("statements")).where(c.txid == txid)
    if name is not None:
        query = query.where(c.name == name)
    with translating():
        rows = connection.execute(query.order_by(c.number, c.attempt)).mappings().all()
    return [
        FlowStep(
            **{name: row[name] for name in FlowStep._fields if name not in ("state", "hold")},
            state=FlowStepState(row["state"]),
            hold=row["hold"] and Hold(row["hold"]),
        )
        for row in rows
    ]


def units_of(connection: Connection, txid: int) -> list[FlowUnit]:
    """Read the units of a flow."""
    c = unit_of.c
    with translating():
        rows = connection.execute(select(unit_of).where(c.txid == txid).order_by(c.resource, c.number)).all()
    return [
        FlowUnit(r.resource, r.number, r.branch, r.attempt, r.decision and Decision(r.decision), r.at) for r in rows
    ]


def _soon() -> Any:
    return NOW + literal(LEASE, Interval)


def _json(text: str | None) -> Any:
    return null() if text is None else cast(literal(text, String), JSONB)
