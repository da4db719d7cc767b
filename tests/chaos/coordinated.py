"""Programs that move money between databases in coordinated transactions, and what others do after a kill.

Each transfer leaves one row with its transaction's number in every database that it works in, changes one account in
each, and tells of both in one message: whoever looks later sees what belongs together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from threading import Barrier
from unittest.mock import patch

from sqlalchemy import Connection, text

from tests.chaos.scenarios import AT_ONCE, CREDITS, HOLD, ORDERS, nobody_knows
from tests.chaos.world import BANK, MORTGAGE, TILL, World, debit
from txsaga.broker import Broker
from txsaga.errors import AlreadyCommitted, IntegrityViolated, RowsDiffer, VotedNo
from txsaga.flows.coordinated import Coordinated
from txsaga.flows.recovery import Recovery, RecoveryCleanup
from txsaga.messages.producer import Producer
from txsaga.resources.participant import Ages

BOTH = (BANK, MORTGAGE)
TAKEN = (BANK, TILL)
NEVER = "0"
PATIENCE = 30.0
TILL_TOLD = patch("txsaga.flows.batches.LINGER", 3_600.0)
"""No note is written by the clock, so that the facts come in the same order each time."""


class Refused(Exception):
    """What the user's own code raises."""


def teller(broker: Broker) -> Producer:
    """Return who moves money; nobody can be asked about it but the coordinator."""
    broker.create_topic(CREDITS, "transaction", queues=2)
    return broker.producer("tellers", checker=nobody_knows)


def move(tx: Coordinated, id: str, resources: Sequence[str] = BOTH) -> None:
    """Move one from account to account, and tell."""
    for resource in resources:
        with tx.on(resource) as handle:
            if resource == TILL:
                handle(item=tx.txid)
            else:
                book(handle, id, tx.txid or 0)
    tx.send(CREDITS, f"{id} {tx.txid}".encode(), key=id)


def fresh_ids(world: World) -> Iterator[str]:
    """Name two transfers that are not those of anybody before."""
    for _ in range(2):
        world.note("begun", "")
        yield str(len(world.notes("begun")))


def book(connection: Connection, id: str, txid: int) -> None:
    """Write a transfer down in one database; its account is locked until it is over."""
    connection.execute(text("UPDATE account SET balance = balance + 1 WHERE id = :id"), {"id": id})
    debit(connection, id, str(txid))


@TILL_TOLD
def pay(broker: Broker, world: World) -> None:
    """Move money twice, without a key, from account to account that nobody has used."""
    pay_twice(teller(broker), world, move)
    recover(broker, world)


def pay_twice(producer: Producer, world: World, work: Callable[[Coordinated, str], None]) -> None:
    """Do two transfers, each in a transaction, and note which of them were acknowledged."""
    for id in fresh_ids(world):
        with producer.coordinated(*BOTH) as tx:
            work(tx, id)
        world.note("acknowledged", f"{id} {tx.txid}")


@TILL_TOLD
def pay_by_journal(broker: Broker, world: World) -> None:
    """Move money twice, all of it written down and done at the end; then have a statement find no row."""
    producer = teller(broker)
    pay_twice(producer, world, write_down)
    with suppress(RowsDiffer), producer.coordinated(*BOTH) as tx:
        write_down(tx, NEVER)
        tx.journal(MORTGAGE).execute("DELETE FROM account WHERE id = -1")
    recover(broker, world)


def write_down(tx: Coordinated, id: str) -> None:
    """Write into the journals what `move` does."""
    for resource in BOTH:
        journal = tx.journal(resource)
        journal.execute("UPDATE account SET balance = balance + 1 WHERE id = :id", {"id": id}, rows=1)
        journal.execute("INSERT INTO debit VALUES (:id, :half)", {"id": id, "half": str(tx.txid)})
    tx.send(CREDITS, f"{id} {tx.txid}".encode(), key=id)


@TILL_TOLD
def pay_at_once(broker: Broker, world: World) -> None:
    """Move money four times at the same moment, by journals that only add rows; then have one of two at once fail."""
    producer = teller(broker)
    for ids in ("1234", "5674"):
        meeting = Barrier(len(ids))
        with ThreadPoolExecutor(len(ids)) as threads:
            for done in [threads.submit(_add, producer, world, id, meeting) for id in ids]:
                done.result()
    recover(broker, world)


def _add(producer: Producer, world: World, id: str, meeting: Barrier) -> None:
    with suppress(IntegrityViolated):
        with producer.coordinated(*BOTH) as tx:
            for resource in BOTH:
                journal = tx.journal(resource)
                journal.execute("INSERT INTO account VALUES (:id, 1)", {"id": 1_000 + int(id)})
                journal.execute("INSERT INTO debit VALUES (:id, :half)", {"id": id, "half": str(tx.txid)})
            tx.send(CREDITS, f"{id} {tx.txid}".encode(), key=id)
            meeting.wait()  # all of them come to their ends while the first is at it
        world.note("acknowledged", f"{id} {tx.txid}")


@TILL_TOLD
def pay_by_key(broker: Broker, world: World) -> None:
    """Move money under a key, as often as it takes."""
    producer = teller(broker)
    with suppress(AlreadyCommitted):
        with producer.coordinated(*BOTH, key="rent") as tx:
            move(tx, "1")
        world.note("acknowledged", f"1 {tx.txid}")
    recover(broker, world)


