"""The network to one of the databases breaks in each phase: nobody is told of a success that is not there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import SQLAlchemyError

import txsaga
from tests.chaos import child, coordinated
from tests.chaos.agreement import assert_agreed
from tests.chaos.conftest import Worlds
from tests.chaos.coordinated import BOTH, move, teller
from tests.chaos.houses import MYSQL, POSTGRESQL, kind_of
from tests.chaos.proxy import Loss, Proxy, network
from tests.chaos.telling import assert_truth_was_told, attempt, rows
from tests.chaos.world import BANK, MORTGAGE, World, database, debit, fresh_world
from txsaga.broker import Broker
from txsaga.errors import RolledBack, Unfinished
from txsaga.flows.coordinated import Coordinated
from txsaga.resources.two_phase import started

pytestmark = [pytest.mark.postgres, pytest.mark.kill, pytest.mark.rule("R14")]


class Phase(Enum):
    """What is asked of the second database, as it says it: PostgreSQL, then MariaDB."""

    BEGIN = (b"set local txsaga", b"XA START")
    WORK = (b"INSERT INTO debit", b"INSERT INTO debit")
    VOTE = (b"PREPARE TRANSACTION", b"XA PREPARE")
    COMMIT = (b"COMMIT PREPARED", b"XA COMMIT")
    TAKE_BACK = (b"ROLLBACK PREPARED", b"XA ROLLBACK")
    ALONE = (b"; COMMIT", b"ONE PHASE")

    def on(self, kind: str) -> bytes:
        """Return the bytes that a message of this phase holds."""
        return self.value[kind == MYSQL]


SHORT, BOUND = 0.5, 20.0
"""Seconds that a database is waited for here, and that anything takes at most."""
END_SESSIONS = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
 WHERE datname = current_database() AND state = 'idle in transaction' AND pid <> pg_backend_pid()"""
OPEN_SESSIONS = """SELECT p.id FROM information_schema.processlist p
 WHERE p.db = database() AND p.command = 'Sleep' AND p.id <> connection_id()"""


@pytest.fixture
def kind() -> str:
    """Give the kind of the second database where a test says nothing of it."""
    return POSTGRESQL


@pytest.fixture
def world(
    request: pytest.FixtureRequest, houses: Worlds, home_database: str, bank_database: str, tmp_path: Path, kind: str
) -> Iterator[World]:
    """Give a world whose books lie in two databases."""
    if kind == POSTGRESQL:
        with houses() as made:
            yield made
        return
    url = request.getfixturevalue("mariadb")
    with fresh_world(home_database, bank_database, tmp_path, {MORTGAGE: url}) as made:
        yield made


@pytest.fixture
def line(world: World) -> Iterator[Proxy]:
    """Give the network to the second database."""
    with network(world.resources[MORTGAGE]) as proxy:
        yield proxy


@pytest.fixture
def broker(world: World, line: Proxy) -> Iterator[Broker]:
    """Give a broker that reaches the second database through that network, and waits for it for a short time."""
    engines = {BANK: create_engine(world.bank), MORTGAGE: create_engine(line.url)}
    with txsaga.connect(world.home, resources=engines, roles=False, answering=False, env={}) as broker:
        participant: Any = broker.kernel.participant(MORTGAGE)[1]
        participant._patience = SHORT
        teller(broker)
        yield broker
    for engine in engines.values():
        engine.dispose()


def both(tx: Coordinated) -> None:
    """Work in both databases."""
    move(tx, "1")


def no_from_the_first(tx: Coordinated) -> None:
    """Work in both, and let the first one vote no."""
    move(tx, "1")
    with tx.on(BANK) as connection, suppress(SQLAlchemyError):
        connection.exec_driver_sql("SELECT 1 / 0")


def named(value: object) -> str:
    """Name a phase, a loss or a kind."""
    return value.name.lower() if isinstance(value, Enum) else str(value)


ON_ANY = [
    *((Phase.WORK, loss) for loss in (Loss.REQUEST, Loss.RESET)),
    *((Phase.VOTE, loss) for loss in (Loss.REQUEST, Loss.ANSWER, Loss.HOLE, Loss.MUTE, Loss.RESET)),
    *((Phase.COMMIT, loss) for loss in (Loss.REQUEST, Loss.ANSWER, Loss.MUTE, Loss.RESET)),
]
BROKEN = [
    *((kind, *each) for kind in (POSTGRESQL, MYSQL) for each in ON_ANY),
    *((POSTGRESQL, Phase.BEGIN, loss) for loss in (Loss.SILENCE, Loss.MUTE, Loss.RESET)),
    *((MYSQL, Phase.BEGIN, loss) for loss in (Loss.SILENCE, Loss.RESET)),  # how long a driver reads is the engine's
]


