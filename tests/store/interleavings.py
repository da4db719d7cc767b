"""
Producers, owners, dispatchers and consumers in any order, beside the simplest model of what must be read.

The model is one list per queue: a decision appends what it makes visible, nothing else does. The log must
hold a beginning of that list at any time and all of it in the end. A consumer group must have consumed a
beginning of what the log holds: each message once and in order, up to its cursor. One thread does everything,
so the order of decisions is known; races are the contract suites' matter. Where there are several stores on
one home, each step is done through any of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from tests.consume.reading import Reading
from tests.contracts.samples import LONG, decide_life, drain, end_of, new_group, new_queues, row
from txsaga.core.chunk import BODY, Chunk
from txsaga.core.decision import Decision
from txsaga.core.lifecycle import TRANSACTION
from txsaga.core.records import ClaimedQueue, DecisionOutcome, Half, Receipt, Row, TxRecord
from txsaga.errors import LeaseLost, TransactionError, TxSagaError
from txsaga.store.store import Store

COMMIT = Decision.COMMIT
MEMBERS = ["anna", "berta"]
DECISIONS = st.sampled_from(Decision)
SHAPES = st.lists(st.tuples(st.integers(0, 1), st.integers(1, 3)), min_size=1, max_size=3)
"""The rows of a half: which queue, how many records."""
PARTS = st.lists(st.tuples(st.sampled_from((2, 1)), SHAPES, st.sampled_from((True, True, False))), max_size=3)
"""Contributions to a keyed transaction: which part, its rows, whether its attempt is named the winner."""


QUEUE, STEP = st.integers(0, 1), st.integers(1, 3)
ASTRAY = st.sampled_from((0, 0, 0, -1, 1))
"""How far a consumer is wrong about where it stands."""
SPANS = st.lists(st.tuples(st.sampled_from((0, 0, 1)), QUEUE, ASTRAY, STEP), min_size=1, max_size=4)
"""What is consumed: by which of two transactions, from which queue, how far astray, how many messages."""


class GivenUp(Exception):
    """Raised inside a ledger block, so that it must leave nothing."""


@dataclass
class Keyed:
    """What a keyed transaction holds, by part and attempt, and who won each part."""

    life: TxRecord
    added: dict[tuple[int, int], list[Row]] = field(default_factory=dict)
    winners: dict[int, int] = field(default_factory=dict)

    def visible(self) -> list[Row]:
        """Return what a commit shows, in order."""
        parts = sorted(self.winners.items())
        return [each for won in parts for each in sorted(self.added.get(won, []), key=lambda row: row.chunk)]


class Interleavings(RuleBasedStateMachine):
    """One example: some queues of its own in a store that it may share with earlier examples."""

    stores: ClassVar[Sequence[Store]]
    turns: ClassVar[count[int]] = count()

    halves = Bundle("halves")
    lives = Bundle("lives")
    stale = Bundle("stale")
    fenced = Bundle("fenced")

    def __init__(self) -> None:
        super().__init__()
        self.chance = Random(0)
        self.name = f"example-{next(self.turns)}"
        self.qids = new_queues(self.store, self.name, 2)
        self.group = new_group(self.store, self.name)
        self.numbers = count()
        self.rows_of: dict[int, Sequence[Row]] = {}
        self.decisions: dict[int, Decision] = {}
        self.expected: dict[int, list[bytes]] = {qid: [] for qid in self.qids}
        self.seen: dict[int, int] = dict.fromkeys(self.qids, 0)
        self.readings = self.joined()
        self.prepare([([(at, 3)], True) for at in (0, 1, 0, 1)])  # else consumers would have nothing most of the time
        drain(self.store)

    @initialize(target=lives, chance=st.randoms(use_true_random=True))
    def begin(self, chance: Random) -> object:
        """Let each example choose its stores in its own way; begin with two rivals."""
        self.chance = chance
        return multiple(self.open([]), self.open([]))

    @property
    def store(self) -> Store:
        """Any of the stores."""
        return self.chance.choice(self.stores)

    @rule(target=halves, shapes=st.lists(st.tuples(SHAPES, st.booleans()), min_size=1, max_size=3))
    def prepare(self, shapes: list[tuple[list[tuple[int, int]], bool]]) -> object:
        """Store halves and plain messages in one batch; ends of the plain ones change nothing any more."""
        halves = [Half(self.group, self.rows(shape), plain=plain) for shape, plain in shapes]
        receipts = self.stored(halves, self.store.halves.write(halves, ()).receipts)
        for half, receipt in zip(halves, receipts, strict=True):
            if half.plain:
                self.settle(receipt.txid, COMMIT, self.rows_of[receipt.txid])
        return multiple(*receipts)

    @rule(receipts=st.lists(halves, min_size=1, max_size=4), decision=DECISIONS, check=st.booleans())
    def decide(self, receipts: list[Receipt], decision: Decision, check: bool) -> None:
        """Decide halves in one batch; some of them again, some of them twice."""
        answers = self.store.halves.write((), [end_of(each, decision, from_check=check) for each in receipts]).standings
        fresh = {receipt.txid for receipt in receipts} - self.decisions.keys()
        for txid in sorted(fresh):
            self.settle(txid, decision, self.rows_of[txid])
        won = set[int]()
        for receipt, answer in zip(receipts, answers, strict=True):
            first = receipt.txid in fresh - won
            assert answer == DecisionOutcome(receipt.txid, self.decisions[receipt.txid], first)
            won.add(receipt.txid)

    @rule(limit=st.integers(1, 5))
    def tick(self, limit: int) -> None:
        """Give out some offsets."""
        self.store.log.tick(limit)

    @rule(target=lives, parts=PARTS)
    def open(self, parts: list[tuple[int, list[tuple[int, int]], bool]]) -> Keyed:
        """Open a keyed transaction."""
        with self.store.ledgers.open() as ledger:
            life = ledger.create(self.group, f"key-{next(self.numbers)}", 1)
        assert life is not None
        keyed = Keyed(life)
        self.contribute(keyed, parts)
        return keyed

    @rule(keyed=lives, parts=PARTS)
    def add(self, keyed: Keyed, parts: list[tuple[int, list[tuple[int, int]], bool]]) -> None:
        """Add halves to a transaction, or see that it is decided."""
        if keyed.life.txid not in self.decisions:
            self.contribute(keyed, parts)
            return
        with self.store.ledgers.open() as ledger:
            held = ledger.share(keyed.life.txid)
        assert held is not None
        assert held.state in TRANSACTION.final()

    @rule(keyed=lives, target=stale)
    def take_over(self, keyed: Keyed) -> object:
        """Take a transaction over; its owner so far is superseded."""
        if keyed.life.txid in self.decisions:
            with pytest.raises(TransactionError), self.store.ledgers.open() as ledger:
                ledger.take_over(keyed.life.txid)
            return multiple()
        before = keyed.life
        with self.store.ledgers.open() as ledger:
            keyed.life = ledger.take_over(before.txid)
        for reading in self.readings.values():
            reading.freed(before.txid)
        assert keyed.life.owner > before.owner
        return before, keyed

    @rule(superseded=stale, part=st.integers(1, 2), shape=SHAPES)
    def add_late(self, superseded: tuple[TxRecord, Keyed], part: int, shape: list[tuple[int, int]]) -> None:
        """Let a superseded owner add more: refused, or never read."""
        life, keyed = superseded
        if keyed.winners.get(part) != life.owner:
            with suppress(TransactionError), self.store.ledgers.open() as ledger:
                ledger.add(life, part, self.rows(shape))

    @rule(keyed=lives, decision=DECISIONS)
    def settle_keyed(self, keyed: Keyed, decision: Decision) -> None:
        """Decide a keyed transaction, or be refused because it is decided."""
        txid = keyed.life.txid
        if txid in self.decisions:
            with pytest.raises(TxSagaError), self.store.ledgers.open() as ledger:
                decide_life(ledger, txid, decision)
            return
        with self.store.ledgers.open() as ledger:
            decide_life(ledger, txid, decision)
        self.settle(txid, decision, keyed.visible())

    @rule(keyed=consumes(lives), decision=DECISIONS, shape=SHAPES, target=lives)
    def give_up(self, keyed: Keyed, decision: Decision, shape: list[tuple[int, int]]) -> Keyed:
        """Do everything in a block that fails at its end."""
        with suppress(GivenUp, TransactionError), self.store.ledgers.open() as ledger:
            if keyed.life.txid not in self.decisions:
                ledger.add(keyed.life, 1, self.rows(shape))
                ledger.win(keyed.life.txid, 1, keyed.life.owner)
                decide_life(ledger, keyed.life.txid, decision)
            raise GivenUp
        return keyed

    @rule(at=st.integers(0, 20), limit=st.integers(1, 3))
    def fetch(self, at: int, limit: int) -> None:
        """Read from any offset: the chunk that holds it comes first."""
        for qid in self.qids:
            head = self.store.log.bounds([qid])[qid].head
            entries = self.store.log.fetch(qid, at, limit)
            assert len(entries) <= limit
            assert bool(entries) == (at < head)
            if entries:
                assert entries[0].base <= at < entries[0].base + entries[0].count

    @rule(rivals=st.tuples(lives, lives), spans=SPANS)
    def consume(self, rivals: tuple[Keyed, Keyed], spans: list[tuple[int, int, int, int]]) -> None:
        """Bind offsets to transactions: those that are due, and no others."""
        for who, at, astray, step in spans:
            reading, txid = self.readings[self.qids[at]], rivals[who].life.txid
            start = reading.due + astray
            end = min(start + step, len(self.read(reading.qid)))
            if reading.claim is not None:
                expected = txid not in self.decisions and reading.may_bind(txid, start, end)
                assert reading.intend(self.store, reading.claim, txid, start, end) is expected

    @rule(at=QUEUE, astray=ASTRAY, step=STEP)
    def acknowledge(self, at: int, astray: int, step: int) -> None:
        """Move a cursor from where it stands; once more is no error."""
        reading = self.readings[self.qids[at]]
        if reading.claim is None:
            return
        bodies, claim = self.read(reading.qid), reading.claim._replace(offset=reading.cursor + astray)
        end = min(claim.offset + step, len(bodies))
        if reading.bound is None and reading.cursor in (claim.offset, end):
            reading.claim = self.store.queues.advance(claim, reading.member, end)
            reading.passed(end, bodies)
        else:
            with pytest.raises(LeaseLost):
                self.store.queues.advance(claim, reading.member, end)

    @rule(at=QUEUE, target=fenced)
    def hand_over(self, at: int) -> object:
        """Give a queue to the other member; nobody gets it while its offsets are bound."""
        reading = self.readings[self.qids[at]]
        member, claim = reading.member, reading.claim
        self.store.queues.release(self.name, member, reading.qid)
        reading.member = MEMBERS[MEMBERS.index(member) - 1]
        reading.claim = self.store.queues.acquire(self.name, reading.member, reading.qid)
        assert (reading.claim is None) is (reading.bound is not None)
        assert reading.claim is None or reading.claim.offset == reading.cursor
        return multiple() if claim is None else (member, claim)

    @rule(late=fenced, keyed=lives, step=STEP)
    def come_late(self, late: tuple[str, ClaimedQueue], keyed: Keyed, step: int) -> None:
        """Let a member that gave a queue up go on as if it had not."""
        member, claim = late
        bound = self.readings[claim.qid].bound
        for start in {claim.offset, bound.end if bound else 0}:
            stranger = Reading(self.name, claim.qid, member, claim)
            assert not stranger.intend(self.store, claim, keyed.life.txid, start, start + step)
        with pytest.raises(LeaseLost):
            self.store.queues.advance(claim, member, claim.offset + step)

    @invariant()
    def each_message_is_consumed_once_and_in_order(self) -> None:
        for reading in self.readings.values():
            assert reading.consumed == self.read(reading.qid)[: reading.cursor]
        (lag,) = (each.lag for each in self.store.overview.readings() if each.group == self.name)
        unread = [len(self.read(reading.qid)) - reading.cursor for reading in self.readings.values()]
        assert lag == sum(unread)

    @invariant()
    def the_log_holds_a_beginning_of_what_was_decided(self) -> None:
        for qid in self.qids:
            read = self.read(qid)
            assert read == self.expected[qid][: len(read)]
            assert len(read) >= self.seen[qid]
            self.seen[qid] = len(read)

    @invariant()
    def decisions_never_change(self) -> None:
        with self.store.ledgers.open() as ledger:
            for txid in self.rows_of:
                assert ledger.standing(txid) is self.decisions.get(txid)

    def teardown(self) -> None:
        """Tick to the end: nothing is lost, nothing comes twice."""
        drain(self.store, limit=3)
        assert {qid: self.read(qid) for qid in self.qids} == self.expected

    def joined(self) -> dict[int, Reading]:
        """Let the first member take every queue."""
        queues = self.stores[0].queues
        queues.create_cursors(self.name, dict.fromkeys(self.qids, 0))
        for member in MEMBERS:
            queues.renew(self.name, member, [self.name], LONG)
        claims = {qid: queues.acquire(self.name, MEMBERS[0], qid) for qid in self.qids}
        return {qid: Reading(self.name, qid, MEMBERS[0], claim) for qid, claim in claims.items()}

    def contribute(self, keyed: Keyed, parts: Sequence[tuple[int, list[tuple[int, int]], bool]]) -> None:
        """Add contributions as the owner does it."""
        life = keyed.life
        for part, shape, win in parts:
            rows = self.rows(shape)
            with self.store.ledgers.open() as ledger:
                assert ledger.share(life.txid) == life
                ledger.add(life, part, rows)
                if win:
                    ledger.win(life.txid, part, life.owner)
            keyed.added.setdefault((part, life.owner), []).extend(rows)
            if win:
                keyed.winners[part] = life.owner

    def rows(self, shape: Sequence[tuple[int, int]]) -> list[Row]:
        """Lay out rows with bodies and chunk numbers that no other row has."""
        return [
            row(self.qids[at], *(f"{next(self.numbers)}" for _ in range(records)), chunk=next(self.numbers))
            for at, records in shape
        ]

    def stored(self, halves: Sequence[Half], answers: Sequence[Receipt | TxSagaError]) -> list[Receipt]:
        """Remember what lies in the store."""
        receipts = [answer for answer in answers if isinstance(answer, Receipt)]
        assert len(receipts) == len(halves)
        for plain in (False, True):  # numbers rise in the order given, among those that are stored alike
            alike = [receipt for half, receipt in zip(halves, receipts, strict=True) if half.plain is plain]
            assert alike == sorted(alike)
        self.rows_of |= {receipt.txid: half.rows for receipt, half in zip(receipts, halves, strict=True)}
        return receipts

    def settle(self, txid: int, decision: Decision, rows: Sequence[Row]) -> None:
        """Let the model decide."""
        self.decisions[txid] = decision
        self.rows_of.setdefault(txid, rows)
        for each in rows if decision is COMMIT else ():
            self.expected[each.qid] += bodies(each.body)
        for reading in self.readings.values():
            reading.decided(txid, decision, self.read(reading.qid))

    def read(self, qid: int) -> list[bytes]:
        """Read a queue from its start; its offsets must have no gap."""
        found: list[bytes] = []
        for entry in self.store.log.fetch(qid, 0, 10_000):
            assert entry.base == len(found)
            found += bodies(entry.body)
            assert len(found) == entry.base + entry.count
        return found


def bodies(stored: bytes) -> list[bytes]:
    """Return the bodies of a chunk."""
    return [body for body in Chunk(stored).column(BODY) or [] if body is not None]
