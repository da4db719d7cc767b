"""
Compensations of a flow's steps, in the tables that a saga's driver reads.

Each is written in the commit that begins an attempt (R6). If it came later, a process that dies in between would leave
work that is never undone.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Interval, String, cast, delete, func, literal, null, update
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.dialects.postgresql import insert as upsert

from txsaga.checkback.profile import LEASE
from txsaga.checkback.questions import kept
from txsaga.flows.ports import Start
from txsaga.flows.step import STEP, TARGETS, Left, StepEvent, StepState
from txsaga.flows.store_tables import saga, step

NOW = func.clock_timestamp()


def declare(connection: Connection, txid: int, start: Start, attempt: int) -> None:
    """Record what undoes a step; an earlier attempt's record is replaced where the lifecycle allows that."""
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
    connection.execute(again)
    connection.execute(upsert(saga).values(txid=txid, ticket=0, until=_soon()).on_conflict_do_nothing())


def mark(
    connection: Connection, txid: int, number: int, event: StepEvent, left: Left, output: str | None, error: str
) -> None:
    """Record the outcome of a declared step."""
    values = {"state": TARGETS[event].value, "left": left.value, "error": kept(error) or None, "at": NOW}
    if output is not None:
        values["output"] = _json(output)
    found = update(step).where(step.c.txid == txid, step.c.number == number)
    sources = [state.value for state in STEP.sources(event)]
    connection.execute(found.where(step.c.state.in_(sources)).values(**values))


def let_stand(connection: Connection, txid: int) -> None:
    """Stop all handling of a flow's steps: what they did stays."""
    connection.execute(delete(saga).where(saga.c.txid == txid))


def leave_to_owner(connection: Connection, txid: int) -> None:
    """Let only the owner drive a flow for one lease, once it is decided."""
    connection.execute(update(saga).where(saga.c.txid == txid).values(until=_soon()))


def _soon() -> Any:
    return NOW + literal(LEASE, Interval)


def _json(text: str | None) -> Any:
    return null() if text is None else cast(literal(text, String), JSONB)
