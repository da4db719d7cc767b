"""Our catalog, served by the program on a free port."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import environment, started
from txsaga.core import exits
from txsaga.wiring.connecting import open_store


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
