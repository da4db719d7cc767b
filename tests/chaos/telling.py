"""What a caller was told of a coordinated transaction, held against what is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from tests.chaos import child, coordinated
from tests.chaos.agreement import agreed
from tests.chaos.coordinated import BOTH, teller
from tests.chaos.till import kept
from tests.chaos.world import TILL, World, database
from txsaga.broker import Broker
from txsaga.errors import InDoubt, OutcomeUnknown, RolledBack, TxSagaError, Unfinished
from txsaga.flows.coordinated import Coordinated

UNKNOWN = (OutcomeUnknown, InDoubt, Unfinished)
"""What a caller is told who can't be told how it ends."""

Told = TxSagaError | None
Step = Callable[[Coordinated], None]


def attempt(broker: Broker, world: World, work: Step, resources: Sequence[str] = BOTH, key: str | None = None) -> Told:
    """Try a transfer; return what the caller was told, and believe it."""
    try:
        with teller(broker).coordinated(*resources, key=key) as tx:
            work(tx)
    except (TxSagaError, SQLAlchemyError) as error:
        return error if isinstance(error, TxSagaError) else RolledBack(str(error))
    world.note("acknowledged", f"1 {tx.txid}")
    return None


def rows(world: World, resource: str) -> int:
    """Count what a database or a service shows."""
    if resource == TILL:
        return len(kept(world.folder.parent / TILL, "taken"))
    with database(world.resources[resource]) as engine, engine.connect() as connection:
        return int(connection.execute(text("SELECT count(*) FROM debit")).scalar_one())


def assert_truth_was_told(world: World, told: Told, used: tuple[str, ...] = BOTH) -> None:
    """Check what the caller was told against what is there now, and against what others make of the rest."""
    if told is None:
        assert [rows(world, resource) for resource in used] == [1] * len(used)
    world.let_leases_run_out()
    child.finish(coordinated.recover, world)
    agreed(*used)(world)
    if told is not None and not isinstance(told, UNKNOWN):
        assert [rows(world, resource) for resource in used] == [0] * len(used)
    if isinstance(told, Unfinished):
        assert [rows(world, resource) for resource in used] == [1] * len(used)
