"""
The root of all errors that txsaga raises on purpose; whoever catches it catches them all.

They go from process to process with their fields: a worker pool that can't read an error waits for its result for ever.
"""

from __future__ import annotations

from typing import Any


class TxSagaError(Exception):
    """Base of all errors that txsaga raises on purpose."""

    retryable: bool = False
    code: str = "SYSTEM_ERROR"

    def __reduce__(self) -> tuple[Any, ...]:
        """Be made of text and fields, not of what the text was made of."""
        return _again, (type(self), *self.args), self.__dict__


def _again(kind: type[TxSagaError], *told: object) -> TxSagaError:
    return kind.__new__(kind, *told)
