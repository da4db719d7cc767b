"""Registered databases: whose engine is whose, which names they have, and what a fork leaves of them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.ext.asyncio import create_async_engine

import txsaga
from tests.services.embedded import temporary_home
from txsaga.config import Settings
from txsaga.embedded.server import EmbeddedServer
from txsaga.errors import ConfigError, EvidenceMissing, ResourceUnknown
from txsaga.evidence.location import create
from txsaga.wiring.connecting import embedded_url, in_loop, open_store
from txsaga.wiring.resources import THREADS, Resources, resource_engine

ROOT = Path(__file__).parents[2]


class Books:
    """An engine that knows how often it was disposed of."""

    def __init__(self, path: Path) -> None:
        self.engine: Engine = create_engine(f"sqlite:///{path}")
        self.disposed = 0
        event.listen(self.engine, "engine_disposed", self._count)

    def _count(self, engine: Engine) -> None:
        self.disposed += 1


def test_an_engine_that_is_passed_takes_the_place_of_the_environments(tmp_path: Path) -> None:
    books = Books(tmp_path / "books.db")
    resources = Resources({"books": f"sqlite:///{tmp_path / 'other.db'}"}, {"books": books.engine})
    assert resources.find(books.engine)[0] == "books"
    _, evidence = resources.find("books")
    assert evidence.database
    assert not (tmp_path / "other.db").exists()
    resources.close()
    assert books.disposed == 0


def test_engines_of_the_environment_are_disposed_of(tmp_path: Path) -> None:
    resources = Resources({"books": f"sqlite:///{tmp_path / 'books.db'}"}, {})
    disposed: list[Engine] = []
    resources.find("books")
    (engine,) = resources._engines.values()
    event.listen(engine, "engine_disposed", disposed.append)
    resources.close()
    assert disposed == [engine]


@pytest.mark.parametrize("name", ["Billing", "BILLING", "", 5, None])
def test_a_name_that_no_environment_can_say_is_refused(tmp_path: Path, name: object) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'books.db'}")
    with pytest.raises(ConfigError, match=r"lower case: .*TXSAGA_RESOURCE_"):
        Resources({}, {name: engine})  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match=r"lower case: .*TXSAGA_RESOURCE_"):
        Resources({}, {}).register(name, engine)  # type: ignore[arg-type]


@pytest.mark.postgres
def test_a_broker_refuses_such_a_name_before_it_opens_anything(home_url: str, tmp_path: Path) -> None:
    open_store(home_url).close()
    engine = create_engine(f"sqlite:///{tmp_path / 'books.db'}")
    with pytest.raises(ConfigError, match="'Books'"):
        txsaga.connect(home_url, resources={"Books": engine}, env={})


@pytest.mark.postgres
@pytest.mark.rule("R18")
@pytest.mark.timeout(60)
def test_a_forked_child_shares_no_session_and_runs_its_own_roles(
    home_url: str, foreign_databases: Callable[[], str]
) -> None:
    open_store(home_url).close()
    with txsaga.connect(home_url, roles=False, answering=False, env={}) as broker:
        broker.create_topic("orders", "transaction", queues=1)
    program = [sys.executable, "-m", "tests.wiring.forked", home_url, foreign_databases()]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.postgres
@pytest.mark.rule("R18")
@pytest.mark.timeout(60)
def test_a_forked_child_leaves_branches_and_their_sessions_to_its_parent(
    home_url: str, foreign_databases: Callable[[], str]
) -> None:
    open_store(home_url).close()
    databases = [foreign_databases() for _ in range(2)]
    program = [sys.executable, "-m", "tests.wiring.forked_participants", home_url, *databases]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.postgres
@pytest.mark.timeout(100)
def test_a_home_whose_path_is_too_long_for_a_socket_is_reached_over_tcp() -> None:
    with temporary_home() as folder:
        home = folder / ("long" * 30)
        home.mkdir(mode=0o711)
        url = embedded_url(Settings.from_env({"TXSAGA_PG_HOME": str(home)}))
        try:
            assert "127.0.0.1" in url
            open_store(url).close()
        finally:
            EmbeddedServer(home=home).stop("immediate")


@pytest.mark.parametrize(
    ("url", "seconds"),
    [
        ("postgresql+psycopg://bank@nowhere.invalid/bank", 10),
        ("mysql+pymysql://bank@nowhere.invalid/bank", 10),
        ("postgresql+psycopg://bank@nowhere.invalid/bank?connect_timeout=3", "3"),
    ],
)
def test_a_host_that_does_not_answer_keeps_nobody_for_long(url: str, seconds: object) -> None:
    asked: list[object] = []

    def connect(dialect: object, record: object, arguments: list[object], options: dict[str, object]) -> None:
        asked.append(options["connect_timeout"])
        raise InterruptedError

    engine = resource_engine(url, "TXSAGA_RESOURCE_BANK")
    event.listen(engine, "do_connect", connect)
    with pytest.raises(InterruptedError):
        engine.connect()
    assert [str(each) for each in asked] == [str(seconds)]


LOOPS = {
    "postgresql+psycopg": "postgresql+psycopg",
    "postgresql+psycopg_async": "postgresql+psycopg",
    "postgresql+asyncpg": "postgresql+psycopg",
    "mysql+asyncmy": "mysql+pymysql",
    "mariadb+asyncmy": "mariadb+pymysql",
    "sqlite+aiosqlite": "sqlite+pysqlite",
}


@pytest.mark.parametrize("driver", LOOPS)
def test_what_an_engine_of_asyncios_leads_to_is_asked_in_threads(driver: str) -> None:
    place = "/books.db" if driver.startswith("sqlite") else "anna:secret@127.0.0.1:5/books?host=127.0.0.2"
    engine = create_async_engine(f"{driver}://{place}")
    resources = Resources({}, {"books": engine})
    (asking,) = resources._engines.values()
    assert asking.url == engine.url.set(drivername=LOOPS[driver])
    resources.close()


def test_the_environment_says_where_threads_ask(tmp_path: Path) -> None:
    engine = create_async_engine("sqlite+aiosqlite://", async_creator=lambda: None)
    url = f"sqlite:///{tmp_path / 'books.db'}"
    resources = Resources({"books": url}, {"books": engine})
    (asking,) = resources._engines.values()
    assert str(asking.url) == url
    assert resources.find(engine)[0] == resources.find("books")[0] == "books"
    resources.close()


def test_a_driver_that_is_not_known_needs_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(THREADS, "aiosqlite")
    engine = create_async_engine("sqlite+aiosqlite://")
    with pytest.raises(ConfigError, match=r"'aiosqlite'.*TXSAGA_RESOURCE_BOOKS"):
        Resources({}, {"books": engine})


def test_an_engine_of_asyncios_joins_what_the_environment_named(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'books.db'}"
    resources = Resources({"books": url}, {})
    _, evidence = resources.find("books")
    with pytest.raises(ConfigError, match="create_async_engine"):
        evidence.in_loop()
    first, second = (create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'books.db'}") for _ in range(2))
    resources.register("books", first)
    assert resources.find(first) == resources.find("books") == ("books", evidence)
    assert evidence.in_loop()
    with pytest.raises(ConfigError, match="registered already"):
        resources.register("books", second)
    resources.close()


def test_an_engine_of_asyncios_has_one_name(tmp_path: Path) -> None:
    first, second = (create_async_engine(f"sqlite+aiosqlite:///{tmp_path / each}") for each in ("a", "b"))
    resources = Resources({}, {"books": first})
    resources.register("books", first)
    with pytest.raises(ConfigError, match="registered already"):
        resources.register("books", second)
    with pytest.raises(ConfigError, match="registered already"):
        resources.register("books", create_engine(f"sqlite:///{tmp_path / 'a'}"))
    with pytest.raises(ResourceUnknown):
        resources.find(second)
    resources.close()


def test_an_engine_that_leads_elsewhere_than_the_environment_is_refused(tmp_path: Path) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'b.db'}")
    resources = Resources({"books": f"sqlite:///{tmp_path / 'a.db'}"}, {"books": engine})
    create(create_engine(f"sqlite:///{tmp_path / 'b.db'}"))
    _, evidence = resources.find("books")
    assert evidence.database

    async def work() -> None:
        try:
            await in_loop(evidence.in_loop().work(f"{'0' * 32}-1-1").__enter__)
        finally:
            await engine.dispose()

    with pytest.raises(EvidenceMissing, match="points to another database"):
        asyncio.run(work())
    resources.close()


def test_options_that_threads_do_not_know_are_refused_with_what_to_do() -> None:
    engine = create_async_engine("postgresql+asyncpg://anna@127.0.0.1:5/books?ssl=disable&host=127.0.0.1")
    with pytest.raises(ConfigError, match=r"\(ssl\).*TXSAGA_RESOURCE_BOOKS"):
        Resources({}, {"books": engine})


@pytest.mark.postgres
def test_a_database_without_our_tables_is_another_one(foreign_databases: Callable[[], str]) -> None:
    engine = create_async_engine(foreign_databases())
    resources = Resources({"books": foreign_databases()}, {"books": engine})
    _, evidence = resources.find("books")
    assert evidence.database

    async def work() -> None:
        try:
            await in_loop(evidence.in_loop().work(f"{'0' * 32}-1-1").__enter__)
        finally:
            await engine.dispose()

    with pytest.raises(EvidenceMissing, match="points to another database"):
        asyncio.run(work())
    resources.close()
