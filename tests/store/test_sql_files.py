"""The SQL files: each statement has a name, an end and a user."""

import re
from pathlib import Path

import pytest

from tests.architecture.sources import PACKAGE, python_files
from txsaga.checkback.profile import LEASE
from txsaga.flows import work_statements
from txsaga.flows.branch import BRANCH, NOTHING_DONE, OVER, BranchEvent
from txsaga.flows.step import STEP, UNDONE, StepEvent
from txsaga.lake import home_rows_store
from txsaga.store import sql_files

FILES = sorted(str(file.relative_to(PACKAGE)) for file in PACKAGE.rglob("sql/*.sql"))
MODULES = [path.read_text("utf-8") for path in python_files() if path.is_relative_to(PACKAGE)]
ASKED = {name for module in MODULES for name in re.findall(r"[\"'](\w+)[\"']|\b(\w+): Sequence", module)}
USED = {each for names in ASKED for each in names}


@pytest.mark.parametrize("file", FILES)
def test_a_file_is_statements_with_names(file: str) -> None:
    text = _text(file)
    nothing, *statements = re.split(r"^-- name: ", text, flags=re.MULTILINE)
    assert not nothing and len(statements) == len(sql_files.read(file))
    assert all(statement.rstrip().endswith(";") for statement in statements)
    assert all(len(line) <= 120 for line in text.splitlines())


@pytest.mark.parametrize("file", FILES)
def test_every_statement_is_used(file: str) -> None:
    within = {name for each in FILES for name in re.findall(r"\{statement (?:\w+/\w+\.)?(\w+)\}", _text(each))}
    assert set(sql_files.read(file)) <= USED | within


def test_one_statement_writes_decisions() -> None:
    assert [file for file in FILES if "INSERT INTO txsaga.op " in _text(file)] == ["store/sql/decision.sql"]
    assert not [module for module in MODULES if re.search(r"insert\(\s*(schema\.)?op\b", module)]


def _text(file: str) -> str:
    return Path(PACKAGE, file).read_text("utf-8")


def test_every_name_is_in_its_file() -> None:
    for module in MODULES:
        for read, file in re.findall(r'^([A-Z]+) = sql_files\.read\("([^"]+)"\)', module, re.MULTILINE):
            names = set(re.findall(rf'(?<![.\w]){read}\["(\w+)"\]', module))
            assert names <= set(sql_files.read(file)), file


def test_the_namespace_takes_the_place_of_txsaga() -> None:
    standing = sql_files.read("flows/sql/branch.sql")["standing"].format(s='"other"')
    assert standing.startswith("SELECT tx.txid,") and 'FROM "other".tx LEFT JOIN "other".op o' in standing
    assert standing.endswith("ANY ($1)")


def test_the_states_in_sql_are_those_of_the_lifecycles() -> None:
    def listed(states: tuple[str, ...] | frozenset[str]) -> str:
        return "IN (" + ", ".join(f"'{state}'" for state in sorted(states)) + ")"

    branches, steps = work_statements.BRANCHES, work_statements.STEPS
    undecided = listed(BRANCH.sources(BranchEvent.ROLL_BACK))
    assert all(undecided in branches[name] for name in ("resolve", "note", "unfinished", "backlog"))
    assert listed(frozenset(OVER)) in branches["over"] and f"'{NOTHING_DONE}'" in branches["resolve"]
    assert all(listed(STEP.sources(StepEvent.COMPENSATE)) in steps[name] for name in ("settle", "claim"))
    assert all(listed(frozenset(UNDONE)) in steps[name] for name in ("close", "listed"))
    assert f"'{home_rows_store.PREFIX}'" in home_rows_store.SQL["left"]
    assert f"+ {LEASE.total_seconds()} * (2 + random()) / 3" in work_statements.SETTLE
