"""Steps that say what they do, and what undoes them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, text

from tests.flows.flow.desks import CHANGE, Desks
from txsaga import compensation
from txsaga.flows.flow import Flow
from txsaga.flows.saga_driver import SagaRecovery

said: list[str] = []
broken: list[str] = []


def call(what: str) -> str:
    """Do a step that leaves no evidence."""
    said.append(what)
    return f"reference of {what}"


def fail(what: str) -> None:
    """Do it, and fail."""
    said.append(what)
    raise ValueError(what)


@compensation("desk-call-off")
def call_off(what: str) -> None:
    """Undo it."""
    if what in broken:
        raise ValueError(f"{what} can't be undone")
    said.append(f"undo {what}")


@compensation("desk-return")
def give_back(connection: Connection, output: object, id: int) -> None:
    """Undo a change in a database."""
    connection.execute(text(CHANGE), {"amount": -1, "id": id})
    said.append(f"give back {output}")


@compensation("desk-correct")
def correct(connection: Connection, what: str) -> None:
    """Undo what a lane committed."""
    connection.execute(text(CHANGE), {"amount": -1, "id": 1})
    said.append(f"undo {what}")


def change(connection: Connection, id: int) -> str:
    """Change a balance."""
    connection.execute(text(CHANGE), {"amount": 1, "id": id})
    return "one"


def undone_by(what: str) -> dict[str, Any]:
    """Say what undoes a step."""
    return {"compensate": call_off, "input": {"what": what}}


def journal(flow: Flow, lane: str, what: str) -> None:
    """Do a step of a lane, and commit it."""
    with flow.step(what, lane=lane, compensate=correct, input={"what": what}) as connection:
        connection.execute(text(CHANGE), {"amount": 1, "id": 1})
    flow.lane(lane).commit()


def states(desks: Desks, txid: int) -> list[str]:
    """Return where the declared steps stand."""
    return [step.state.value for step in desks.bank.broker.kernel.store.work.steps(txid)]


def take_over(desks: Desks) -> int:
    """See to what nobody drives, as an engine does."""
    desks.stored.rows("UPDATE saga SET until = until - interval '1 hour'")
    return SagaRecovery(desks.bank.broker.kernel, threads=1).run_once()
