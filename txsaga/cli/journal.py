"""
The log of a command, on standard error: one line per record, tracebacks only with --debug.
"""

from __future__ import annotations

import logging


class OneLine(logging.Formatter):
    """Writes an exception as its name and its text behind the message."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record."""
        failure = record.exc_info[1] if record.exc_info else None
        line = f"{self.formatTime(record)} {record.levelname} {record.getMessage()}"
        return " ".join((f"{line}: {type(failure).__name__}: {failure}" if failure else line).split())


def to_stderr(*, debug: bool, level: int = logging.WARNING) -> None:
    """Send what txsaga logs to standard error."""
    handler = logging.StreamHandler()
    if debug:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    else:
        handler.setFormatter(OneLine())
    logger = logging.getLogger("txsaga")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.DEBUG if debug else level)
    logger.propagate = False
