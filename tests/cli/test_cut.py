"""`txsaga cut` through the entry point: one moment of topics and tables."""

from pathlib import Path

import pyarrow as pa
import pytest

import txsaga
from tests.cli.conftest import Cli

pytestmark = pytest.mark.postgres


@pytest.fixture
def store(bare: Cli, own_url: str, tmp_path: Path) -> str:
    with txsaga.connect(own_url, roles=False, warehouse=tmp_path, auto_create=True, env={}) as broker:
        producer = broker.producer("bank", checker=lambda question: None)
        with producer.transaction() as tx:
            tx.table("bank.ledger").create({"id": "long"}).append(pa.table({"id": [1, 2]}))
            tx.table("bank.empty").create({"id": "long"})
            tx.send("booked", b"1")
    return own_url


def test_a_cut_shows_topics_and_tables(bare: Cli, store: str) -> None:
    words = ("--table", "bank.ledger", "--table", "bank.empty", "--topic", "booked")
    found = bare("cut", "show", *words, "--json", "--url", store).document
    assert sum(found["topics"]["booked"]) == 1
    assert found["tables"]["bank.ledger"]["metadata"].endswith(".metadata.json")
    assert found["tables"]["bank.ledger"]["snapshot"] > 0
    assert found["tables"]["bank.empty"]["snapshot"] is None
    said = bare("cut", "show", *words, "--url", store).out
    assert "bank.ledger" in said and "booked" in said


def test_a_cut_without_tables_loads_no_lake(bare: Cli, store: str) -> None:
    assert set(bare("cut", "show", "--json", "--url", store).document["topics"]) == {"booked"}


def test_a_table_that_is_not_there_is_told(bare: Cli, store: str) -> None:
    failed = bare("cut", "show", "--table", "bank.nowhere", "--url", store)
    assert failed.code != 0
    assert "table 'bank.nowhere' does not exist" in failed.err
