"""W2: one insert in each of two foreign databases, decided through us; and messages beside one foreign database.

Ours writes journals, since nobody reads what is inserted: they are executed when the block ends. By `sessions` it works
on psycopg's own connection, statement by statement, as the ceiling does. Callers are tasks of asyncio's, on both
sides; threads are where they are called so.
Ceiling: the same driver with its own PREPARE and COMMIT PREPARED (XA on MariaDB), and no log: what dies in between
there is never finished by anybody. `home + 1 foreign` is held to the ceiling of one branch.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import psycopg
from sqlalchemy import Engine, create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from tests.bench.callers import tasks, threads
from tests.bench.home import Home
from tests.bench.report import Row, absent, alternate
from tests.bench.w1 import BODY, broker_of
from txsaga import LocalState
from txsaga.flows.coordinated import AsyncCoordinated

if TYPE_CHECKING:
    from tests.services.mariadb import MariaServer

TABLE = "CREATE TABLE IF NOT EXISTS booking(v bigint)"
WORK = "INSERT INTO booking(v) VALUES (1)"
FIRST, SECOND = "other", "third"

_numbers = itertools.count()

Work = Callable[[AsyncCoordinated, str], Awaitable[None]]


async def _journal(tx: AsyncCoordinated, name: str) -> None:
    tx.journal(name).execute(WORK)


async def _session(tx: AsyncCoordinated, name: str) -> None:
    async with tx.on(name, driver=True) as connection:
        await connection.execute(WORK)


SHAPES: Mapping[str, Work] = {"": _journal, " by sessions": _session}


def run(home: Home, seconds: float, rounds: int) -> tuple[list[Row], list[str]]:
    home.server.database(SECOND)
    for database in (FIRST, SECOND):
        home.execute(TABLE, database)
    urls, rows = {name: home.url(name) for name in (FIRST, SECOND)}, []
    for shape, work in SHAPES.items():
        for count in (1, 8, 32):
            case = f"{count} caller{'s' if count > 1 else ''}{shape}"
            ours, ceiling = (
                _ours_tasks(home, count, seconds, urls, work),
                _raw_tasks(home, count, seconds, FIRST, SECOND),
            )
            rows.append(alternate(case, rounds, ours, {"raw-2pc": ceiling}))
    for count in (1, 8, 32):
        ours, ceiling = _ours(home, count, seconds, urls), _raw(home, count, seconds, FIRST, SECOND)
        rows.append(alternate(f"{count} thread{'s' if count > 1 else ''}", rounds, ours, {"raw-2pc": ceiling}))
    found, skipped = with_mariadb(home, seconds, rounds)
    rows += found
    url = {FIRST: home.url(FIRST)}
    ours, ceiling = _ours_tasks(home, 8, seconds, url, _journal, tell=True), _raw_tasks(home, 8, seconds, FIRST)
    rows.append(alternate("home + 1 foreign", rounds, ours, {"raw-2pc": ceiling}))
    ours, ceiling = _ours(home, 8, seconds, url, tell=True), _raw(home, 8, seconds, FIRST)
    rows.append(alternate("home + 1 foreign, threads", rounds, ours, {"raw-2pc": ceiling}))
    return rows, skipped


def with_mariadb(home: Home, seconds: float, rounds: int) -> tuple[list[Row], list[str]]:
    """Measure with a branch on MariaDB, where it is installed."""
    if find_spec("pymysql") is None:
        return [], [absent("pymysql", "make venv")]
    from tests.services.mariadb import INSTALL_LINE, maria_server, programs

    if not all(programs()):
        return [], [absent("MariaDB", INSTALL_LINE)]
    with maria_server() as maria:
        maria.execute("CREATE DATABASE bench")
        maria.execute("CREATE TABLE bench.booking(v bigint)")
        urls = {FIRST: home.url(FIRST), "maria": maria.url("bench")}
        raw = {"raw-2pc": _raw(home, 8, seconds, FIRST, maria=maria)}
        return [alternate("mariadb 8 threads", rounds, _ours(home, 8, seconds, urls), raw)], []


def _ours_tasks(
    home: Home, count: int, seconds: float, urls: Mapping[str, str], work: Work, *, tell: bool = False
) -> Callable[[], Mapping[str, float]]:
    def measure() -> Mapping[str, float]:
        with broker_of(home.namespace()) as broker:
            engines = {name: create_async_engine(url, pool_size=count, max_overflow=0) for name, url in urls.items()}
            for name, engine in engines.items():
                broker.register(name, engine)
            producer = broker.producer("bench", checker=lambda _: LocalState.UNKNOWN)

            async def call(_: int) -> None:
                async with producer.coordinated(*engines) as tx:
                    for name in engines:
                        await work(tx, name)
                    if tell:
                        await tx.send("orders", BODY)

            async def close() -> None:
                for engine in engines.values():
                    await engine.dispose()

            calls = tasks(count, seconds, call, close=close)
        return {"txsaga": calls.rate, "p99_ms": calls.percentile_ms(0.99)}

    return measure


def _raw_tasks(home: Home, count: int, seconds: float, *databases: str) -> Callable[[], float]:
    def measure() -> float:
        sessions: dict[int, list[psycopg.AsyncConnection[Any]]] = {}

        async def call(at: int) -> None:
            if at not in sessions:
                urls = [home.url(name, None) for name in databases]
                sessions[at] = [await psycopg.AsyncConnection.connect(url, autocommit=True) for url in urls]
            names = [f"raw-task-{at}-{next(_numbers)}-{which}" for which in range(len(databases))]
            for session, name in zip(sessions[at], names, strict=True):
                for step in STEPS["pg"][0]:
                    await session.execute(step.format(x=name))
            for session, name in zip(sessions[at], names, strict=True):
                await session.execute(STEPS["pg"][1].format(x=name))

        async def close() -> None:
            for opened in sessions.values():
                for session in opened:
                    await session.close()

        return tasks(count, seconds, call, close=close).rate

    return measure


def _ours(
    home: Home, count: int, seconds: float, urls: Mapping[str, str], *, tell: bool = False
) -> Callable[[], Mapping[str, float]]:
    def measure() -> Mapping[str, float]:
        with broker_of(home.namespace()) as broker, _engines(urls, count) as engines:
            for name, engine in engines.items():
                broker.register(name, engine)
            producer = broker.producer("bench", checker=lambda _: LocalState.UNKNOWN)

            def call(_: int) -> None:
                with producer.coordinated(*engines) as tx:
                    for name in engines:
                        tx.journal(name).execute(WORK)
                    if tell:
                        tx.send("orders", BODY)

            call(0)
            calls = threads(count, seconds, call)
        return {"txsaga": calls.rate, "p99_ms": calls.percentile_ms(0.99)}

    return measure


@contextmanager
def _engines(urls: Mapping[str, str], size: int) -> Iterator[Mapping[str, Engine]]:
    engines = {name: create_engine(url, pool_size=size, max_overflow=0) for name, url in urls.items()}
    try:
        yield engines
    finally:
        for engine in engines.values():
            engine.dispose()


def _raw(
    home: Home, count: int, seconds: float, *databases: str, maria: MariaServer | None = None
) -> Callable[[], float]:
    def measure() -> float:
        with ExitStack() as opened:
            sessions: list[list[tuple[Callable[[str], None], str]]] = []
            for _ in range(count):
                mine = []
                for name in databases:
                    connection = opened.enter_context(psycopg.connect(home.url(name, None), autocommit=True))
                    mine.append((_told(connection), "pg"))
                if maria is not None:
                    mine.append((_told(opened.enter_context(_maria(maria))), "maria"))
                sessions.append(mine)
            return threads(count, seconds, lambda at: _two_phases(sessions[at])).rate

    return measure


def _maria(maria: MariaServer) -> Any:  # the driver has no types
    import pymysql

    return pymysql.connect(
        host="127.0.0.1", port=maria.port, user="root", password=maria.password, database="bench", autocommit=True
    )


def _told(connection: Any) -> Callable[[str], None]:  # of either driver
    cursor = connection.cursor()
    return lambda sql: cursor.execute(sql)


STEPS = {
    "pg": (("BEGIN", WORK, "PREPARE TRANSACTION '{x}'"), "COMMIT PREPARED '{x}'"),
    "maria": (("XA START '{x}'", WORK, "XA END '{x}'", "XA PREPARE '{x}'"), "XA COMMIT '{x}'"),
}


def _two_phases(sessions: list[tuple[Callable[[str], None], str]]) -> None:
    names = [f"raw-{threading.get_ident()}-{next(_numbers)}-{at}" for at in range(len(sessions))]
    for (execute, kind), name in zip(sessions, names, strict=True):
        for step in STEPS[kind][0]:
            execute(step.format(x=name))
    for (execute, kind), name in zip(sessions, names, strict=True):
        execute(STEPS[kind][1].format(x=name))
