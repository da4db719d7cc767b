"""
The data source's access to the store: rows of a task attempt, winning attempts, the messages of a queue.

Each Spark task opens the store by itself. If the winners were never named, everything stored would stay hidden and be
rolled back with its transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from txsaga.core.announcer import Announcer
from txsaga.core.lifecycle import TxState
from txsaga.core.records import LogEntry, Row, TxRecord
from txsaga.core.topic import SendKind
from txsaga.errors import Superseded, TransactionClosed, UnknownTransaction
from txsaga.messages.topics import Topics
from txsaga.spark import chunks as arrow
from txsaga.spark.chunks import RowLayout, together
from txsaga.store.store import Store

if TYPE_CHECKING:
    from txsaga.messages.ledger_store import Ledger, Ledgers


ENTRIES = 64
"""The number of chunks that are read at a time."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """Messages of a frame in an open transaction: its number, and its owner when the frame was sent."""

    txid: int
    owner: int

    def store(self, url: str, topic: str, part: int, attempt: int, batches: Iterable[pa.RecordBatch]) -> int:
        """Store the rows of one task attempt as half messages; return how many."""
        count = 0
        with opened(url) as store:
            topics = Topics(store.registry, Announcer())
            laying = RowLayout(topics.admit_many(topic, SendKind.HALF), topics.turn)
            for rows in map(laying.rows, together(batches)):
                self._add(store.ledgers, part, attempt, rows)
                count += sum(row.count for row in rows)
        return count

    def win(self, ledgers: Ledgers, won: Iterable[tuple[int, int]]) -> None:
        """Name the winning attempts; the transaction is still undecided."""
        with ledgers.open() as ledger:
            self._hold(ledger)
            for part, attempt in won:
                ledger.win(self.txid, part, attempt)

    def _add(self, ledgers: Ledgers, part: int, attempt: int, rows: Sequence[Row]) -> None:
        with ledgers.open() as ledger:
            ledger.add(replace(self._hold(ledger), owner=attempt), part, rows)

    def _hold(self, ledger: Ledger) -> TxRecord:
        life = ledger.share(self.txid)
        if life is None:
            raise UnknownTransaction(f"transaction {self.txid} is not in this store")
        if life.owner != self.owner:
            raise Superseded(self.txid)
        if life.state is not TxState.ACTIVE:
            raise TransactionClosed(f"transaction {self.txid} is closed; nothing can be added any more")
        return life


@contextmanager
def opened(url: str) -> Iterator[Store]:
    """Open the store within a block."""
    store = Store.open(url)
    try:
        yield store
    finally:
        store.close()


def bounds(url: str, topic: str) -> Mapping[int, tuple[int, int]]:
    """Return the queues of a topic, each with its first offset and the one after its last."""
    with opened(url) as store:
        qids = store.registry.topic(topic).qids
        found = store.log.bounds(qids)
        return {qid: (found[qid].tail, found[qid].head) for qid in qids}


def batches(url: str, qid: int, index: int, start: int, end: int, tag: str | None) -> Iterator[pa.RecordBatch]:
    """Yield messages of a queue as Arrow batches, many chunks in each."""
    with opened(url) as store:
        at = start
        while at < end:
            entries: Sequence[LogEntry] = store.log.fetch(qid, at, ENTRIES, end)
            for found in arrow.batches(entries, index, at, end):
                yield found if tag is None else found.filter(pc.equal(found.column("tag"), tag))
            if not entries:
                return
            at = min(end, entries[-1].behind)
