"""
What every step of a flow reads and writes, each in one round trip.

A task of a flow is a process with a new session, in which each separate statement costs a millisecond or more.

The row of the transaction is locked by a statement before those that read: they see what the previous holder of the
lock left (R3). A single statement would see the flow as it was before it waited for the lock.
"""

from __future__ import annotations

import json
from collections import namedtuple
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection

from txsaga.checkback.questions import kept
from txsaga.core.decision import Decision
from txsaga.core.lifecycle import TxState
from txsaga.core.records import TxRecord
from txsaga.flows.declaration import Hold
from txsaga.flows.ports import Entered
from txsaga.flows.step import STEP, TARGETS, Left, StepEvent
from txsaga.flows.step_records import Amendment, Enrolled, FlowStep, FlowStepState, Journalled
from txsaga.store import sql_files
from txsaga.store.connection import translating

AMENDS = -1
"""The place of an amendment among the effects of its transaction: before ties and late bodies."""
FIELDS = [name for name in FlowStep._fields if name != "statements"]
SQL = sql_files.read("flows/sql/flow.sql")
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
    """The round trips of a step's attempt, in one (quoted) namespace."""

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
