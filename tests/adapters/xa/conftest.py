"""Engines that are closed after the test."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine

MakeEngine = Callable[..., Engine]


@pytest.fixture
def make_engine() -> Iterator[MakeEngine]:
    """Give a factory of engines."""
    made: list[Engine] = []

    def make(url: str, **settings: Any) -> Engine:  # noqa: ANN401  # whatever create_engine takes
        made.append(create_engine(url, **settings))
        return made[-1]

    yield make
    for engine in made:
        engine.dispose()
