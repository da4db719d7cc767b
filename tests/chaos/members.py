"""Programs that send to clusters in transactions, what others do after a kill, and what must then be true.

Every broker is a store of its own beside the one that coordinates; all of them announce their facts, so that any step
of any of them can be the one that dies.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import islice

from sqlalchemy import text

import txsaga
from tests.chaos import coordinated
from tests.chaos.agreement import assert_store_is_final
from tests.chaos.coordinated import NEVER, PATIENCE, TILL_TOLD, Refused, fresh_ids
from tests.chaos.invariants import delivered_by, not_sound
from tests.chaos.scenarios import AT_ONCE, CREDITS
from tests.chaos.world import World, database
from txsaga.broker import Broker
from txsaga.clusters.broker_cluster import BrokerCluster
from txsaga.flows.branch import BranchId, BranchState

BROKERS = ("east", "north", "west")
GUARANTEED = {"policy": "multisend-guaranteed", "needed": 2}
ROUND_ROBIN = {"policy": "round-robin"}
NAMED = """SELECT b.txid, r.name, b.state FROM {s}.branch b JOIN {s}.resource r ON r.id = b.resource
 WHERE EXISTS (SELECT FROM {s}.tx t WHERE t.txid = b.txid AND t.state = 'committed')"""
BEGUN = "SELECT key FROM {s}.tx WHERE key LIKE 'txsaga:%'"
OPEN = "SELECT txid, state FROM {s}.tx WHERE state NOT IN ('committed', 'rolled_back')"


@contextmanager
def cluster_of(
    coordinator: Broker, world: World, settings: Mapping[str, object]
) -> Iterator[tuple[BrokerCluster, list[Broker]]]:
    """Open the brokers of a world that are there, and bind them to a policy."""
    env = {name: value for name, value in os.environ.items() if name == "TXSAGA_OBSERVERS"}
    with ExitStack() as stack:
        brokers = {
            name: stack.enter_context(txsaga.connect(url, roles=False, answering=False, env=env))
            for name, url in world.stores.items()
        }
        for broker in brokers.values():
            broker.create_topic(CREDITS, "transaction", queues=2)
        definition = {"brokers": list(brokers), "xa": True, **settings}
        cluster = txsaga.cluster(definition, brokers, name="town", coordinator=coordinator)
        yield stack.enter_context(cluster), list(brokers.values())


def _send(coordinator: Broker, world: World, settings: Mapping[str, object], times: int) -> None:
    with cluster_of(coordinator, world, settings) as (cluster, brokers):
        producer = cluster.producer("tellers")
        for id in islice(fresh_ids(world), times):
            with producer.transaction() as tx:
                tx.send(CREDITS, f"{id} {tx.txid}".encode(), key=id)
            world.note("acknowledged", f"{id} {tx.txid}")
        try:
            with producer.transaction() as tx:
                tx.send(CREDITS, f"{NEVER} {tx.txid}".encode(), key=NEVER)
                raise Refused
        except Refused:
            pass
        _recover(coordinator, brokers, world)


@TILL_TOLD
def send_to_many(broker: Broker, world: World) -> None:
    """Send to two of three brokers at least, then raise in a block."""
    _send(broker, world, GUARANTEED, times=1)


@TILL_TOLD
def send_by_turns(broker: Broker, world: World) -> None:
    """Send to one broker for each transaction, twice, then raise in a block."""
    _send(broker, world, ROUND_ROBIN, times=2)


def recover(broker: Broker, world: World) -> None:
    """Run the roles of the coordinator and of every broker until nothing is undecided, untold or undelivered."""
    with cluster_of(broker, world, ROUND_ROBIN) as (_, brokers):
        _recover(broker, brokers, world)


def _recover(coordinator: Broker, brokers: list[Broker], world: World) -> None:
    for broker in brokers:  # news make the next tick cover all numbers before them
        broker.create_topic("nudges", queues=1)
        broker.producer("nudger").send("nudges", b"")
    roles = [role for broker in brokers for role in (*broker.own_roles(), *broker.roles(AT_ONCE))]
    end = time.monotonic() + PATIENCE
    coordinated.recover(coordinator, world)
    while sum(role.run_once() for role in roles) or not all(coordinated.is_quiet(broker) for broker in brokers):
        if time.monotonic() > end:
            raise AssertionError(f"brokers not recovered within {PATIENCE:g} s")


def agreed(enough: Callable[[int], bool]) -> Callable[[World], None]:
    """Make the check that each message is on all brokers that its decision names and that began, and on enough."""

    def check(world: World) -> None:
        committed = assert_store_is_final(world)
        named = branches(world)
        told = {name: delivered_by(url, CREDITS) for name, url in world.stores.items()}
        took = {name: [int(line.split()[1]) for line in lines] for name, lines in told.items()}
        for name, url in world.stores.items():
            begun = begun_in(url)  # a broker that was away when its branch was to begin has nothing to tell
            due = sorted(txid for txid in committed if name in named[txid] and txid in begun)
            assert sorted(took[name]) == due, (name, told, named)
        assert all(enough(sum(txid in txids for txids in took.values())) for txid in committed), (told, named)
        everywhere = {line for lines in told.values() for line in lines}
        assert set(world.notes("acknowledged")) <= everywhere
        assert not any(line.startswith(f"{NEVER} ") for line in everywhere)
        for url in world.stores.values():
            assert not_sound(url) == {}
            assert lives(url) == []

    return check


def branches(world: World) -> dict[int, set[str]]:
    """Return the brokers that each committed transaction is committed on."""
    with database(world.home_database) as engine, engine.connect() as connection:
        found: dict[int, set[str]] = {}
        for txid, name, state in connection.execute(text(NAMED.format(s=world.name))):
            found.setdefault(txid, set()).update({name} if state == BranchState.COMMITTED else ())
        return found


def begun_in(store: str) -> set[int]:
    """Return the transactions that a branch of was begun in a store."""
    url, _, schema = store.partition("?namespace=")
    with database(url) as engine, engine.connect() as connection:
        gids = connection.execute(text(BEGUN.format(s=schema))).scalars()
        return {int(BranchId.parse(gid).transaction.rsplit("-", 1)[1], 16) for gid in gids}


def lives(store: str) -> list[tuple[int, str]]:
    """Return what is open in a store."""
    url, _, schema = store.partition("?namespace=")
    with database(url) as engine, engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text(OPEN.format(s=schema)))]
