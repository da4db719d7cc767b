"""A store whose first partition is left behind: what the tests of partitions begin with."""

from __future__ import annotations

from datetime import timedelta

from tests.contracts.samples import (
    LONG,
    ROLLBACK,
    answered,
    claimed,
    decided,
    drain,
    end_of,
    new_group,
    prepared,
    published,
    row,
)
from tests.scene.stored import Stored
from txsaga.core.records import ClaimedQueue, Half, Receipt
from txsaga.core.topic import TopicType
from txsaga.store.store import Store

SPAN = 100
NAMES = """
SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
 WHERE i.inhparent = to_regclass(:table) ORDER BY length(c.relname), c.relname"""

MORE = """
INSERT INTO half (txid, pgroup, qid, chunk, n, body)
SELECT txid, pgroup, qid, i, 1, body FROM half, generate_series(1, 12) i WHERE txid = :txid AND chunk = 0"""
"""Twelve rows more for a transaction."""


def partitions(stored: Stored) -> dict[str, list[str]]:
    return {table: [name for (name,) in stored.rows(NAMES, table=table)] for table in ("half", "op")}


def named(*numbers: int) -> dict[str, list[str]]:
    return {table: [f"{table}_{n}" for n in numbers] for table in ("half", "op")}


class Scene:
    """A store whose first partition holds messages that everybody is done with."""

    receipt: Receipt
    """Of the parked transaction that a test is about."""

    def __init__(self, store: Store, stored: Stored) -> None:
        self.store, self.stored = store, stored
        self.group = new_group(store)
        (self.qid,) = self.topic("orders", LONG)
        for n in range(5):
            published(store, self.group, row(self.qid, f"{n}a", f"{n}b"))
        decided(store, end_of(prepared(store, self.group, row(self.qid, "never")), ROLLBACK))
        drain(store)
        self.claim = self.read_to(claimed(store, self.qid), 10)

    def topic(self, name: str, retention: timedelta | None) -> tuple[int, ...]:
        seconds = None if retention is None else int(retention.total_seconds())
        return self.store.registry.create_topic(name, TopicType.TRANSACTION, 1, seconds).qids

    def read_to(self, claim: ClaimedQueue, offset: int, member: str = "anna") -> ClaimedQueue:
        return self.store.queues.advance(claim, member, offset)

    def age(self) -> None:
        """Let retention pass for what has offsets now."""
        self.stored.rows("UPDATE log SET at = at - interval '2 hours'")

    def move_on(self) -> None:
        """Leave the first partition behind."""
        self.stored.rows("SELECT setval('tx_seq', :last)", last=SPAN + 10)
        self.store.log.extend_partitions(SPAN)

    def drop(self) -> int:
        return self.store.log.drop_partitions()

    def crowd(self, count: int = 2 * SPAN // 10) -> None:
        """Send messages that everybody is done with."""
        sent = self.store.halves.write(
            [Half(self.group, [row(self.qid, str(n))], plain=True) for n in range(count)], ()
        ).receipts
        assert all(answered(receipt) for receipt in sent)
        drain(self.store)
        self.claim = self.read_to(self.claim, self.store.log.bounds([self.qid])[self.qid].head)

    def parked(self, *texts: str) -> Receipt:
        """Prepare a message that check-back gives up."""
        receipt = prepared(self.store, self.group, row(self.qid, *texts or ("when?",)))
        self.give_up(receipt.txid)
        return receipt

    def give_up(self, txid: int) -> None:
        """Park a transaction, and keep why."""
        with self.store.ledgers.open() as ledger:
            ledger.park(txid, "out of checks")
            ledger.record(txid, "PARKED", who="check-back", why="out of checks")

    def leave(self) -> None:
        """Let everything be old, and its partition past."""
        self.age()
        self.move_on()

    def rows(self, table: str) -> int:
        return int(self.stored.value(f"SELECT count(*) FROM {table}"))
