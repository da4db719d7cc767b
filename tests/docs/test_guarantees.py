"""The page of guarantees says of every fact what happens to a process that is killed there."""

import re
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

import txsaga
from txsaga.core import facts
from txsaga.core.facts import Fact
from txsaga.wiring.connecting import connect, open_store

pytestmark = pytest.mark.core

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "guarantees.md"


def killed(part: str) -> set[str]:
    """Return the facts in the first column of the tables of a part of the page."""
    cells = re.findall(r"^\| ([^|]+) \|", part, re.MULTILINE)
    return {fact for cell in cells for fact in re.findall(r"`([A-Z]\w+)`", cell)}


@pytest.mark.req("BEYOND-9")
def test_every_fact_is_there() -> None:
    assert killed(PAGE.read_text("utf-8")) == {fact.__name__ for fact in facts.ALL}


def test_every_fact_of_a_transfer_is_in_the_table_of_transfers(home_url: str, tmp_path: Path) -> None:
    open_store(home_url).close()
    seen: list[str] = []

    def watch(fact: Fact) -> None:
        seen.append(fact.name)

    bank = create_engine(f"sqlite:///{tmp_path / 'bank.db'}")
    with connect(home_url, resources={"bank": bank}, observers=[watch], roles=False, answering=False) as broker:
        broker.create_topic("transfers", "transaction")
        producer = broker.producer("bank", checker=lambda question: txsaga.UNKNOWN)
        with producer.transaction(key="transfer-1") as tx:
            tx.send("transfers", b"100")
            with tx.local("bank") as connection:
                connection.execute(text("CREATE TABLE entry (cents int)"))
        broker.roles()[0].run_once()
    bank.dispose()
    page = PAGE.read_text("utf-8").partition("## Killed")[2]
    transfer, beside = (
        page.partition("### Other ways to send")[0],
        page.partition("alongside its work:")[2].partition("\n\nThe")[0],
    )
    assert set(seen) - killed(beside) == killed(transfer)
