"""What runs the programs that pages show."""

from collections.abc import Iterator

import pytest

from tests.scene.warm import WarmPython, warm_python


@pytest.fixture(scope="session")
def python() -> Iterator[WarmPython]:
    """Give a Python that runs each program in a process of its own."""
    with warm_python() as python:
        yield python
