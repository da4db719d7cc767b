"""A process is killed while it works on a workspace: its tables are published all or none, once, and as approved."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.chaos import child
from tests.chaos.lake_programs import LEDGER, POSTING, clerk, entry, open_tables, recover
from tests.chaos.world import World
from txsaga.broker import Broker
from txsaga.catalog.workspaces import Workspaces, WorkspaceState
from txsaga.errors import ConfigError
from txsaga.testing.kill import sample

pytestmark = [pytest.mark.postgres, pytest.mark.kill, pytest.mark.timeout(600)]
TABLES = (LEDGER, POSTING)


@pytest.fixture
def broker(world: World) -> Iterator[Broker]:
    """Give a broker with the tables, and a row in each."""
    with child.opened(world, {}) as broker:
        producer = clerk(broker)
        open_tables(producer)
        with producer.transaction() as tx:
            for name in TABLES:
                tx.table(name).append(entry(0))
        yield broker


def begin(broker: Broker, world: World) -> None:
    """Begin a workspace, in place of one that was begun by half."""
    workspaces = Workspaces(broker)
    with suppress(ConfigError):
        workspaces.drop(wanted(world), "anna")
    workspaces.create(wanted(world), TABLES, "anna")


def publish(broker: Broker, world: World) -> None:
    """Publish it, unless that is done."""
    with suppress(ConfigError):
        Workspaces(broker).publish(wanted(world), "anna")


def ask(broker: Broker, world: World) -> None:
    """Ask the chief whether it may be published."""
    Workspaces(broker).ask(wanted(world), ["chief"], "anna")


def undo(broker: Broker, world: World) -> None:
    """Undo it, unless that is done."""
    with suppress(ConfigError):
        Workspaces(broker).undo(wanted(world), "anna")


def drop(broker: Broker, world: World) -> None:
    """Drop it, unless that is done."""
    with suppress(ConfigError):
        Workspaces(broker).drop(wanted(world), "anna")


def wanted(world: World) -> str:
    """Return the name of the workspace."""
    return world.notes("wanted")[-1]


def written(broker: Broker, world: World) -> None:
    """Begin a workspace, and write a row to each of its tables: the number of the workspace."""
    begin(broker, world)
    for name in TABLES:
        table = broker.kernel.tables.lake.catalog.load_table(name)
        row = entry(len(world.notes("wanted"))).cast(table.schema().as_arrow())
        table.append(row, branch=f"workspace-{wanted(world)}")


def rows(broker: Broker) -> list[int]:
    """Return the rows of the tables, which have the same."""
    tables = map(broker.kernel.tables.lake.catalog.load_table, TABLES)
    one, other = (sorted(table.scan().to_arrow()["id"].to_pylist()) for table in tables)
    assert one == other
    return one


@pytest.mark.req("BEYOND-3", "IBM-08")
@pytest.mark.parametrize("stage", [begin, publish])
def test_a_workspace_is_published_whole_and_once_whoever_dies(
    broker: Broker, world: World, stage: child.Stage, seed: int, pytestconfig: pytest.Config
) -> None:
    world.note("wanted", "first")
    if stage is publish:
        written(broker, world)
    points = child.record(stage, world)
    assert {"Deciding:1", "Built:1", "Decided:1"} <= {str(each) for each in points}
    for point in points if pytestconfig.getoption("full_matrix") else sample(points, 3, seed):
        world.note("wanted", f"{point.fact.lower()}-{point.occurrence}")
        if stage is publish:
            written(broker, world)
        before = rows(broker)
        assert child.kill(stage, world, point)
        assert set(rows(broker)) - set(before) in (set(), {len(world.notes("wanted"))})
        recover(broker, world)
        if stage is begin:
            written(broker, world)
        publish(broker, world)
        assert rows(broker) == [*before, len(world.notes("wanted"))]


@pytest.mark.parametrize("stage", [ask, undo, drop])
def test_what_was_not_approved_is_not_published_and_the_next_command_works_whoever_dies(
    broker: Broker,
    world: World,
    stage: child.Stage,
    seed: int,
    pytestconfig: pytest.Config,
) -> None:
    world.note("wanted", "first")
    written(broker, world)
    if stage is undo:
        publish(broker, world)
    points = child.record(stage, world)
    for point in points if pytestconfig.getoption("full_matrix") else sample(points, 3, seed):
        world.note("wanted", f"{point.fact.lower()}-{point.occurrence}")
        before = rows(broker)
        written(broker, world)
        if stage is undo:
            publish(broker, world)
        assert child.kill(stage, world, point)
        if stage is ask:
            require_approval(broker, world, before)
            publish(broker, world)
            assert rows(broker) == [*before, len(world.notes("wanted"))]
            undo(broker, world)
        else:
            stage(broker, world)
        assert rows(broker) == before
        drop(broker, world)
        begin(broker, world)


def require_approval(broker: Broker, world: World, before: list[int]) -> None:
    """Ask again if need be, and approve it; before that, nothing is published if anything was asked."""
    workspaces, name = Workspaces(broker), wanted(world)
    (state,) = [state for moment, state, _ in workspaces.all() if moment.name == name]
    if state is not WorkspaceState.OPEN:
        with pytest.raises(ConfigError, match=r"not approved|about to ask|asks whether"):
            workspaces.publish(name, "anna")
        workspaces.withdraw(name, "anna")
    assert rows(broker) == before
    txid, _ = workspaces.ask(name, ["chief"], "anna")
    broker.vote(txid, f"publish {name}", "chief", yes=True)
