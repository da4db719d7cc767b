"""One Spark session for all tests of a process: starting a JVM takes longer than most of them."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.lake.conftest import books, warehouse
from tests.services.absent import ci_or_skip
from tests.services.databases import fresh_name
from tests.services.embedded import stretch_password

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.lake.books import Books
    from txsaga.embedded.server import EmbeddedServer

__all__ = ["books", "warehouse"]

UNTIDY = ("ResourceWarning", "pytest.PytestUnraisableExceptionWarning")
"""Py4J leaves sockets to the garbage collector."""
JARS = "TXSAGA_SPARK_JARS"
MADE = Path(__file__).parents[2] / ".jars"
MAKE_JARS = "make jars"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what starts a JVM."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(300))
            for warning in UNTIDY:
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{warning}"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """Give the session of this process, with the Iceberg runtime where there is one."""
    from pyspark import SparkContext

    from txsaga.spark import session

    place = tmp_path_factory.mktemp("spark")
    conf = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.local.dir": str(place / "local"),
    }
    if jars():
        conf["spark.sql.extensions"] = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")]))
        if jars():
            patch.setenv(JARS, jars())
        opened = session(master="local[2]", conf=conf)
    opened.sparkContext.setLogLevel("ERROR")
    yield opened
    opened.stop()
    gateway: Any = SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM goes with it
    gateway.proc.wait(60)


def jars() -> str:
    """Return where the jars are; a test that needs them says so."""
    return os.environ.get(JARS) or (str(MADE) if MADE.is_dir() else "")


@pytest.fixture(scope="session")
def jdbc_login(server: "EmbeddedServer") -> None:
    """Let JDBC log in: its driver takes no password that is stretched less."""
    stretch_password(server, 4096)


@pytest.fixture
def runtime(spark: "SparkSession", jdbc_login: None) -> "SparkSession":
    """Give the session with the Iceberg runtime."""
    if not jars():
        ci_or_skip("the Iceberg runtime", MAKE_JARS)
    return spark


@pytest.fixture
def open_books(home_url: str, warehouse: Path) -> "Iterator[Callable[..., Books]]":
    """Give a factory of brokers whose catalog has a name that this JVM has not seen."""
    import txsaga
    from tests.lake.books import Books
    from txsaga.wiring.connecting import open_store

    open_store(home_url).close()
    opened: list[Books] = []
    env = {"TXSAGA_CATALOG": fresh_name("c")}

    def open(*observers: object) -> Books:
        broker = txsaga.connect(home_url, warehouse=warehouse, roles=False, answering=False, auto_create=True, env=env)
        opened.append(Books(broker))
        return opened[-1]

    yield open
    for each in opened:
        each.broker.close()


@pytest.fixture
def catalog(runtime: "SparkSession", books: "Books") -> str:
    """Open the home catalog in Spark; give its name."""
    settings = books.lake.spark_settings()
    for key, value in settings.items():
        if key.startswith("spark.sql.catalog."):
            runtime.conf.set(key, value)
    return books.lake.catalog.name