@TILL_TOLD
def pay_alone(broker: Broker, world: World) -> None:
    """Work in one of the databases only, by key: it commits in one phase, and its commit is the decision."""
    producer = teller(broker)
    for id in fresh_ids(world):
        with producer.coordinated(*BOTH, key=f"alone {id}") as tx:
            move(tx, id, [BANK])
        world.note("acknowledged", f"{id} {tx.txid}")
    recover(broker, world)


@TILL_TOLD
def pay_one(broker: Broker, world: World) -> None:
    """Do the same without a key, with a message."""
    producer = teller(broker)
    for id in fresh_ids(world):
        with producer.coordinated(BANK) as tx:
            move(tx, id, [BANK])
        world.note("acknowledged", f"{id} {tx.txid}")
    recover(broker, world)


@TILL_TOLD
def fail(broker: Broker, world: World) -> None:
    """Raise in a block, then let a database vote no, then succeed."""
    producer = teller(broker)
    with suppress(Refused), producer.coordinated(*BOTH) as tx:
        move(tx, NEVER)
        raise Refused
    with suppress(VotedNo), producer.coordinated(*BOTH) as tx:
        move(tx, NEVER)
        with tx.on(MORTGAGE) as connection, suppress(Exception):
            connection.exec_driver_sql("SELECT 1 / 0")
    with producer.coordinated(*BOTH) as tx:
        move(tx, id := next(fresh_ids(world)))
    world.note("acknowledged", f"{id} {tx.txid}")
    recover(broker, world)


@TILL_TOLD
def take(broker: Broker, world: World) -> None:
    """Move money and take from a till, twice; then reserve, and raise."""
    producer = teller(broker)
    for id in fresh_ids(world):
        with producer.coordinated(*TAKEN) as tx:
            move(tx, id, TAKEN)
        world.note("acknowledged", f"{id} {tx.txid}")
    with suppress(Refused), producer.coordinated(*TAKEN) as tx:
        move(tx, NEVER, TAKEN)
        raise Refused
    recover(broker, world)


@TILL_TOLD
def take_by_key(broker: Broker, world: World) -> None:
    """Move money and take from a till under a key, as often as it takes."""
    producer = teller(broker)
    with suppress(AlreadyCommitted):
        with producer.coordinated(*TAKEN, key="rent") as tx:
            move(tx, "1", TAKEN)
        world.note("acknowledged", f"1 {tx.txid}")
    recover(broker, world)


def order(broker: Broker, world: World) -> None:
    """Fill the topic that is consumed."""
    broker.create_topic(ORDERS, queues=2)
    shop = broker.producer("shop")
    for id in ("1", "2"):
        shop.send(ORDERS, id.encode(), key=id)
    recover(broker, world)


@TILL_TOLD
def work_off(broker: Broker, world: World) -> None:
    """Take orders off one by one, each in one transaction with both databases and the message."""
    _work_off(broker, idle=0)
    recover(broker, world)


def work_on(broker: Broker, world: World) -> None:
    """Take off what dead members left, once it is free."""
    _work_off(broker, idle=2 * HOLD.total_seconds())
    recover(broker, world)


def _work_off(broker: Broker, *, idle: float) -> None:
    producer = teller(broker)
    broker.create_group("workers", max_attempts=None, first_retry=timedelta(0))
    consumer = broker.consumer("workers", [ORDERS], member="worker", batch=2, invisible=HOLD)
    for message in consumer.messages(wait=idle):
        with message, producer.coordinated(*BOTH) as tx:
            tx.consume(message)
            move(tx, message.text())
    consumer.close()


@TILL_TOLD
def read_off(broker: Broker, world: World) -> None:
    """Do the same with the cursor of a stream."""
    producer = teller(broker)
    stream = broker.stream("readers", [ORDERS], member="reader")
    for batch in stream.batches(wait=0):
        with producer.coordinated(*BOTH) as tx:
            tx.consume(stream, batch)
            for body in batch.bodies:
                move(tx, body.decode())
    stream.close()
    recover(broker, world)


def tidy(broker: Broker, world: World) -> None:
    """Have every database drop what it keeps of branches that are over."""
    tidying = RecoveryCleanup(broker.kernel, Ages(timedelta(0), timedelta(0)))
    for name in BOTH:
        tidying.settle(broker.kernel.participant(name)[1])


def recover(broker: Broker, world: World) -> None:
    """Run the roles until nothing is undecided, untold or undelivered."""
    broker.create_topic("nudges", queues=1)
    # News make the next tick cover all numbers before them: the sweep looks no further than the ticks.
    broker.producer("nudger").send("nudges", b"")
    broker.kernel.notes.flush()
    roles = [*broker.own_roles(), *(role for role in broker.roles(AT_ONCE) if not isinstance(role, Recovery))]
    roles.append(Recovery(broker.kernel))
    end = time.monotonic() + PATIENCE
    while sum(role.run_once() for role in roles) or not is_quiet(broker):
        if time.monotonic() > end:
            raise AssertionError(f"not recovered within {PATIENCE:g} s")


def is_quiet(broker: Broker) -> bool:
    """Tell whether everything is decided and every database has heard of it."""
    store = broker.kernel.store
    undecided = store.overview.transactions(undecided=True, limit=1) or store.doubts.due(1)
    return not (undecided or store.questions.backlog() or store.work.unfinished(limit=1) or held(broker))


def held(broker: Broker) -> bool:
    """Tell whether a database holds anything of this store's."""
    kernel = broker.kernel
    names = {each.name for each in kernel.store.registry.enlisted()}
    return any(kernel.reach(name).prepared(broker.identity.uuid.hex) for name in names)
