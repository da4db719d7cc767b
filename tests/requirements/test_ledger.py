"""A row is shown by a test that runs; what is open or unknown is said in one line each."""

import pytest

from tests.requirements.catalogue import Catalogue, Row, Section
from tests.requirements.claims import Claim, named
from tests.requirements.ledger import Ledger
from tests.requirements.table import lines

CATALOGUE = Catalogue(
    sections=(
        Section(
            id="A1",
            title="Halves",
            shipped=True,
            rows=(Row(id="RMQ-03", title="durable"), Row(id="RMQ-13", title="same")),
        ),
        Section(id="A4", title="Checks", shipped=False, rows=(Row(id="RMQ-08", title="asked"),)),
    ),
    beyond=(Row(id="BEYOND-2", title="first wins"),),
    rules=(Row(id="R1", title="closing point"),),
    cases=("BRK-01", "BRK-02", "RC-J1"),
    decision_cases=("BRK-01", "RC-J1"),
)


def claim(test: str, *ids: str, idle: bool = False) -> Claim:
    return Claim(test=test, ids=frozenset(ids), idle=idle)


def test_a_shipped_row_without_a_test_fails_the_list() -> None:
    ledger = Ledger.of(CATALOGUE, [claim("a", "RMQ-03")])
    assert ledger.complaints() == ["RMQ-13 is shipped and no test shows it: same"]


def test_rows_to_come_may_stay_open() -> None:
    assert Ledger.of(CATALOGUE, [claim("a", "RMQ-03", "RMQ-13")]).complaints() == []


def test_an_idle_test_shows_nothing() -> None:
    ledger = Ledger.of(CATALOGUE, [claim("a", "RMQ-03"), claim("b", "RMQ-13", idle=True)])
    assert [row.id for row in ledger.missing()] == ["RMQ-13"]


@pytest.mark.parametrize("idle", [False, True])
def test_an_unknown_id_fails_the_list_even_on_an_idle_test(idle: bool) -> None:
    ledger = Ledger.of(CATALOGUE, [claim("a", "RMQ-03", "RMQ-13"), claim("b", "RMQ-3", idle=idle)])
    assert ledger.complaints() == ["b carries RMQ-3, which no list knows"]


def test_the_table_counts_tests_and_names_what_is_open() -> None:
    ledger = Ledger.of(CATALOGUE, [claim("a", "RMQ-03", "BRK-01"), claim("b", "RMQ-03", "R1")])
    printed = "\n".join(lines(ledger))
    assert "A1  Halves (shipped): 1 of 2" in printed
    assert "A4  Checks (to come): 0 of 1" in printed
    assert "Conformance cases: 1 of 3" in printed
    assert "decision: 1 of 2\n    open: RC-J1" in printed
    assert printed.endswith("rows: 1 of 3, of them in shipped sections: 1 of 2")
    counted = {line.split()[0]: line.split()[-2:] for line in printed.splitlines() if line.startswith("  R")}
    assert counted["RMQ-03"] == ["2", "tests"]
    assert counted["R1"] == ["1", "test"]
    assert counted["RMQ-13"][-1] == "open"


def test_the_tests_can_be_named_below_their_row() -> None:
    ledger = Ledger.of(CATALOGUE, [claim("tests/a.py::a", "RMQ-03")])
    assert "             tests/a.py::a" in list(lines(ledger, with_tests=True))


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("test_rmq_" + "12_says_so", ["RMQ-12"]),
        ("test_ibm_" + "7_and_wm_48", ["IBM-07", "WM-48"]),
        ("test_conf_" + "brk_05_is_refused", ["BRK-05"]),
        ("test_conf_" + "rc_j1", ["RC-J1"]),
        ("test_confirms_rmq_topics_and_12_others", []),
    ],
)
def test_an_id_in_a_name_counts(name: str, ids: list[str]) -> None:
    assert list(named(name)) == ids
