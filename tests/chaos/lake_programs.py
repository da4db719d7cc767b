"""Programs that write into tables, with messages and rows of other databases under the same decision.

Each entry is one row in every table and one message that tells of it: whoever looks later sees what belongs together.
"""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
from sqlalchemy import text

from tests.chaos import coordinated
from tests.chaos.agreement import assert_evidence_follows, assert_nothing_is_held, assert_store_is_final, booked
from tests.chaos.coordinated import BOTH, TILL_TOLD, move
from tests.chaos.invariants import delivered
from tests.chaos.scenarios import CREDITS
from tests.chaos.world import BANK, World, database, debit
from txsaga.broker import Broker
from txsaga.core.decision import LocalState
from txsaga.errors import AlreadyCommitted
from txsaga.messages.producer import Producer

LEDGER, POSTING, BALANCE = "books.ledger", "books.posting", "books.balance"
COLUMNS = {"id": "long not null", "part": "long"}
WRITES = tuple(
    f"{fact}:{number}" for fact in ("Staging", "Staged", "Filing", "Filed", "Building", "Built") for number in (2, 3)
)
BRANCHES = tuple(
    f"{fact}:{number}"
    for fact in ("Branching", "Branched", "Filing", "Filed", "Building", "Built")
    for number in (2, 3)
)
FILLS = tuple(f"{fact}:2" for fact in ("Staging", "Staged", "Filing", "Filed", "Building", "Built"))
DECIDES = tuple(f"{fact}:2" for fact in ("Ending", "Ended", "Deciding", "Decided"))


def entry(id: int) -> pa.Table:
    """Lay out one entry."""
    return pa.table({"id": pa.array([id], pa.int64()), "part": pa.array([id % 2], pa.int64())})


def clerk(broker: Broker) -> Producer:
    """Return who writes into tables; whoever has closed a transaction wanted it."""
    broker.create_topic(CREDITS, "transaction", queues=2)
    return broker.producer("clerks", checker=lambda question: LocalState.COMMIT)


def open_tables(producer: Producer) -> None:
    """Create the tables, all of them at once."""
    with suppress(AlreadyCommitted), producer.transaction(key="tables") as tx:
        for name in (LEDGER, POSTING, BALANCE):
            tx.table(name).create(COLUMNS, partitions=["part"])


def write(broker: Broker, world: World) -> None:
    """Create tables, and write two entries under keys, as often as it takes."""
    producer = clerk(broker)
    open_tables(producer)
    for id in (1, 2):
        with suppress(AlreadyCommitted):
            with producer.transaction(key=str(id)) as tx:
                for name in (LEDGER, POSTING):
                    tx.table(name).append(entry(id))
                tx.send(CREDITS, str(id).encode(), key=str(id))
            world.note("acknowledged", str(id))
    recover(broker, world)


def fill(broker: Broker, world: World) -> None:
    """Write two entries into a table of the home database itself, two rows each, as often as it takes."""
    producer = clerk(broker)
    with database(world.home_database) as engine, engine.begin() as connection:
        connection.execute(text(f"CREATE TABLE IF NOT EXISTS {shop(world)} (id int)"))
    for id in (1, 2):
        with suppress(AlreadyCommitted):
            with producer.transaction(key=str(id)) as tx:
                tx.rows(shop(world)).insert(pa.table({"id": [id, id]}))
                tx.send(CREDITS, str(id).encode(), key=str(id))
            world.note("acknowledged", str(id))
    recover(broker, world)


def change(broker: Broker, world: World) -> None:
    """Let another engine write two entries on branches, of which one is written anew each time."""
    producer = clerk(broker)
    open_tables(producer)
    catalog = broker.kernel.tables.lake.catalog
    for id in (1, 2):
        with suppress(AlreadyCommitted):
            with producer.transaction(key=str(id)) as tx:
                for name in (LEDGER, POSTING):
                    with tx.table(name).branch() as branch:
                        table = catalog.load_table(name)
                        rows = entry(id).cast(table.schema().as_arrow())
                        if name == LEDGER or id == 1:
                            table.append(rows, branch=branch.branch)
                        else:
                            table.overwrite(pa.concat_tables([table.scan().to_arrow(), rows]), branch=branch.branch)
                tx.send(CREDITS, str(id).encode(), key=str(id))
            world.note("acknowledged", str(id))
    recover(broker, world)


def write_beside_local_work(broker: Broker, world: World) -> None:
    """Do the same with a row in the bank, whose evidence tells."""
    producer = clerk(broker)
    open_tables(producer)
    for id in (1, 2):
        with suppress(AlreadyCommitted):
            with producer.transaction(key=str(id)) as tx:
                for name in (LEDGER, POSTING):
                    tx.table(name).append(entry(id))
                tx.send(CREDITS, str(id).encode(), key=str(id))
                with tx.local(BANK) as connection:
                    debit(connection, str(id))
            world.note("acknowledged", str(id))
    recover(broker, world)


