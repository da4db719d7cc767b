"""A block that another thread, or another process, has open: the code here is not inside of it."""

from contextlib import AbstractContextManager
from contextvars import Context
from typing import TypeVar

Block = TypeVar("Block")


class Elsewhere(AbstractContextManager[Block]):
    """Enters and leaves a block like code elsewhere."""

    def __init__(self, block: AbstractContextManager[Block]) -> None:
        self._block = block

    def __enter__(self) -> Block:
        return Context().run(self._block.__enter__)

    def __exit__(self, *raised: object) -> bool | None:
        return self._block.__exit__(*raised)  # type: ignore[arg-type]  # what `with` gives
