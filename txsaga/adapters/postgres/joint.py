"""
Words that are on their way to the store while others are still asked: their statements are sent, their COMMIT is not.

The server works on them meanwhile, in a transaction that nobody sees, on a session of its own: nobody else's decision
waits behind it. The last statement fails unless every word stands, so that nothing of any is written. A session that is
lost has committed nothing, or all of it: sent again, the words find what stands. If the COMMIT is never sent, nothing
was written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from psycopg.errors import DivisionByZero

from txsaga.adapters.postgres.line import ConnectionLost, Line, Lines
from txsaga.adapters.postgres.wire import Call, Rows
from txsaga.engine.patience import PATIENCE, patiently
from txsaga.errors import StoreError


class PostgresJoint:
    """Statements of one transaction that is open."""

    def __init__(
        self, lines: Lines, calls: Sequence[Call], never: Call, at_once: Callable[[Sequence[Call]], list[Rows]]
    ) -> None:
        self._calls, self._never, self._at_once = calls, never, at_once
        self._taken = lines.taken()
        self._line: Line | None = self._taken.__enter__()
        try:
            patiently(self._line.connection, PATIENCE)
            self._line.begin(calls)
        except ConnectionLost:
            self._give_back()
        except BaseException:
            self._give_back()
            raise

    def commit(self) -> bool:
        """Commit; without its session all of it is sent again."""
        try:
            if not self._ended():
                self._at_once(self._calls)
        except StoreError as refused:
            if isinstance(refused.__cause__, DivisionByZero):
                return False
            raise
        return True

    def abandon(self) -> None:
        """Roll back: the last statement fails."""
        if self._line is not None:
            try:
                with suppress(StoreError, ConnectionLost):
                    self._line.end(self._never)
            finally:
                self._give_back()

    def _ended(self) -> bool:
        if self._line is None:
            return False
        try:
            self._line.end()
        except ConnectionLost:
            return False
        finally:
            self._give_back()
        return True

    def _give_back(self) -> None:
        self._line = None
        self._taken.__exit__(None, None, None)
