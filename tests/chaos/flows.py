"""Flows whose steps run in processes of their own: each step as a program to kill, and a host that runs them again.

Main work is booked in two databases, in one held prepared and in the other in the journal; the lane books in a third,
in both ways, and is committed before the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Connection, inspect, text

from tests.chaos.coordinated import PATIENCE, TILL_TOLD, book, recover, teller
from tests.chaos.houses import prepared
from tests.chaos.invariants import delivered
from tests.chaos.scenarios import CREDITS, HOLD, ORDERS
from tests.chaos.world import BANK, MORTGAGE, World, database
from txsaga.broker import Broker
from txsaga.consume.dispatcher import Dispatcher
from txsaga.errors import AlreadyCommitted, StepDone
from txsaga.flows.flow import Flow
from txsaga.flows.journal import Journal

LEDGER, TAKERS = "ledger", "takers"
KEY = "rent"
MARK = "Publishing:1"
"""From here on the rest of a flow is at work, whose facts are those of other programs."""
UPDATE = "UPDATE account SET balance = balance + 1 WHERE id = :id"
INSERT = "INSERT INTO debit VALUES (:row, :half)"


def ordered(broker: Broker, world: World) -> None:
    """Send the one order that every flow tries to take."""
    broker.create_topic(ORDERS, queues=1)
    broker.create_group(TAKERS, max_attempts=None, first_retry=timedelta(0))
    broker.producer("desk").send(ORDERS, b"1")
    dispatcher = Dispatcher(broker.kernel)
    while dispatcher.run_once():
        pass


def begin(broker: Broker, flow: Flow) -> None:
    """Have it begun."""


def debit(broker: Broker, flow: Flow) -> None:
    """Book in the bank, held prepared."""
    with suppress(StepDone), flow.step("debit", on=BANK) as connection:
        book(connection, "1", flow.txid)


def credit(broker: Broker, flow: Flow) -> None:
    """Book in the other house, in the journal."""
    with suppress(StepDone), flow.step("credit", on=MORTGAGE, hold="journal") as journal:
        write(journal, "1", flow.txid)


def audit(broker: Broker, flow: Flow) -> None:
    """Book in the lane, held prepared."""
    with suppress(StepDone), flow.step("audit", lane=LEDGER) as connection:
        book(connection, "1", flow.txid)


def note(broker: Broker, flow: Flow) -> None:
    """Book in the lane, in the journal."""
    with suppress(StepDone), flow.step("note", lane=LEDGER, hold="journal") as journal:
        write(journal, "2", flow.txid)


def take(broker: Broker, flow: Flow) -> None:
    """Take the order; what a dead process has taken comes again soon."""
    with suppress(StepDone), flow.step("take"), broker.consumer(TAKERS, [ORDERS], invisible=HOLD) as consumer:
        (order,) = consumer.receive(1, wait=PATIENCE)
        flow.consume(order)


def settle(broker: Broker, flow: Flow) -> None:
    """Commit the lane."""
    flow.lane(LEDGER).commit()


def tell(broker: Broker, flow: Flow) -> None:
    """Tell of it."""
    with suppress(StepDone), flow.step("tell"):
        flow.send(CREDITS, f"1 {flow.txid}".encode(), key="1")


def end(broker: Broker, flow: Flow) -> None:
    """End it."""
    flow.end()


STEPS: tuple[Callable[[Broker, Flow], None], ...] = (begin, debit, credit, audit, note, take, settle, tell, end)


def write(journal: Journal, id: str, txid: int) -> None:
    """Journal what `book` does at once."""
    journal.execute(UPDATE, {"id": int(id)}, rows=1)
    journal.execute(INSERT, {"row": id, "half": str(txid)}, rows=1)


@dataclass(frozen=True)
class Program:
    """One step in a process of its own; what comes behind it follows in brokers of their own."""

    step: int

    @property
    def __name__(self) -> str:
        """Name it by its step."""
        return STEPS[self.step].__name__

    def __call__(self, broker: Broker, world: World) -> None:
        """Do the step, then the rest."""
        with TILL_TOLD:
            _do(broker, STEPS[self.step])
            broker.create_topic("nudges", queues=1)
            broker.producer("nudger").send("nudges", b"")  # the mark
        carry_on(broker, world)


@dataclass(frozen=True)
class Upto:
    """The steps up to one, each in a process of its own, and nothing behind them."""

    step: int

    @property
    def __name__(self) -> str:
        """Name it by its step."""
        return f"up to {STEPS[self.step].__name__}"

    def __call__(self, broker: Broker, world: World) -> None:
        """Do them."""
        from tests.chaos.child import opened

        for step in STEPS[: self.step + 1]:
            with opened(world, {}) as own:
                _do(own, step)


def carry_on(broker: Broker, world: World) -> None:
    """Run every step again, each in a broker of its own, until it is done; then let everybody hear of it."""
    with suppress(AlreadyCommitted):
        Upto(len(STEPS) - 1)(broker, world)
    recover(broker, world)


def _do(broker: Broker, step: Callable[[Broker, Flow], None]) -> None:
    flow = teller(broker).begin_flow(BANK, MORTGAGE, lanes=[LEDGER], key=KEY)
    with flow:
        step(broker, flow)


# Each of these must find nothing in the store once everything is over.
WRONG = {
    "a flow that is not over": "SELECT txid, state FROM {s}.tx WHERE state NOT IN ('committed', 'rolled_back')",
    "a branch in no final state": "SELECT * FROM {s}.branch WHERE state NOT IN ('committed', 'rolled_back')",
    "a branch that stands against its own decision": """
        SELECT b.* FROM {s}.branch b LEFT JOIN {s}.op o USING (txid)
         WHERE coalesce(b.decision, o.decision) = 2 AND b.state = 'committed'""",
    "a step that counts in a flow that committed, and is not committed": """
        SELECT s.* FROM {s}.step s JOIN {s}.tx t ON t.txid = s.txid AND t.state = 'committed'
          JOIN {s}.branch b ON (b.txid, b.number, b.attempt) = (s.txid, s.branch, s.attempt)
         WHERE s.state = 'done' AND b.state <> 'committed'""",
}
TOOK = """
SELECT count(*) FROM {s}.tx t JOIN {s}.step s USING (txid)
 WHERE t.state = 'committed' AND s.name = 'take' AND s.state = 'done'"""
LEFT = """
SELECT (SELECT coalesce(sum(bit_count(open::bit(64))), 0) FROM {s}.claim WHERE grp = 'takers')
     + (SELECT 1 - count(*) FROM {s}.cursor WHERE grp = 'takers' AND off > 0)"""
"""Of one order: what is claimed and not done, and what nobody has taken yet."""
COMMITTED = "SELECT txid FROM {s}.tx WHERE state = 'committed'"
LANES = """
SELECT u.txid FROM {s}.flow_unit u JOIN {s}.tx t USING (txid)
 WHERE u.number > 0 AND (u.decision = 1 OR (u.decision IS NULL AND t.state = 'committed'))"""
BRANCHES = "SELECT txid, 'xa:' || number || '.' || attempt FROM {s}.branch WHERE state = 'committed'"


def order_agrees(world: World) -> None:
    """The order is off its group exactly where the flow that took it committed."""
    with database(world.home_database) as engine, engine.connect() as connection:

        def count(sql: str) -> int:
            return int(connection.execute(text(sql.format(s=world.name))).scalar_one())

        assert count(LEFT) == 1 - count(TOOK)


def flows_agree(world: World) -> None:
    """Main work, messages and the store agree; the lane shows its committed units; nothing is held anywhere."""
    with database(world.home_database) as engine, engine.connect() as connection:

        def rows(sql: str) -> list[tuple[object, ...]]:
            return [tuple(row) for row in connection.execute(text(sql.format(s=world.name)))]

        wrong = {what: rows(sql) for what, sql in WRONG.items()}
        assert not any(wrong.values()), wrong
        committed = [f"1 {txid}" for (txid,) in rows(COMMITTED)]
        lanes = [f"{id} {txid}" for (txid,) in rows(LANES) for id in (1, 2)]
        done, (store,) = set(rows(BRANCHES)), rows("SELECT replace(uuid::text, '-', '') FROM {s}.store")
    order_agrees(world)
    assert delivered(world, CREDITS) == sorted(committed)
    expected: Mapping[str, list[str]] = {BANK: committed, MORTGAGE: committed, LEDGER: lanes}
    for resource, url in world.resources.items():
        with database(url) as engine, engine.connect() as connection:
            assert _booked(connection) == sorted(expected[resource]), resource
            assert prepared(connection, str(store[0])) == []
            assert _evidence(connection) <= done


def _evidence(connection: Connection) -> set[tuple[object, ...]]:
    """Return the branches that committed by themselves; a database that nobody worked in has no table of them."""
    if not inspect(connection).has_table("txsaga_evidence"):
        return set()
    rows = connection.execute(text("SELECT txid, branch FROM txsaga_evidence WHERE outcome = 1"))
    return {tuple(row) for row in rows if row.branch}


def _booked(connection: Connection) -> list[str]:
    lines = sorted(f"{id} {txid}" for id, txid in connection.execute(text("SELECT id, half FROM debit")))
    assert connection.execute(text("SELECT sum(balance) FROM account")).scalar_one() == len(lines)
    return lines


def once(world: World) -> None:
    """The flow happened, once."""
    assert [line.split()[0] for line in delivered(world, CREDITS)] == ["1"]