@TILL_TOLD
def write_beside_databases(broker: Broker, world: World) -> None:
    """Do the same beside two databases: a table is appended to, another one overwritten."""
    producer = clerk(broker)
    open_tables(producer)
    for id in (1, 2):
        with suppress(AlreadyCommitted):
            with producer.coordinated(*BOTH, key=str(id)) as tx:
                for name in (LEDGER, POSTING):
                    tx.table(name).append(entry(id))
                tx.table(BALANCE).overwrite(entry(id))
                move(tx, str(id))
            world.note("acknowledged", f"{id} {tx.txid}")
    coordinated.recover(broker, world)


def recover(broker: Broker, world: World) -> None:
    """Let the roles settle what others left."""
    clerk(broker)
    coordinated.recover(broker, world)


def read(world: World) -> dict[str, list[int]]:
    """Read the tables as anybody with PyIceberg would; one that is not there has nothing."""
    import txsaga

    place = world.folder / "warehouse"
    with txsaga.connect(world.home, warehouse=place, roles=False, answering=False, env={}) as broker:
        catalog = broker.kernel.tables.lake.catalog
        found = {}
        for name in (LEDGER, POSTING, BALANCE):
            table = catalog.load_table(name) if catalog.table_exists(name) else None
            found[name] = [] if table is None else sorted(table.scan().to_arrow().column("id").to_pylist())
        return found


def tables_agree(world: World) -> None:
    """Every table shows what the messages tell of, each once."""
    told = [int(line.split()[0]) for line in delivered(world, CREDITS)]
    found = read(world)
    assert found[LEDGER] == found[POSTING] == sorted(told)
    assert len(told) == len(set(told))
    assert {int(line.split()[0]) for line in world.notes("acknowledged")} <= set(told)


def shop(world: World) -> str:
    """Name the table of the home database that belongs to a world."""
    return f"public.shop_{world.name}"


def rows_agree(world: World) -> None:
    """The table of the home database has both rows of what the messages tell of, each once."""
    told = sorted(int(line.split()[0]) for line in delivered(world, CREDITS))
    assert sold(world) == sorted([*told, *told])
    assert {int(line.split()[0]) for line in world.notes("acknowledged")} <= set(told)


def sold(world: World) -> list[int]:
    """Read that table; one that is not there has nothing."""
    with database(world.home_database) as engine, engine.connect() as connection:
        if connection.execute(text("SELECT to_regclass(:name)"), {"name": shop(world)}).scalar() is None:
            return []
        return list(connection.execute(text(f"SELECT id FROM {shop(world)} ORDER BY id")).scalars())


def branches_are_gone(world: World) -> None:
    """In the end both entries are there, and no branch once it is collected."""
    import txsaga

    both_are_there(world)
    place = world.folder / "warehouse"
    with txsaga.connect(world.home, warehouse=place, roles=False, answering=False, env={}) as broker:
        tables = broker.kernel.tables
        tables.collect()
        found = [tables.lake.catalog.load_table(name) for name in (LEDGER, POSTING)]
        assert all(set(table.metadata.refs) == {"main"} for table in found)
    assert read(world)[LEDGER] == [1, 2]


def rows_are_there(world: World) -> None:
    """In the end both entries are there, and nothing that was staged beside them."""
    import txsaga

    assert sold(world) == [1, 1, 2, 2]
    with txsaga.connect(world.home, roles=False, answering=False, env={}) as broker:
        broker.kernel.rows.collect()
        assert not broker.kernel.rows.collect(dry_run=True)
    with database(world.home_database) as engine, engine.begin() as connection:
        connection.execute(text(f"DROP TABLE {shop(world)}"))


def bank_agrees(world: World) -> None:
    """The bank shows the same."""
    tables_agree(world)
    assert [int(id) for id in world.debits()] == read(world)[LEDGER]


def databases_agree(world: World) -> None:
    """Both databases show the same and hold nothing, and what is overwritten shows the last entry alone."""
    tables_agree(world)
    assert_store_is_final(world)
    for resource, url in world.resources.items():
        with database(url) as engine, engine.connect() as connection:
            assert booked(connection) == delivered(world, CREDITS), resource
            assert_nothing_is_held(connection, world)
            assert_evidence_follows(connection, world)
    found = read(world)
    assert found[BALANCE] == found[LEDGER][-1:]


def both_are_there(world: World) -> None:
    """In the end both entries are there."""
    assert read(world)[LEDGER] == [1, 2]
