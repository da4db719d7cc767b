"""
Words that are on their way to the store while others are still asked: their statements are sent, their COMMIT is not.

The server works on them meanwhile, in a transaction that nobody sees, on a session of its own: nobody else's decision
waits behind it. The last statement fails unless every word stands, so that nothing of any is written. What a server
answers is certain. A session that is lost has committed nothing, or all of it: the words are sent again on the same
line, which first ends what the server still has of it. If the COMMIT is never sent, nothing was written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress

from psycopg.errors import DivisionByZero

from txsaga.adapters.postgres.line import ConnectionLost, Line, Lines
from txsaga.adapters.postgres.wire import Call, Rows
from txsaga.errors import OutcomeUnknown, TxSagaError

SentAgain = Callable[[Line, Sequence[Call]], list[Rows]]


class PostgresJoint:
    """Statements of one transaction, which is open once they are said."""

    def __init__(self, lines: Lines, calls: Sequence[Call], never: Call, again: SentAgain) -> None:
        self._calls, self._never, self._again = calls, never, again
        self._said = self._recalled = False
        with ExitStack() as opened:
            self._line: Line | None = opened.enter_context(lines.taken())
            with suppress(ConnectionLost):  # then all of it is sent with the COMMIT
                self._line.make_ready(calls)
            self._lent = opened.pop_all()

    def say(self) -> None:
        """Send them."""
        assert self._line is not None
        self._said = True
        with suppress(ConnectionLost):  # then all of it is sent with the COMMIT
            self._line.begin(self._calls)

    def commit(self) -> bool:
        """Commit; without its session all of it is sent again."""
        line, self._line = self._line, None
        assert line is not None
        with self._lent:
            try:
                line.end()
            except ConnectionLost:
                return self._sent_again(line)
            except TxSagaError:
                return False
        return True

    def recall(self) -> None:
        """Send what rolls back: the last statement fails."""
        if self._line is not None and self._said and not self._recalled:
            with suppress(Exception):  # then `abandon` gives its session up
                self._line.conclude(self._never)
                self._recalled = True  # behind it: only what was concluded is answered

    def abandon(self) -> None:
        """Roll back."""
        self.recall()
        line, self._line = self._line, None
        if line is not None:
            with self._lent, suppress(Exception):  # it is nobody's answer
                try:
                    if self._said:
                        if not self._recalled:
                            line.close()  # nothing would ever be answered
                        line.hear()
                except ConnectionLost:
                    line.connection()  # which ends what the server still has of it

    def _sent_again(self, line: Line) -> bool:
        try:
            self._again(line, self._calls)
        except TxSagaError as refused:
            if isinstance(refused.__cause__, DivisionByZero):
                return False
            raise OutcomeUnknown(f"whether this was written is not known: {refused}") from refused
        return True
