"""What each collected test claims to show, read from its marks and its name.

A pytest plugin for a collection that runs nothing. It does not know which ids exist.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

MARKS = ("req", "rule", "conf", "hole")
ROW_IN_NAME = re.compile(r"(?:^|_)(ibm|wm|rmq|card)_(\d+)(?=_|$)")
CASE_IN_NAME = re.compile(r"(?:^|_)conf_([a-z]{3}_\d+|rc_[a-z]\d+)(?=_|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One test and the ids it carries; an idle test never runs to its end, so it shows nothing."""

    test: str
    ids: frozenset[str]
    idle: bool = False


@dataclass(slots=True)
class ClaimCollector:
    """The plugin: fills `claims` when collection is done."""

    claims: list[Claim] = field(default_factory=list)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Read every collected test."""
        self.claims += [claim_of(item) for item in session.items]


def claim_of(item: pytest.Item) -> Claim:
    """Return what one test claims."""
    name = getattr(item, "originalname", None) or item.name
    ids = frozenset((*_marked(item), *named(name)))
    return Claim(test=item.nodeid, ids=ids, idle=_is_idle(item))


def named(name: str) -> Iterator[str]:
    """Yield the ids inside a test's name: `test_rmq_12_…`, `test_conf_brk_01_…`."""
    for family, number in ROW_IN_NAME.findall(name):
        yield f"{family.upper()}-{int(number):02}"
    for case in CASE_IN_NAME.findall(name):
        yield case.upper().replace("_", "-")


def _marked(item: pytest.Item) -> Iterator[str]:
    for mark in MARKS:
        for found in item.iter_markers(mark):
            yield from found.args


def _is_idle(item: pytest.Item) -> bool:
    if any(item.iter_markers("skip")):
        return True
    if any(_holds(mark) for name in ("skipif", "xfail") for mark in item.iter_markers(name)):
        return True
    return isinstance(item, pytest.Function) and _gives_up(item)


def _holds(mark: pytest.Mark) -> bool:
    """Say whether a conditional mark applies here; without a condition it always does."""
    return all(mark.args) and bool(mark.kwargs.get("condition", True))


def _gives_up(item: pytest.Function) -> bool:
    """Say whether the body skips or expects failure on its outermost level, whatever happens."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(item.function)))
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
    calls = [
        statement.value.func
        for statement in function.body
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    ]
    return any(ast.unparse(call) in ("pytest.skip", "pytest.xfail") for call in calls)
