"""W10: the open catalog over REST, beside Iceberg's reference server: commits of three tables, and loads among 10,000.

The reference server commits one table of a request after the other, in a SQLite file: it may be killed between two.
Both sides are asked by the same threads, in turns, and each thread commits to tables of its own.
"""

from __future__ import annotations

import json
import random
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg

from tests.bench.callers import threads
from tests.bench.home import Home
from tests.bench.report import Row, absent, alternate
from tests.cli.program import environment, started
from tests.open_catalog.asking import SCHEMA, change
from tests.open_catalog.kit import JARS, VERSION
from tests.open_catalog.reference import reference_server
from txsaga.lake.storage import local
from txsaga.wiring.connecting import open_store

CALLERS = 8
TABLES, LOADS = 10_000, 300
COPIED = """INSERT INTO {table} (catalog_name, table_namespace, table_name, metadata_location)
SELECT catalog_name, table_namespace, {name}, {location} FROM {table} WHERE table_name = 't0_0'"""


class Asked:
    """A catalog and the tables that its callers commit to; each thread keeps a connection."""

    def __init__(self, url: str) -> None:
        self._address, self._own, self.port = urlsplit(url).netloc, threading.local(), str(urlsplit(url).port)
        self.ask("POST", "/v1/namespaces", {"namespace": ["bank"], "properties": {}})
        names = [f"t{caller}_{at}" for caller in range(CALLERS) for at in range(3)]
        *_, self.location = map(self._created, names)

    def _created(self, name: str) -> str:
        answer = self.ask("POST", "/v1/namespaces/bank/tables", {"name": name, "schema": SCHEMA})
        return str(json.loads(answer)["metadata-location"])

    def ask(self, method: str, path: str, body: Any = None) -> bytes:
        if not hasattr(self._own, "connection"):
            self._own.connection = HTTPConnection(self._address, timeout=60)
        connection: HTTPConnection = self._own.connection
        connection.request(method, path, json.dumps(body) if body else None, {"content-type": "application/json"})
        answer = connection.getresponse()
        said = answer.read()
        assert answer.status < 300, said
        return said

    def commit(self, caller: int) -> None:
        changes = [change(f"t{caller}_{at}", n=str(time.monotonic_ns())) for at in range(3)]
        self.ask("POST", "/v1/transactions/commit", {"table-changes": changes})

    def commits(self, callers: int, seconds: float) -> Mapping[str, float]:
        calls = threads(callers, seconds, self.commit)
        return {"txsaga": calls.rate, "p50_ms": calls.percentile_ms(0.5), "p95_ms": calls.percentile_ms(0.95)}

    def load_ms(self) -> float:
        """Return the 95th percentile of loads of tables that differ."""
        self._own.connection = HTTPConnection(self._address, timeout=60)  # one that was idle for long may be closed
        times = []
        for number in random.sample(range(TABLES), LOADS):
            begun = time.perf_counter()
            self.ask("GET", f"/v1/namespaces/bank/tables/many{number}")
            times.append(1000 * (time.perf_counter() - begun))
        return sorted(times)[int(0.95 * LOADS)]

    def more_tables(self) -> Iterator[tuple[str, str]]:
        """Yield names of tables, each with a copy of one metadata file."""
        path = local(self.location)
        assert path is not None
        text = path.read_bytes()
        for number in range(TABLES):
            copy = path.with_name(f"00000-{uuid4()}.metadata.json")
            copy.write_bytes(text)
            yield f"many{number}", f"file://{copy}"


@contextmanager
def serving(url: str, folder: Path, port: str = "0") -> Iterator[str]:
    """Serve a store by the program, perhaps beside another server on one port."""
    env = environment(TXSAGA_URL=url, TXSAGA_WAREHOUSE=str(folder / "ours"))
    with started("catalog", "--port", port, "--share-port", env=env) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()


@contextmanager
def ours(home: Home, url: str, folder: Path) -> Iterator[Asked]:
    """Serve a store with many tables."""
    open_store(url).close()
    with serving(url, folder) as address:
        catalog = Asked(address)
        with psycopg.connect(home.url(driver=None)) as connection, connection.cursor() as cursor:
            table = f"{url.rpartition('=')[2]}.iceberg_tables"
            cursor.executemany(COPIED.format(table=table, name="%s", location="%s"), catalog.more_tables())
        yield catalog


@contextmanager
def theirs(folder: Path) -> Iterator[Asked]:
    """Serve a SQLite file by the reference server."""
    with reference_server(CATALOG_URI=f"jdbc:sqlite:{folder}/catalog.db") as url:
        catalog = Asked(url)
        with sqlite3.connect(folder / "catalog.db", timeout=30) as connection:
            connection.executemany(COPIED.format(table="iceberg_tables", name="?", location="?"), catalog.more_tables())
        yield catalog


def run(home: Home, seconds: float, rounds: int) -> tuple[list[Row], list[str]]:
    if not (JARS / VERSION / "ready").exists():
        return [], [absent("Iceberg's reference server", ".ci/iceberg-kit")]
    url = home.namespace()
    with tempfile.TemporaryDirectory() as named, ExitStack() as opened:
        folder = Path(named)
        us, them = opened.enter_context(ours(home, url, folder)), opened.enter_context(theirs(folder))

        def compared(callers: int, what: str) -> Row:
            reference = {"reference": lambda: them.commits(callers, seconds)["txsaga"]}
            return alternate(f"3 tables, {what}", rounds, partial(us.commits, callers, seconds), reference)

        loads: Callable[[], float] = us.load_ms
        load = alternate(f"load, p95 of {TABLES}", rounds, loads, {"reference": them.load_ms}, unit="ms")
        rows = [compared(1, "1 caller"), compared(CALLERS, f"{CALLERS} callers")]
        opened.enter_context(serving(url, folder, us.port))
        return [*rows, compared(CALLERS, f"{CALLERS} callers, 2 servers"), load], []
