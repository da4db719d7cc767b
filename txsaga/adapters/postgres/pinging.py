"""
Asking a pooled connection whether it lives, before it is handed out: only one that has lain there for a while.

Each such question is a round trip, and a transaction of the server's. One that was in use a moment ago is asked only if
its server has said something since, as one that leaves does. If it has died without a word, its user gets what anybody
gets whose line breaks in the middle, and the rest of the pool is made anew by that.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.exc import InvalidatePoolError

FRESH = 1.5
"""Seconds after its last use in which a connection is not asked while its server is silent."""
USED = "txsaga_used"


def ping_idle(engine: Engine, clock: Callable[[], float] = time.monotonic) -> None:
    """Have idle connections of a pool asked when they are handed out; a dead one makes the pool begin anew."""

    def returned(connection: object, record: Any) -> None:
        record.info[USED] = clock()

    def taken(connection: Any, record: Any, proxy: object) -> None:
        used = record.info.get(USED)
        if used is None or (clock() - used < FRESH and not _was_told(connection)):
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            if not engine.dialect.is_disconnect(error, connection, None):
                raise
            raise InvalidatePoolError("a pooled connection is dead") from error

    event.listen(engine, "checkin", returned)
    event.listen(engine, "checkout", taken)


def _was_told(connection: Any) -> bool:
    """Tell whether the server said something unasked."""
    if not hasattr(connection, "fileno"):
        return False
    heard = select.poll()
    heard.register(connection.fileno(), select.POLLIN)
    return bool(heard.poll(0))
