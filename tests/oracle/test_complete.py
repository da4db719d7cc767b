"""A store in memory shares the names of the real one, and none of its statements."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest

from tests.oracle.store import MemoryStore


def parts() -> Iterator[type]:
    yield MemoryStore
    for part in vars(MemoryStore()).values():
        if type(part).__module__.startswith("tests.oracle") and type(part).__mro__[1].__module__.startswith("txsaga"):
            yield type(part)


@pytest.mark.parametrize("part", list(parts()), ids=lambda part: part.__name__)
def test_a_store_in_memory_inherits_no_statement(part: type) -> None:
    own = {name for each in part.__mro__ if each.__module__.startswith("tests.oracle") for name in vars(each)}
    real = {
        name
        for each in part.__mro__
        if each.__module__.startswith("txsaga")
        for name, member in vars(each).items()
        if inspect.isroutine(member) or isinstance(member, property)
    }
    of_connections = {"close", "tick_with", *(["open"] if part is MemoryStore else [])}
    assert {name for name in real - own - of_connections if not name.startswith("_")} == set()
