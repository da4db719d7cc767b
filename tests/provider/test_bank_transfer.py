"""The example of the bank: every outcome that its form offers."""

from __future__ import annotations

import json

import pytest

from tests.provider.examples import example
from tests.provider.house import House


@pytest.fixture
def bank(house: House) -> House:
    """Give the bank as its own DAG opens it."""
    for name in ("bank_current", "bank_mortgage", "bank_audit"):
        house.postgres(name)
        house.execute(name, "DROP TABLE IF EXISTS account", "DROP TABLE IF EXISTS audit")
    house.topic("transfers")
    assert house.run(example("bank_open")).state == "success"
    return house


def balances(bank: House) -> tuple[int, int]:
    asked = "SELECT cents FROM account WHERE id = 1"
    return bank.rows("bank_current", asked)[0][0], bank.rows("bank_mortgage", asked)[0][0]


@pytest.mark.req("CARD-01", "IBM-66")
def test_the_bank_moves_money_or_only_its_audit_stays(bank: House) -> None:
    """All outcomes in one test: opening the bank costs more than a run."""
    transfer = example("bank_transfer")
    audit = "SELECT what FROM audit WHERE run = '{}' ORDER BY what DESC"

    good = bank.run(transfer)
    assert good.state == "success", good.tasks
    assert balances(bank) == (7500, 12499)
    assert [json.loads(each)["cents"] for each in bank.seen("transfers")] == [2500]
    assert bank.rows("bank_audit", audit.format(good.id)) == [("booked",), ("begun",)]

    for fault, failed, kept in (
        ("overdrawn", "debit", []),
        ("no mortgage", "end", [("booked",), ("begun",)]),
        ("after the audit", "check", [("booked",), ("begun",)]),
    ):
        run = bank.run(transfer, {"fault": fault})
        assert run.state == "failed"
        assert run.tasks[failed] == "failed", fault
        assert run.tasks["end"] == "failed"
        assert balances(bank) == (7500, 12499), fault
        assert bank.rows("bank_audit", audit.format(run.id)) == kept, fault
    assert len(bank.seen("transfers")) == 1
