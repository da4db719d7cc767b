"""`txsaga collect` through the entry point: what rolled back goes, what was refused may stay for a while."""

from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

import txsaga
from tests.cli.conftest import Cli
from tests.lake.test_flows import Opinion
from txsaga.errors import NotCarried

pytestmark = pytest.mark.postgres


@pytest.fixture
def store(bare: Cli, own_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TXSAGA_WAREHOUSE", str(tmp_path))
    with txsaga.connect(own_url, roles=False, warehouse=tmp_path, env={}) as broker:
        producer = broker.producer("bank", checker=lambda question: None)
        with producer.transaction() as tx:
            tx.table("bank.ledger").create({"id": "long"})
        with suppress(NotCarried), producer.transaction() as tx:
            tx.table("bank.ledger").append(pa.table({"id": [1, 2]}), gate=Opinion(yes=False))
    return own_url


def test_what_was_refused_goes_when_its_time_is_over(bare: Cli, store: str) -> None:
    assert bare("collect", "--keep-rejected", "7d", "--json", "--url", store).document["collected"] == []
    found = bare("collect", "--dry-run", "--json", "--url", store).document
    assert len(found["collected"]) == 2 and found["dry_run"]
    assert "2 deleted" in bare("collect", "--url", store).out
    assert bare("collect", "--json", "--url", store).document["collected"] == []


def test_what_is_no_time_is_told(bare: Cli, store: str) -> None:
    failed = bare("collect", "--keep-rejected", "soon", "--url", store)
    assert failed.code == 2 and "not a length of time" in failed.err
