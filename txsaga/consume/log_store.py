"""
Ticks, reads and partitions on PostgreSQL.

A tick is one REPEATABLE READ transaction: decisions newly visible in its snapshot get offsets, in the order (commit,
number). Late committers join a later tick, so a held transaction never stalls a consumer. If no tick ever runs,
decisions are final and nothing is lost, but no consumer sees the messages.

It calls a function that runs with the owner's rights, so that no other login writes to the log, the ticks or the heads
of queues: that would decide what readers see. A caller chooses only how many decisions one tick takes.

A queue is blocked while its log has a row at or after its head: no tick wrote that row, and none can overwrite it. The
queue is skipped, its messages wait, and it keeps the snapshot of the last tick that included it. The first tick after
the row is gone starts from there for this queue.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

import psycopg
from psycopg import IsolationLevel
from sqlalchemy import Engine

from txsaga.core.forking import at_fork
from txsaga.core.records import Bounds, LogEntry, TickResult
from txsaga.errors import StoreError, StoreUnavailable
from txsaga.messages.hot_statements import Hot
from txsaga.store import sql_files
from txsaga.store.connection import is_lost, transaction, translated
from txsaga.store.partitions import Partitions
from txsaga.store.pipeline import NO_HURRY, ConnectionLost, ConnectionPool, PipelineConnection

SQL = sql_files.read("consume/sql/tick.sql")
TICK_ANSWERS = "tick int8, chunks int8, more bool, blocked int4[]"

_every_wakeup: weakref.WeakSet[Wakeup] = weakref.WeakSet()


def _start_anew_after_fork() -> None:
    for wakeup in list(_every_wakeup):
        wakeup.start_anew()


at_fork(_start_anew_after_fork)


class Wakeup:
    """Receives the NOTIFY of ticks."""

    def __init__(self, engine: Engine, channel: str) -> None:
        self._line, self._channel = PipelineConnection(engine), channel
        self.start_anew()
        _every_wakeup.add(self)

    def start_anew(self) -> None:
        """Forget the connection and all waiters."""
        self._listening = threading.Lock()
        self._news = threading.Condition()
        self._count = 0
        self._connection: psycopg.Connection[Any] | None = None

    def wait(self, seconds: float) -> bool:
        """Wait until a tick announces news, at most this long."""
        if self._listening.acquire(blocking=False):
            try:
                return self._listen(seconds)
            finally:
                self._listening.release()
        with self._news:
            seen = self._count
            return self._news.wait_for(lambda: self._count != seen, seconds)

    def close(self) -> None:
        """Close the listening connection."""
        self._line.close()

    def _listen(self, seconds: float) -> bool:
        try:
            connection = self._line.connection()
            if connection is not self._connection:
                connection.execute(f'LISTEN "{self._channel}"')
                self._connection = connection
                return True  # a NOTIFY before LISTEN was missed: read the log
            heard = any(True for _ in connection.notifies(timeout=seconds, stop_after=1))
        except (psycopg.Error, StoreError):
            self._line.close()
            time.sleep(min(seconds, 0.1))
            return False
        if heard:
            with self._news:
                self._count += 1
                self._news.notify_all()
        return heard


T = TypeVar("T")
UNCAPPED = 2**62
RIVAL = "40001"
"""Another dispatcher wrote this tick first."""


class Log:
    """The log of one namespace."""

    def __init__(self, engine: Engine, hot: Hot, namespace: str) -> None:
        self._engine, self._hot, self._schema = engine, hot, f'"{namespace}"'
        self._ticks = PipelineConnection(engine, timeout=NO_HURRY)  # a decision, however large, is one tick
        self._readers = ConnectionPool(engine)
        self._wakeup = Wakeup(engine, channel_of(namespace))
        self._partitions = Partitions(engine, namespace)

    def tick(self, limit: int) -> TickResult | None:
        """Assign offsets to decisions that became visible since the last tick, in (commit, number) order.

        None when a rival was first: nothing was written. A tick without news writes nothing.
        """
        return self._in_tick(limit, lambda _, ticked: ticked)

    def tick_with(self, read: Callable[[psycopg.Connection[Any]], T]) -> tuple[int, T] | None:
        """Run an uncapped tick and read in its snapshot before it commits; None when a rival was first."""

        def of_all(connection: psycopg.Connection[Any], ticked: TickResult) -> tuple[int, T]:
            if ticked.blocked:  # rows of the same decision would be visible without their messages (R7)
                queues = ", ".join(map(str, ticked.blocked))
                raise StoreUnavailable(
                    f"queues {queues} are blocked and would lack messages; see `txsaga doctor`, then retry"
                )
            return ticked.tick, read(connection)

        return self._in_tick(UNCAPPED, of_all)

    def fetch(self, qid: int, offset: int, limit: int, end: int = UNCAPPED) -> Sequence[LogEntry]:
        """Return up to `limit` chunks from the one that holds `offset`, none that begins at or after `end`."""
        try:
            (rows,) = self._readers.exchange([self._hot.fetch.call(qid, offset, limit, end)])
        except ConnectionLost as error:
            raise StoreUnavailable(f"the home database became unavailable during a read: {error}; retry") from error
        return [LogEntry(*row) for row in rows]

    def bounds(self, qids: Sequence[int]) -> Mapping[int, Bounds]:
        """Return tail and head of queues."""
        with transaction(self._engine) as connection:
            rows = connection.exec_driver_sql(SQL["bounds"].format(s=self._schema), {"qids": [*qids]})
            return {qid: Bounds(tail, head) for qid, tail, head in rows}

    def offset_at(self, qid: int, moment: datetime) -> int:
        """Return the first offset published at or after a moment, by binary search, since times rise with offsets."""
        low, high = self.bounds([qid])[qid]
        sql = SQL["chunk_before"].format(s=self._schema)
        with transaction(self._engine) as connection:
            while low < high:
                middle = (low + high) // 2
                row = connection.exec_driver_sql(sql, {"qid": qid, "middle": middle}).one_or_none()
                if row is not None and row.at >= moment:
                    high = row.base
                else:
                    low = middle + 1 if row is None else row.base + row.n
        return max(low, self.bounds([qid])[qid].tail)

    def wait(self, seconds: float) -> bool:
        """Wait for news; True when a tick announced some. Only a hint: the log is authoritative."""
        return self._wakeup.wait(seconds)

    def extend_partitions(self, ahead: int) -> int:
        """Ensure partitions for numbers up to `ahead` beyond the newest; return how many were added."""
        return self._partitions.extend(ahead)

    def drop_partitions(self) -> int:
        """Drop partitions in which everything is settled, acknowledged, read and expired; return how many."""
        return self._partitions.drop()

    def close(self) -> None:
        """Close every connection."""
        self._wakeup.close()
        self._ticks.close()
        self._readers.close()

    def _in_tick(self, limit: int, then: Callable[[psycopg.Connection[Any], TickResult], T]) -> T | None:
        with self._ticks.lock:
            connection = self._ticks.connection()
            try:
                with _repeatable(connection):
                    row = connection.execute(self._hot.tick, {"limit": limit}, prepare=True).fetchone()
                    if row is None:
                        raise psycopg.Rollback
                    tick, chunks, more, blocked = row
                    return then(connection, TickResult(tick, chunks, more, tuple(blocked)))
            except psycopg.Error as error:
                if is_lost(error) or connection.broken:
                    self._ticks.close()
                if error.sqlstate == RIVAL:
                    return None
                raise translated(error) from error
        return None


@contextmanager
def _repeatable(connection: psycopg.Connection[Any]) -> Iterator[None]:
    connection.isolation_level = IsolationLevel.REPEATABLE_READ
    try:
        with connection.transaction():
            yield
    finally:
        if not connection.broken:
            connection.isolation_level = None


def blockage(row: Sequence[object], s: str) -> tuple[str, str]:
    """Return what blocks a queue, from a row of `blocked`, and the statement that frees it."""
    name, qid, head, base, txid, stray, end = row
    if stray:
        told = f"the head of queue {name} is {head}, its log has a stray row at {base} (transaction {txid})"
        return told, f"DELETE FROM {s}.log WHERE qid = {qid} AND base = {base}"
    told = f"the head of queue {name} was set back to {head}, but its log continues to {end}"
    return told, f"UPDATE {s}.queue SET head = {end} WHERE qid = {qid} AND head = {head}"


def channel_of(namespace: str) -> str:
    """Return the channel on which a tick announces new offsets."""
    return f"txsaga_{namespace}"


def ticking(s: str) -> str:
    """Return the body of the tick function for a (quoted) namespace."""
    span = {
        "lo": "pg_snapshot_xmax(span.since)",
        "hi": "pg_snapshot_xmax(upto)",
        "xip": "ARRAY(SELECT pg_snapshot_xip(span.since))",
        "qids": "span.qids",
        "blocked": "prior.blocked",
        "snap": "prior.snap",
    }
    news = SQL["news"].format(s=s) % {"limit": "$1"}
    give = SQL["give"].format(s=s) % span
    return SQL["tick"].format(
        s=s,
        news=news.replace("\n  FROM (SELECT id", "\n  INTO prior FROM (SELECT id", 1).strip(),
        give=give.replace("ARRAY(SELECT qid FROM w)", "ARRAY(SELECT qid FROM w) INTO gave, waiting", 1).strip(),
        channel=channel_of(s.strip('"')),
    )
