"""What every test may ask for: a home database, more databases, a MariaDB; and the check that nothing stays.

Imports of txsaga and of the services stay inside the fixtures: collection must work without them.
"""

import gc
import os
import random
import secrets
import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.chaos.tally import KILL_SEED, KillTable
from tests.services import leftovers
from tests.services.slowest import slowest_files

if TYPE_CHECKING:
    from tests.services.databases import DatabaseServer, LentDatabases
    from tests.services.installing import Install
    from tests.services.mariadb import MariaServer
    from tests.services.spares import Spares

HOME_DATABASE = "home"
SERVERS = frozenset({"server", "maria", "airflow_home", "engine_of"})
"""Fixtures of which a test that asks for one is slow unless it is marked `core`."""
LEFT = pytest.StashKey[list[leftovers.Leftover]]()
TOKEN = pytest.StashKey[str]()
HOMES = pytest.StashKey[list[Path]]()
"""Homes of servers that stopped with the session: half a million files, gone when no test's time runs any more."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full-matrix", action="store_true", help="kill at every point, not at a seeded sample")


def pytest_configure(config: pytest.Config) -> None:
    os.environ[KILL_SEED] = os.environ.get(KILL_SEED) or str(random.randrange(10_000))  # one for all workers
    config.pluginmanager.register(KillTable())
    config.stash[HOMES] = []
    if leftovers.MARK not in os.environ:  # a session inside a test leaves the check to the outer one
        config.stash[TOKEN] = os.environ[leftovers.MARK] = secrets.token_hex(8)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    nameless = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if nameless:  # each worker would call it by another name
        raise pytest.UsageError(f"give ids to the parameters of {nameless[0]}: an address is none")
    for item in items:
        if needs_a_server(item) and not item.get_closest_marker("core"):
            item.add_marker(pytest.mark.slow)


def needs_a_server(item: pytest.Item) -> bool:
    """Tell whether a test starts a server, or waits for one."""
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    marked = any(item.get_closest_marker(name) for name in ("postgres", "mariadb"))
    return marked or "shop" in values or not SERVERS.isdisjoint(getattr(item, "fixturenames", ()))


def pytest_unconfigure(config: pytest.Config) -> None:
    if TOKEN in config.stash:
        os.environ.pop(leftovers.MARK, None)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    for home in session.config.stash[HOMES]:
        shutil.rmtree(home, ignore_errors=True)
    token = session.config.stash.get(TOKEN, None)
    left = leftovers.wait_for_none(token) if token else []
    if left:
        session.config.stash[LEFT] = left
        leftovers.kill(left)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for left in terminalreporter.config.stash.get(LEFT, []):
        terminalreporter.write_line(f"left running by a test, now killed: {left.pid} {left.command}", red=True)
    reports = (report for kind in terminalreporter.stats.values() for report in kind)
    for file, seconds in slowest_files(reports):
        terminalreporter.write_line(f"{seconds:7.1f} s  {file}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let a worker hand on what a test has logged, also what no encoding can say."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report


@pytest.fixture(scope="module", autouse=True)
def small_garbage() -> None:
    """Keep what is there already out of collections: a loop's test asks for one, and a whole session takes a second."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def no_heartbeat() -> Iterator[None]:
    """Let what a test leaves open be as good as dead, though its process lives on."""
    from txsaga.wiring import connecting

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connecting, "HEARTBEAT", False)
        yield


@pytest.fixture(scope="session")
def spares() -> "Iterator[Spares]":
    """Give the namespaces that tests of this session emptied."""
    from tests.services.spares import Spares

    with closing(Spares()) as spares:
        yield spares


@pytest.fixture(scope="session", autouse=True)
def one_by_one(spares: "Spares") -> "Iterator[Install]":
    """Install the namespaces of tests without migrations; give what does each migration by itself."""
    from tests.services.installing import installed_by_script

    with installed_by_script(spares) as migrations:
        yield migrations


@pytest.fixture(scope="session")
def server(pytestconfig: pytest.Config) -> "Iterator[DatabaseServer]":
    """Give the embedded PostgreSQL of this session."""
    from tests.services.embedded import embedded_server, stretch_password

    with embedded_server(leave=pytestconfig.stash[HOMES].append) as running:
        stretch_password(running, 1)  # 4096 would cost 4 ms for each of many thousand connections
        yield running


@pytest.fixture(scope="session")
def home_database(server: "DatabaseServer") -> str:
    """Give the URL of the one database that holds every test's namespace."""
    server.database(HOME_DATABASE)
    return server.url(HOME_DATABASE)


@pytest.fixture
def home_url(home_database: str, spares: "Spares") -> Iterator[str]:
    """Give the URL of a namespace that nobody has used; nothing is installed in it yet."""
    from tests.services.databases import fresh_name

    url = f"{home_database}{'&' if '?' in home_database else '?'}namespace={fresh_name('t')}"
    yield url
    spares.give_back(url)


@pytest.fixture(scope="session")
def lent_databases(server: "DatabaseServer") -> "LentDatabases":
    """Give the databases that tests use one after the other."""
    from tests.services.databases import LentDatabases

    return LentDatabases(server)


@pytest.fixture
def foreign_databases(server: "DatabaseServer", lent_databases: "LentDatabases") -> Iterator[Callable[[], str]]:
    """Give a factory of further empty databases on the same server."""
    lent: list[str] = []

    def make() -> str:
        lent.append(lent_databases.take())
        return server.url(lent[-1])

    yield make
    for name in lent:
        lent_databases.give_back(name)


@pytest.fixture(scope="session")
def maria() -> "Iterator[MariaServer]":
    """Give the MariaDB server of this session."""
    from tests.services.mariadb import maria_server

    with maria_server() as running:
        yield running


@pytest.fixture(scope="session")
def mariadb(maria: "MariaServer") -> str:
    """Give the SQLAlchemy URL of a database on MariaDB."""
    maria.execute("create database txsaga")
    return maria.url("txsaga")