@pytest.mark.req("IBM-67")
@pytest.mark.sampled(5)
@pytest.mark.parametrize(("kind", "phase", "loss"), BROKEN, ids=named)
def test_a_line_that_breaks_makes_no_success_of_what_is_not_there(
    world: World, line: Proxy, broker: Broker, kind: str, phase: Phase, loss: Loss
) -> None:
    line.lose(phase.on(kind), loss)
    begun = time.monotonic()
    told = attempt(broker, world, both)
    assert time.monotonic() - begun < BOUND
    assert line.broke.wait(10)
    if phase is Phase.COMMIT and loss is Loss.MUTE:
        assert isinstance(told, Unfinished)
    elif phase is Phase.COMMIT:  # a line that is cut is no silence: another one is taken
        assert (told, [rows(world, resource) for resource in BOTH]) == (None, [1, 1])
    elif phase is not Phase.BEGIN:  # a session that breaks before its work may be replaced
        assert told is not None
    assert_truth_was_told(world, told)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", [POSTGRESQL, MYSQL])
@pytest.mark.parametrize("loss", [Loss.ANSWER, Loss.HOLE, Loss.RESET], ids=named)
def test_what_can_not_be_taken_back_now_is_taken_back_later(
    world: World, line: Proxy, broker: Broker, kind: str, loss: Loss
) -> None:
    line.lose(Phase.TAKE_BACK.on(kind), loss)
    told = attempt(broker, world, no_from_the_first)
    assert line.broke.wait(10)
    assert isinstance(told, RolledBack)
    assert_truth_was_told(world, told)


@pytest.mark.rule("R12")
@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", [POSTGRESQL, MYSQL])
@pytest.mark.parametrize("loss", [Loss.REQUEST, Loss.ANSWER, Loss.MUTE, Loss.SLOW, Loss.RESET], ids=named)
def test_a_database_alone_is_judged_by_its_evidence(
    world: World, line: Proxy, broker: Broker, kind: str, loss: Loss
) -> None:
    line.lose(Phase.ALONE.on(kind), loss)
    told = attempt(broker, world, lambda tx: move(tx, "1", [MORTGAGE]), key="alone")
    assert line.broke.wait(10)
    assert told is None or loss is not Loss.SLOW
    assert_truth_was_told(world, told, (MORTGAGE,))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", [POSTGRESQL, MYSQL])
@pytest.mark.parametrize("phase", [Phase.VOTE, Phase.COMMIT], ids=named)
def test_a_slow_line_is_waited_for(world: World, line: Proxy, broker: Broker, kind: str, phase: Phase) -> None:
    line.lose(phase.on(kind), Loss.SLOW)
    assert attempt(broker, world, both) is None
    assert line.broke.wait(10)
    assert_truth_was_told(world, None)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", [POSTGRESQL, MYSQL])
def test_who_waits_for_a_line_that_fell_silent_keeps_no_other_resource(
    world: World, line: Proxy, broker: Broker, kind: str
) -> None:
    participant: Any = broker.kernel.participant(MORTGAGE)[1]
    participant._patience = BOUND
    line.lose(Phase.COMMIT.on(kind), Loss.MUTE)
    told = started(lambda: attempt(broker, world, both))
    assert line.broke.wait(10)
    await_rows(world, BANK, 1)  # it was told beside the one that is silent
    with teller(broker).coordinated(BANK) as tx:
        move(tx, "1", [BANK])  # the same account: nothing holds it any more
    assert not told.done()
    line.close()
    assert isinstance(told.result(BOUND), Unfinished)
    world.let_leases_run_out()
    child.finish(coordinated.recover, world)
    assert_agreed(world, lambda resource, id: resource == BANK or id != f"1 {tx.txid}")


@pytest.mark.rule("R9")
def test_a_vote_that_arrives_after_everything_was_rolled_back_is_rolled_back_too(
    world: World, line: Proxy, broker: Broker, kind: str
) -> None:
    line.lose(Phase.VOTE.on(kind), Loss.LATE)
    told = attempt(broker, world, both)
    assert told is not None
    world.let_leases_run_out()
    child.finish(coordinated.recover, world)
    line.deliver()
    wait_until_prepared(world)
    assert_truth_was_told(world, told)


