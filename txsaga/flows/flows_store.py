"""
Flows on PostgreSQL: the rows of one locked flow, and the locks that all flows hold.

The caller has locked the flow's row in the same transaction: no two processes change one flow at the same time, and
nothing is written after its decision (R3).

A task of a flow is a process with a new session, in which each separate statement costs a millisecond or more. So an
attempt of a step reads what it needs in one round trip, and its begin and its end are one statement each.
"""

from __future__ import annotations

import json
from collections import namedtuple
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection

from txsaga.checkback.profile import LEASE
from txsaga.checkback.questions import kept
from txsaga.core.decision import Decision
from txsaga.core.lifecycle import TxState
from txsaga.core.records import TxRecord
from txsaga.errors import EffectConflict, TransactionClosed, VotedNo
from txsaga.flows.branch import BRANCH, BranchEvent, BranchState, Vote
from txsaga.flows.journal import JournalEntry, Journalled
from txsaga.flows.requests import Entered, NamedBranch
from txsaga.flows.step import HOME, Amendment, Enrolled, HeldLocks, Hold, Left, Overdue, Step, StepKind, StepState, Unit
from txsaga.resources import journal
from txsaga.store import sql_files
from txsaga.store.connection import NamespaceStore

SQL = sql_files.read("flows/sql/flow.sql")

AMENDS = -1
"""The place of an amendment among the effects of its transaction: before ties and late bodies."""
OPEN = [state.value for state in BRANCH.sources(BranchEvent.ROLL_BACK)]
LEFT = {Vote.PREPARED: BranchState.ENDED, Vote.READ_ONLY: BranchState.COMMITTED}

_READ_AS = {
    **{name: f"{name}::text" for name in ("input", "compensation", "action", "output")},
    "statements": "coalesce(jsonb_array_length(journal), 0)",
    "left": '"left"',
    "error": "coalesce(error, '')",
}
COLUMNS = ", ".join(_READ_AS.get(name, name) for name in Step._fields)
"""What is read of a step, in the order of its record."""

OfTx = namedtuple("OfTx", "txid pgroup token key epoch owner state evidence run coordinator lease")


def step_of(row: Any) -> Step:
    """Read a row of `COLUMNS`."""
    step = Step(*row)
    return step._replace(
        state=StepState(step.state),
        hold=None if step.hold is None else Hold(step.hold),
        kind=None if step.kind is None else StepKind(step.kind),
        input=step.input or "{}",
        left=Left(step.left),
    )


def unit_of(row: Any) -> Unit:
    """Read a row of the units of a flow."""
    unit = Unit(*row)
    return unit._replace(decision=None if unit.decision is None else Decision(unit.decision))


