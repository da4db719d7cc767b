"""Flows that are rolled back once some of their steps have committed by themselves, and what must be left of them.

Four steps leave a line: one in a database at once, one in a lane that is committed, one in held work, one outside of
any database. What was done and undone is counted later, by the flow: nothing here keeps a line from being there twice.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

from sqlalchemy import text

from tests.chaos import coordinated, sagas
from tests.chaos.coordinated import TILL_TOLD, teller
from tests.chaos.houses import prepared
from tests.chaos.saga_matrix import WRONG, lines
from tests.chaos.sagas import call, call_off, undo, write
from tests.chaos.world import BANK, MORTGAGE, World, database
from txsaga.broker import Broker
from txsaga.errors import StepDone
from txsaga.flows.flow import Flow

AT_ONCE, LANE, HELD, OUTSIDE = 1, 2, 3, 4
MARK = "Publishing:1"
"""The news that the roles begin with: their own facts are those of another program."""
FLOWS = "SELECT txid FROM {s}.tx WHERE lease IS NOT NULL"


@TILL_TOLD
def give_up(broker: Broker, world: World) -> None:
    """Do four steps, and roll back; what was done before a kill is not done again."""
    sagas._here.append(world)
    with teller(broker).begin_flow(BANK, lanes=[MORTGAGE], key="trip-7") as flow:
        _steps(flow)
        flow.roll_back("the customer left")
    recover(broker, world)


def _steps(flow: Flow) -> None:
    def given(step: int) -> dict[str, object]:
        return {"saga": flow.txid, "step": step}

    flow.call("at once", write, on=BANK, compensate=undo, input=given(AT_ONCE))
    with suppress(StepDone), flow.step("lane", lane=MORTGAGE, compensate=undo, input=given(LANE)) as connection:
        write(connection, flow.txid, LANE)
    flow.lane(MORTGAGE).commit()
    with suppress(StepDone), flow.step("held", on=BANK, compensate=undo, input=given(HELD)) as connection:
        write(connection, flow.txid, HELD)
    flow.call("outside", call, compensate=call_off, input=given(OUTSIDE))


def recover(broker: Broker, world: World) -> None:
    """Run the roles until nothing is undecided, held, or to be undone."""
    sagas._here.append(world)
    coordinated.recover(broker, world)
    sagas.recover(broker, world)


def undone(world: World) -> None:
    """Every step that committed by itself is undone, once; of what was held nothing ever was."""
    with database(world.home_database) as engine, engine.connect() as connection:
        wrong = {what: connection.execute(text(sql.format(s=world.name))).all() for what, sql in WRONG.items()}
        assert not any(wrong.values()), wrong
        flows = list(connection.execute(text(FLOWS.format(s=world.name))).scalars())
        (store,) = connection.execute(text(f"SELECT replace(uuid::text, '-', '') FROM {world.name}.store")).one()
    counted = Counter(line for resource in (BANK, MORTGAGE) for line in lines(world, resource))
    said = Counter(world.notes("calls"))
    for txid in flows:
        for step in (AT_ONCE, LANE):
            assert counted[txid, step, "do"] == counted[txid, step, "undo"] <= 1, counted
        assert counted[txid, HELD, "do"] == counted[txid, HELD, "undo"] == 0, counted
        did, undid = said[f"{txid} {OUTSIDE} do"], said[f"{txid} {OUTSIDE} undo"]
        assert did <= 2 and undid <= 2 and (undid > 0 or not did), said
    for resource in (BANK, MORTGAGE):
        with database(world.resources[resource]) as engine, engine.connect() as connection:
            assert prepared(connection, str(store)) == []
