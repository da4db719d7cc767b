"""What must hold of coordinated transactions once everything is recovered: everybody agrees with the decision."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import Connection, inspect, text

from tests.chaos.houses import lock_books, prepared
from tests.chaos.invariants import delivered, left_over, positions
from tests.chaos.scenarios import CREDITS, ORDERS
from tests.chaos.till import kept
from tests.chaos.world import TILL, World, database

# Each of these must find nothing in the store.
WRONG = {
    "a transaction that is not over": "SELECT txid, state FROM {s}.tx WHERE state NOT IN ('committed', 'rolled_back')",
    "a branch in no final state": "SELECT * FROM {s}.branch WHERE state NOT IN ('committed', 'rolled_back')",
    "a branch that is committed of a transaction that is not": """
        SELECT b.* FROM {s}.branch b JOIN {s}.tx t USING (txid)
         WHERE t.state = 'rolled_back' AND b.state = 'committed' AND NOT b.aux""",
    "a committed transaction of which nothing is": """
        SELECT t.* FROM {s}.tx t WHERE t.state = 'committed' AND EXISTS (SELECT FROM {s}.branch b WHERE b.txid = t.txid)
           AND NOT EXISTS (SELECT FROM {s}.branch b WHERE b.txid = t.txid AND b.state = 'committed')""",
    "an attempt that was superseded and is committed": """
        SELECT b.* FROM {s}.branch b JOIN {s}.tx t ON t.txid = b.txid AND t.owner <> b.attempt
         WHERE b.state = 'committed'""",
}
COMMITTED = "SELECT txid FROM {s}.op WHERE decision = 1 AND keyed"
EVIDENCE = "SELECT txid, branch, outcome FROM txsaga_evidence"
CLAIMED = "SELECT coalesce(sum(bit_count(open::bit(64))), 0) FROM {s}.claim WHERE grp = 'workers'"
BRANCHES = """
SELECT b.txid, 'xa:' || b.number || '.' || b.attempt FROM {s}.branch b LEFT JOIN {s}.op o USING (txid)
 WHERE b.state = 'committed' AND coalesce(b.decision, o.decision) = 1"""

Check = Callable[[World], None]


def agreed(*used: str) -> Check:
    """Make the check that these databases, the messages and the store agree, and nothing is held anywhere."""
    return lambda world: assert_agreed(world, lambda resource, _: resource in used)


def assert_agreed(world: World, used: Callable[[str, str], bool]) -> None:
    """Check that every transfer that is told of is in all databases that it used, no other is, and nothing is held."""
    committed = assert_store_is_final(world)
    told = delivered(world, CREDITS)
    assert len(told) == len(set(told))
    assert {int(line.split()[1]) for line in told} == committed
    assert set(world.notes("acknowledged")) <= set(told)
    if world.till:
        folder = world.folder.parent / TILL
        assert kept(folder, "taken") == sorted(int(line.split()[1]) for line in told if used(TILL, line))
        assert kept(folder, "reserved") == []
    for resource, url in world.resources.items():
        with database(url) as engine, engine.connect() as connection:
            assert booked(connection) == [line for line in told if used(resource, line)], resource
            assert_nothing_is_held(connection, world)
            assert_evidence_follows(connection, world)


def assert_store_is_final(world: World) -> set[int]:
    """Check the rows of branches against the decisions; return what is committed."""
    with database(world.home_database) as engine, engine.connect() as connection:
        wrong = {what: connection.execute(text(sql.format(s=world.name))).all() for what, sql in WRONG.items()}
        assert not any(wrong.values()), wrong
        return set(connection.execute(text(COMMITTED.format(s=world.name))).scalars())


def booked(connection: Connection) -> list[str]:
    """Read the transfers that a database shows, sorted; its accounts tell as many."""
    lines = sorted(f"{id} {txid}" for id, txid in connection.execute(text("SELECT id, half FROM debit")))
    assert connection.execute(text("SELECT sum(balance) FROM account")).scalar_one() == len(lines)
    return lines


def assert_nothing_is_held(connection: Connection, world: World) -> None:
    """Check that a database holds neither a prepared transaction of this world nor a lock on its books."""
    with database(world.home_database) as engine, engine.connect() as home:
        store = home.execute(text(f"SELECT uuid FROM {world.name}.store")).scalar_one()
    assert prepared(connection, store.hex) == []
    connection.rollback()
    lock_books(connection)


def assert_evidence_follows(connection: Connection, world: World) -> None:
    """Check that rows of branches are those of committed ones, and rows of transactions say what was decided."""
    if not inspect(connection).has_table("txsaga_evidence"):
        return
    rows = connection.execute(text(EVIDENCE)).all()
    with database(world.home_database) as engine, engine.connect() as home:
        done = {tuple(row) for row in home.execute(text(BRANCHES.format(s=world.name)))}
        decisions = {
            row.txid: row.decision for row in home.execute(text(f"SELECT txid, decision FROM {world.name}.op"))
        }
    assert {(txid, branch) for txid, branch, _ in rows if branch} <= done
    assert all(decisions.get(txid) == outcome for txid, branch, outcome in rows if not branch)


def exactly(*ids: str) -> Check:
    """Make the check that these transfers happened, each once, and no others."""

    def check(world: World) -> None:
        assert [line.split()[0] for line in delivered(world, CREDITS)] == sorted(ids)

    return check


def all_of(*checks: Check) -> Check:
    """Make one check of many."""

    def check(world: World) -> None:
        for each in checks:
            each(world)

    return check


def orders_follow(world: World) -> None:
    """An order is off its group exactly if its transfer is there."""
    done, waiting = transfers(world), left_over(world)
    orders = delivered(world, ORDERS)
    assert len(done) == len(set(done)) and set(done) <= set(orders)
    assert waiting["letters"] == 0
    if positions(world, "workers"):
        with database(world.home_database) as engine, engine.connect() as connection:
            claimed = connection.execute(text(CLAIMED.format(s=world.name))).scalar_one()
        assert claimed + waiting["unread"] == len(orders) - len(done)


def cursor_follows(world: World) -> None:
    """The cursors stand behind exactly those orders whose transfers are there."""
    assert sum(positions(world, "readers").values()) == len(transfers(world)) == len(set(transfers(world)))


def transfers(world: World) -> Sequence[str]:
    """Return the orders whose transfers are there."""
    return [line.split()[0] for line in delivered(world, CREDITS)]