@pytest.mark.rule("R12")
def test_a_commit_that_arrives_behind_the_barrier_commits_nothing(
    world: World, line: Proxy, broker: Broker, kind: str
) -> None:
    line.lose(Phase.ALONE.on(kind), Loss.LATE)
    told = attempt(broker, world, lambda tx: move(tx, "1", [MORTGAGE]), key="alone")
    assert told is not None
    line.deliver()
    assert_truth_was_told(world, told, (MORTGAGE,))
    assert rows(world, MORTGAGE) == 0


def await_rows(world: World, resource: str, count: int) -> None:
    """Wait until a database shows so much."""
    end = time.monotonic() + BOUND
    while rows(world, resource) != count:
        assert time.monotonic() < end


def wait_until_prepared(world: World) -> None:
    """Wait until the second database holds something."""
    with database(world.resources[MORTGAGE]) as engine, engine.connect() as connection:
        found = None
        while found is None:
            found = connection.execute(text("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"))
            found = found.scalar()
            connection.rollback()


@contextmanager
def lost_session(tx: Coordinated, world: World) -> Iterator[Any]:
    """Work in the second database, lose the session, and give what is left of it."""
    move(tx, "1")
    with database(world.resources[MORTGAGE]) as engine, engine.connect() as connection:
        if kind_of(world.resources[MORTGAGE]) == MYSQL:
            (session,) = connection.execute(text(OPEN_SESSIONS)).scalars()
            connection.exec_driver_sql(f"KILL {session}")
        else:
            assert connection.execute(text(END_SESSIONS)).all()
    with tx.on(MORTGAGE) as left:
        yield left


def goes_on_elsewhere(tx: Coordinated, world: World) -> None:
    """Not notice at all."""
    with lost_session(tx, world):
        pass


def drops_the_error(tx: Coordinated, world: World) -> None:
    """Notice, and say nothing."""
    with lost_session(tx, world) as left, suppress(SQLAlchemyError):
        left.exec_driver_sql("SELECT 1")


def works_on_in_another_session(tx: Coordinated, world: World) -> None:
    """Roll back, which lets SQLAlchemy open another session, and work in that."""
    with lost_session(tx, world) as left:
        with suppress(SQLAlchemyError):
            left.exec_driver_sql("SELECT 1")
        left.rollback()
        debit(left, "1", str(tx.txid))


def lets_it_out(tx: Coordinated, world: World) -> None:
    """Let the error out of the block."""
    with lost_session(tx, world) as left:
        left.exec_driver_sql("SELECT 1")


CARELESS = (goes_on_elsewhere, drops_the_error, works_on_in_another_session, lets_it_out)


@pytest.mark.req("IBM-50")
@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", [POSTGRESQL, MYSQL])
@pytest.mark.parametrize("careless", CARELESS, ids=[each.__name__ for each in CARELESS])
def test_a_session_that_is_lost_is_not_opened_again_in_its_transaction(
    world: World, broker: Broker, kind: str, careless: Callable[[Coordinated, World], None]
) -> None:
    told = attempt(broker, world, lambda tx: careless(tx, world))
    assert told is not None
    assert [rows(world, resource) for resource in BOTH] == [0, 0]
    assert attempt(broker, world, both) is None  # the next one has a session again
    assert_truth_was_told(world, None)


@pytest.mark.req("IBM-67")
@pytest.mark.sampled(1)
@pytest.mark.parametrize("loss", [Loss.REQUEST, Loss.ANSWER, Loss.RESET], ids=named)
def test_a_decision_whose_answer_is_lost_is_found_again(world: World, loss: Loss) -> None:
    engines = {name: create_engine(url) for name, url in world.resources.items()}
    with (
        network(world.home_database) as home,
        txsaga.connect(
            f"{home.url}?namespace={world.name}", resources=engines, roles=False, answering=False, env={}
        ) as broker,
    ):
        home.lose(b"1 1", loss)  # the message lies in the decision
        told = attempt(broker, world, both)
        assert home.broke.wait(10)
    assert told is None
    assert_truth_was_told(world, told)
    for engine in engines.values():
        engine.dispose()
