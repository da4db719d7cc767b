"""
What a store promises, as suites of tests: one module per capability.

A test module gives three fixtures and takes all suites in::

    @pytest.fixture
    def store() -> Iterator[Store]: ...     # a fresh, empty store, closed after the test

    @pytest.fixture
    def later() -> Later: ...               # lets seconds pass: `FakeClock.advance`, or `time.sleep`

    @pytest.fixture
    def unseen() -> Unseen: ...             # lets a group be without members for so long

    globals().update(suites())              # or some of them: class TestHalf(HalfContract): ...

The suites know nothing of how a store keeps its rows.
"""

from importlib import import_module
from pathlib import Path

import pytest

MODULES = sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py"))

pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in MODULES))


def suites() -> dict[str, type]:
    """Return a test class for each suite, by its name, for the names of a module of tests."""
    names = [module for module in MODULES if module.endswith("_contract")]
    contracts = [_contract(name.removesuffix("_contract").capitalize()) for name in names]
    return {_test_name(each): type(_test_name(each), (each,), {"__doc__": each.__doc__}) for each in contracts}


def _contract(name: str) -> type:
    contract: type = getattr(import_module(f"tests.contracts.{name.lower()}_contract"), f"{name}Contract")
    return contract


def _test_name(contract: type) -> str:
    return f"Test{contract.__name__.removesuffix('Contract')}"
