"""Our catalog: served by the program on a free port, or in this process beside books on the same store."""

from __future__ import annotations

import importlib
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest

import txsaga
from tests.cli.program import environment, started
from tests.console.listening import listening
from tests.lake.books import Books
from tests.services.absent import ci_or_skip
from txsaga.catalog.access import Clients
from txsaga.catalog.app import create_app
from txsaga.catalog.open_catalog import OpenCatalog
from txsaga.core import exits
from txsaga.wiring.connecting import open_store

DUCKDB = ("duckdb", "duckdb_extension_avro", "duckdb_extension_httpfs", "duckdb_extension_iceberg")
Serve = Callable[[Clients], httpx.Client]


@pytest.fixture
def catalog_server(home_url: str, tmp_path: Path) -> Iterator[str]:
    """Give the URL of a catalog without tables."""
    open_store(home_url).close()
    env = environment(TXSAGA_URL=home_url, TXSAGA_WAREHOUSE=str(tmp_path / "warehouse"))
    with started("catalog", "--port", "0", env=env) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == exits.OK


@pytest.fixture
def books(home_url: str, tmp_path: Path) -> Iterator[Books]:
    """Give books in a lake."""
    open_store(home_url).close()
    with txsaga.connect(
        home_url, warehouse=tmp_path / "warehouse", roles=False, answering=False, auto_create=True, env={}
    ) as broker:
        yield Books(broker)


@pytest.fixture
def serve(books: Books) -> Iterator[Serve]:
    """Give a way to serve the store of the books to some clients."""
    with ExitStack() as opened:

        def serve(clients: Clients) -> httpx.Client:
            catalog = OpenCatalog(books.broker)
            address = opened.enter_context(listening(create_app(lambda: catalog, clients)))
            return opened.enter_context(httpx.Client(base_url=address, timeout=30))

        yield serve


@pytest.fixture
def rest(serve: Serve) -> httpx.Client:
    """Give the catalog of the books, over HTTP."""
    return serve(Clients())


@pytest.fixture
def duckdb() -> Iterator[Any]:
    """Give a connection of DuckDB with its extensions, from packages: `INSTALL iceberg` needs DuckDB's own server."""
    if not all(map(find_spec, DUCKDB)):
        ci_or_skip("DuckDB", "make venv")
    module, *extensions = map(importlib.import_module, DUCKDB)
    with module.connect() as connection:
        for extension in extensions:
            (file,) = Path(extension.__file__ or "").parent.rglob("*.duckdb_extension")
            connection.execute(f"LOAD '{file}'")
        yield connection
