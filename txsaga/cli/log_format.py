"""
The log of a command, on standard error: one line per record, tracebacks only with --debug.

As JSON a record carries what it is about in fields, so that no program has to parse sentences.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

ABOUT = ("txid", "group", "message_id", "role")
"""What a record may be about."""
THREAD = "txsaga-"
"""A role runs in a thread of this name and its own."""


class OneLine(logging.Formatter):
    """Writes an exception as its name and its text after the message."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record."""
        failure = record.exc_info[1] if record.exc_info else None
        line = f"{self.formatTime(record)} {record.levelname} {record.getMessage()}"
        return " ".join((f"{line}: {type(failure).__name__}: {failure}" if failure else line).split())


class Document(logging.Formatter):
    """Writes a record as one JSON document without a line break."""

    def __init__(self, *, traceback: bool) -> None:
        super().__init__()
        self._traceback = traceback

    def format(self, record: logging.LogRecord) -> str:
        """Write a record."""
        failure = record.exc_info[1] if record.exc_info else None
        thread = record.threadName or ""
        told: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        if thread.startswith(THREAD):
            told["role"] = thread.removeprefix(THREAD)
        told |= {name: value for name in ABOUT if (value := getattr(record, name, None)) is not None}
        if failure is not None:
            told |= {"error": type(failure).__name__, "error_message": str(failure)}
        if self._traceback and record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str)


def to_stderr(*, debug: bool, level: int = logging.WARNING, as_json: bool = False) -> None:
    """Send what txsaga logs to standard error."""
    handler = logging.StreamHandler()
    if as_json:
        handler.setFormatter(Document(traceback=debug))
    elif debug:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    else:
        handler.setFormatter(OneLine())
    logger = logging.getLogger("txsaga")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.DEBUG if debug else level)
    logger.propagate = False