class FlowLedger:
    """The rows of one locked flow inside one database transaction."""

    def __init__(self, connection: Connection, texts: tuple[str, str, str]) -> None:
        self._connection = connection
        self._s, self._token, self._unlist = texts  # the (quoted) namespace, and how the two are asked for there

    def look(self, txid: int) -> Entered | None:
        """Return a flow as it is, without a lock."""
        return self._asked(txid, SQL["record"].replace("{lock}", ""))

    def enter(self, txid: int) -> Entered | None:
        """Lock a flow as `Ledger.lock` does, and return it; if it is open, show that a process is at work in it.

        A statement of its own locks the row before those that read: they see what the previous holder of the lock left
        (R3). A single one would see the flow as it was before it waited for the lock.
        """
        return self._asked(txid, SQL["record"].replace("{lock}", " FOR UPDATE"), SQL["touch"], "{unlist}")

    def enrol(self, txid: int, enrolled: Sequence[Enrolled]) -> None:
        """Store what a flow may work in."""
        names, lanes = [each.resource for each in enrolled], [each.lane for each in enrolled]
        seconds = [each.budget.total_seconds() for each in enrolled]
        self._run("enrol", txid=txid, resources=names, lanes=lanes, budgets=seconds)

    def enrolled(self, txid: int) -> Sequence[Enrolled]:
        """Return what a flow may work in, by name."""
        return [_enrolled(row) for row in self._run("resources", txid).all()]

    def amend(self, txid: int, amendment: Amendment) -> None:
        """Store why a transaction record was begun, and what it amends; a repeated call overwrites it."""
        self._run("forget_amendment", txid=txid, seq=AMENDS)
        self._run("amend", txid=txid, seq=AMENDS, payload=json.dumps(amendment._asdict()))

    def amendment(self, txid: int) -> Amendment | None:
        """Return why a transaction record was begun, if that is stored."""
        _, found = self._run("outcome", txid).one()
        return None if found is None else Amendment(**found)

    def steps(self, txid: int, name: str | None = None) -> Sequence[Step]:
        """Return every attempt of every step, or of one, in order."""
        found = self._run("steps", txid) if name is None else self._run("attempts", txid=txid, name=name)
        return [step_of(row) for row in found]

    def start(self, step: Step) -> None:
        """Write a new attempt; what undoes its step moves on to it."""
        self._run("start", **_values(step), lease=LEASE.total_seconds())

    def end(self, step: Step, entries: Sequence[JournalEntry] = ()) -> None:
        """Write together how an attempt ended, its result, and its journal."""
        written = json.dumps([each._asdict() for each in entries]) if entries else None
        self._run("end", **_values(step), journal=written)

    def journal(self, txid: int) -> Sequence[Journalled]:
        """Return the statements of all steps, in the order of the steps."""
        return [Journalled(*row) for row in self._run("journal", txid=txid)]

    def units(self, txid: int) -> Sequence[Unit]:
        """Return the units of all lanes, and of main work that was run from the journal."""
        return [unit_of(row) for row in self._run("units", txid)]

    def put(self, txid: int, unit: Unit) -> None:
        """Store the current state of a unit."""
        decision = None if unit.decision is None else int(unit.decision)
        self._run("put", txid=txid, **{**unit._asdict(), "decision": decision})

    def name(self, txid: int, resource: int, attempt: int, *, aux: bool, number: int | None = None) -> int:
        """Name an attempt of a branch, a new one or the one of that number; return its number."""
        named = self._run("name", txid=txid, resource=resource, attempt=attempt, aux=aux, number=number)
        return int(named.scalar_one())

    def hold(self, txid: int, branch: NamedBranch, vote: Vote) -> None:
        """Record that the work of a branch is over, and its vote."""
        self._change(txid, [branch], LEFT[vote], None)

    def settle(self, txid: int, branches: Sequence[NamedBranch], decision: Decision) -> None:
        """Decide branches on their own, independently of the flow; finished ones stay as they are."""
        if branches:
            self._change(txid, branches, BranchState.PREPARED if decision is Decision.COMMIT else None, decision)

    def drop_compensations(self, txid: int) -> None:
        """Have the steps of a flow left as they are: what they did stays."""
        self._run("drop_compensations", txid=txid)

    def take_over(self, life: TxRecord) -> TxRecord:
        """Raise the owner: from here on only the new owner ends the flow, and steps can't be added."""
        owner = self._run("take_over", txid=life.txid, lease=LEASE.total_seconds()).scalar()
        if owner is None:
            raise TransactionClosed(f"transaction {life.txid} is sealed; it can't be ended again")
        return replace(life, owner=owner)

    def do_home_work(self, txid: int) -> None:
        """Execute what is journalled for the home database, in this very transaction.

        `EffectConflict` if a statement fails, or changes another number of rows.
        """
        statements = [each for each in self.journal(txid) if each.resource == HOME]
        try:
            journal.do(self._connection, statements, HOME)
        except VotedNo as no:
            raise EffectConflict(str(no)) from no

    def alarm(self, txid: int, number: int, attempt: int) -> bool:
        """Note that a step holds its locks for too long; return False if that was noted before."""
        return bool(self._run("alarm", txid=txid, number=number, attempt=attempt).rowcount)

    def _change(
        self, txid: int, branches: Sequence[NamedBranch], state: BranchState | None, decision: Decision | None
    ) -> None:
        numbers, attempts = ([each[at] for each in branches] for at in range(2))
        values = {"state": state and state.value, "decision": decision and int(decision), "open": OPEN}
        self._run("change", txid=txid, numbers=numbers, attempts=attempts, **values)

    def _run(self, name: str, of: int | None = None, /, **values: Any) -> Any:
        statement = SQL[name].format(s=self._s, txid=of, columns=COLUMNS, amends=AMENDS)
        return self._connection.exec_driver_sql(statement, values)

    def _asked(self, txid: int, *first: str) -> Entered | None:
        token = self._token.format(s=self._s, group="pgroup", txid="txid")
        unlist = self._unlist.format(s=self._s).replace(":txid", str(int(txid)))
        sql = ";\n".join([*first, *(SQL[name] for name in ("outcome", "resources", "steps"))]).format(
            s=self._s, token=token, txid=int(txid), unlist=unlist, amends=AMENDS, columns=COLUMNS
        )
        result = self._connection.exec_driver_sql(sql, execution_options={"no_parameters": True})
        found = _rows_of(result.cursor)
        result.close()
        lives, ((decision, amendment),), enrolled, steps = found[0], *found[-3:]  # a function's rows may lie in between
        if not lives:
            return None
        return Entered(
            life=life_of(OfTx(*lives[0])),
            standing=None if decision is None else Decision(decision),
            amendment=None if amendment is None else Amendment(**amendment),
            enrolled=[_enrolled(row) for row in enrolled],
            steps=[step_of(row) for row in steps],
        )


class Flows(NamespaceStore):
    """The locks that undecided flows of one namespace hold."""

    def held(self) -> Sequence[HeldLocks]:
        """Return what is held in each resource, by name."""
        return [HeldLocks(*row) for row in self._rows(SQL["held"])]

    def overdue(self, limit: int = 1_000) -> Sequence[Overdue]:
        """Return steps that hold their locks for longer than their budget and were not reported yet."""
        return [Overdue(*row) for row in self._rows(SQL["overdue"], limit=limit)]


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


def _rows_of(cursor: Any) -> list[list[Any]]:
    """Return the rows of each answer that has rows, in order."""
    found = []
    while True:
        if cursor.description is not None:
            found.append(cursor.fetchall())
        if not cursor.nextset():
            return found


def _enrolled(row: Any) -> Enrolled:
    resource, lane, budget = row
    return Enrolled(resource, lane, timedelta(seconds=budget))


def _values(step: Step) -> dict[str, Any]:
    return step._asdict() | {"error": kept(step.error) or None, "input": step.input if step.kind else None}
