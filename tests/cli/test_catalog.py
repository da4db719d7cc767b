"""`txsaga catalog` as a process."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.cli.program import environment, started
from txsaga.core import exits
from txsaga.wiring.connecting import open_store

pytestmark = pytest.mark.postgres


def test_it_serves_until_it_is_interrupted_and_another_one_shares_its_port(home_url: str, tmp_path: Path) -> None:
    open_store(home_url).close()
    env = environment(TXSAGA_URL=home_url, TXSAGA_WAREHOUSE=str(tmp_path))
    with started("catalog", "--port", "0", "--share-port", env=env) as first:
        assert first.stdout is not None
        address = first.stdout.readline().strip()
        with started("catalog", "--port", address.rpartition(":")[2], "--share-port", env=env) as second:
            assert second.stdout is not None
            assert second.stdout.readline().strip() == address
            first.send_signal(signal.SIGTERM)
            assert first.wait(20) == exits.OK
            with urlopen(f"{address}/v1/config", timeout=20) as answer:
                assert json.load(answer)["overrides"] == {}
            second.send_signal(signal.SIGINT)
            assert second.wait(20) == exits.INTERRUPTED
