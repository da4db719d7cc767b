"""
Members of a group in any order, with crashes, beside the simplest model of what each message has gone through.

The model is one record per message. Whatever the store hands out must be due by the model, in nobody's hands, with
the attempts that the model counted, and first of its key in a group that keeps order. In the end every message was
acknowledged, dropped or buried, or it still comes. One thread does everything; races are the contract suites' matter.
Where there are several stores on one home, each step is done through any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import count
from random import Random
from typing import ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from tests.consume.working import Fate, Grip, HandOut, Work
from tests.contracts.claiming import read_one
from tests.contracts.samples import decide_life, drain, new_group, new_queues, opened, published, row
from txsaga.consume.claim import Burial, Claim, ClaimHold, Policy, Style
from txsaga.consume.dead_letter import Copy
from txsaga.core.decision import Decision
from txsaga.core.records import TxRecord
from txsaga.errors import ClaimLost
from txsaga.store.store import Store

MOST_ATTEMPTS = 3
MEMBERS = st.sampled_from(["anna", "berta", "carl"])
HOLDS, RESTS, PASSES = st.sampled_from([5000.0, 50.0]), st.sampled_from([0.0, 50.0]), st.sampled_from([100.0, 10_000.0])
"""Seconds: far enough from each other that what a step takes makes no difference."""
LIMIT = st.integers(1, 5)
KEYS = st.lists(st.sampled_from([None, 1, 2, 3]), min_size=1, max_size=6)
WHOLE = st.sampled_from([False, False, True])


class ClaimInterleavings(RuleBasedStateMachine):
    """One example: a group on some queues of its own, in a store that it may share with earlier examples."""

    stores: ClassVar[Sequence[Store]]
    let_pass: ClassVar[Callable[[str, float], None]]
    turns: ClassVar[count[int]] = count()

    handed = Bundle("handed")
    lives = Bundle("lives")

    def __init__(self) -> None:
        super().__init__()
        self.chance, self.ordered = Random(0), False
        self.name = f"work-{next(self.turns)}"
        self.qids = new_queues(self.store, self.name, 2)
        (self.backout,) = new_queues(self.store, f"{self.name}-failed")
        self.producers = new_group(self.store, self.name)
        self.store.queues.create_cursors(self.name, dict.fromkeys(self.qids, 0))
        self.now, self.moved, self.keys = 0.0, 0, count()
        self.works: dict[int, list[Work]] = {qid: [] for qid in self.qids}
        self.open: set[int] = set()
        self.crashed: set[Grip] = set()

    @initialize(target=lives, chance=st.randoms(use_true_random=True), ordered=st.booleans())
    def begin(self, chance: Random, ordered: bool) -> object:
        """Let each example choose its stores in its own way; begin with messages and two transactions."""
        self.chance, self.ordered = chance, ordered
        self.store.groups.open(self.name, Style.WORK, Policy(ordered=ordered))
        for at in (0, 1):
            self.publish(at, [1, 1, None, 2])
        return multiple(self.open_life(), self.open_life())

    @property
    def store(self) -> Store:
        """Any of the stores."""
        return self.chance.choice(self.stores)

    @rule(at=st.integers(0, 1), keys=KEYS)
    def publish(self, at: int, keys: Sequence[int | None]) -> None:
        """Send messages, with these keys where the group keeps order."""
        works = self.works[self.qids[at]]
        published(self.store, self.producers, row(self.qids[at], *map(str, keys)))
        drain(self.store)
        works += [Work(self.qids[at], len(works) + n, key if self.ordered else None) for n, key in enumerate(keys)]

    @rule(target=handed, member=MEMBERS, limit=LIMIT, hold=HOLDS)
    def take(self, member: str, limit: int, hold: float) -> object:
        """Take something new; where order is kept, put it in line."""
        if self.ordered:
            self.line_up(limit)
            return multiple()
        after = self.chance.choice(self.qids)
        claim = self.store.claims.take_new(self.name, self.qids, after, limit, ClaimHold(member, hold))
        unread = {qid: [work for work in self.works[qid] if work.fate is Fate.UNREAD] for qid in self.qids}
        assert (claim is not None) is any(unread.values())
        if claim is None:
            return multiple()
        assert self.of(claim) == unread[claim.qid][:limit]
        return self.received([claim], hold)

    @rule(target=handed, member=MEMBERS, limit=LIMIT, hold=HOLDS)
    def take_again(self, member: str, limit: int, hold: float) -> object:
        """Take what comes again: alone what was taken before, together what was not."""
        due = self.due()
        claims = self.store.claims.take_due(self.name, self.qids, limit, ClaimHold(member, hold))
        found = [work for claim in claims for work in self.of(claim)]
        assert set(found) <= due
        assert bool(found) is bool(due)
        assert len(found) <= limit
        assert len(found) == 1 or not any(work.attempts for work in found)
        return self.received(claims, hold)

    @rule(outs=st.lists(handed, min_size=1, max_size=4), whole=WHOLE)
    def acknowledge(self, outs: list[HandOut], whole: bool) -> None:
        """Acknowledge in one call; some too late, some twice, some as a whole claim."""
        outs = [out for out in outs if out.grip not in self.crashed]
        asked = [out.run if whole else (out.work,) for out in outs]
        held = [[work for work in works if self.holds(out, work)] for out, works in zip(outs, asked, strict=True)]
        answers = self.store.claims.ack([out.claim if whole else out.alone for out in outs])
        for works, still, answer in zip(asked, held, answers, strict=True):
            assert isinstance(answer, ClaimLost) is (len(still) < len(works))
            for work in still:
                work.fate = Fate.DONE

    @rule(out=handed, rest=RESTS)
    def put_back(self, out: HandOut, rest: float) -> None:
        """Put a message back."""
        if self.does(out, lambda: self.store.claims.put_back(out.alone, timedelta(seconds=rest), "broken")):
            out.work.comes_again(self.now + rest)

    @rule(out=handed, by=HOLDS)
    def extend(self, out: HandOut, by: float) -> None:
        """Hold a claim for longer, or shorter."""
        if self.does(out, lambda: self.store.claims.extend(out.alone, timedelta(seconds=by))):
            out.grip.until = self.now + by

    @rule(out=handed, whole=WHOLE)
    def give_back(self, out: HandOut, whole: bool) -> None:
        """Give a message or a whole claim back; what is lost is nobody's loss."""
        if out.grip not in self.crashed:
            held = [work for work in (out.run if whole else (out.work,)) if self.holds(out, work)]
            self.store.claims.give_back(out.claim if whole else out.alone)
            for work in held:
                work.comes_again(self.now)
                work.attempts -= 1
                work.handed_out -= 1

    @rule(out=handed, backout=st.booleans())
    def bury(self, out: HandOut, backout: bool) -> None:
        """Give a message up."""
        if self.does(out, lambda: self.buries(out.alone, backout=backout)):
            self.note_burial(out.work, backout=backout)

    @rule(out=handed)
    def drop(self, out: HandOut) -> None:
        """Take a message off the group for good."""
        if self.does(out, lambda: self.store.claims.drop(out.alone)):
            out.work.fate = Fate.DONE

    @rule(chosen=st.randoms(), purged=st.booleans())
    def look_after_letters(self, chosen: Random, purged: bool) -> None:
        """Replay or purge a dead letter."""
        works = [work for works in self.works.values() for work in works if work.fate is Fate.BURIED]
        letters = self.store.dead_letters.list(self.name, 1000)
        assert {letter.id: (letter.queue, letter.offset) for letter in letters} == {
            work.letter: (self.qids.index(work.qid), work.offset) for work in works
        }
        for work in chosen.sample(works, min(len(works), 1)):
            act = self.store.dead_letters.purge if purged else self.store.dead_letters.replay
            assert act([work.letter]) == 1
            work.attempts = work.handed_out = 0
            work.key = None
            work.comes_again(self.now)
            if purged:
                work.fate = Fate.DONE

    @rule(out=handed)
    def crash(self, out: HandOut) -> None:
        """Let a member die: it does nothing any more with what it holds."""
        self.crashed.add(out.grip)

    @rule(seconds=PASSES)
    def time_passes(self, seconds: float) -> None:
        """Let time pass for everything that lies in the store."""
        type(self).let_pass(self.name, seconds)
        self.now += seconds

    @rule(target=lives)
    def open_life(self) -> TxRecord:
        """Open a transaction."""
        life = opened(self.store, self.producers, f"key-{next(self.keys)}")
        self.open.add(life.txid)
        return life

    @rule(out=handed, life=lives, rest=RESTS)
    def bind(self, out: HandOut, life: TxRecord, rest: float) -> None:
        """Make a message a transaction's."""
        if life.txid in self.open and self.does(out, lambda: self.binds(out, life, rest)):
            out.work.fate, out.work.txid, out.work.retry = Fate.BOUND, life.txid, rest

    @rule(life=lives)
    def take_over(self, life: TxRecord) -> None:
        """Take a transaction over: what was bound to it comes again."""
        if life.txid in self.open:
            with self.store.ledgers.open() as ledger:
                ledger.take_over(life.txid)
            self.rolled_back(life)

    @rule(life=consumes(lives), decision=st.sampled_from(Decision))
    def decide(self, life: TxRecord, decision: Decision) -> None:
        """Decide a transaction."""
        self.open.discard(life.txid)
        with self.store.ledgers.open() as ledger:
            decide_life(ledger, life.txid, decision)
        if decision is Decision.ROLLBACK:
            self.rolled_back(life)
        for work in self.bound_to(life):
            work.fate = Fate.DONE

    @invariant()
    def nothing_is_handed_out_too_often(self) -> None:
        assert all(work.handed_out <= MOST_ATTEMPTS for works in self.works.values() for work in works)

    @invariant()
    def each_message_that_was_moved_lies_in_the_backout_queue(self) -> None:
        drain(self.store)
        assert self.store.log.bounds([self.backout])[self.backout].head == self.moved

    def teardown(self) -> None:
        """Roll back what is open, then work off what still comes: all of it, and nothing else."""
        for txid in self.open:
            with self.store.ledgers.open() as ledger:
                decide_life(ledger, txid, Decision.ROLLBACK)
        self.time_passes(1_000_000.0)
        left = [work for works in self.works.values() for work in works if work.fate not in (Fate.DONE, Fate.BURIED)]
        came = []
        for _ in range(2 * len(left) + 2):
            if self.ordered:
                self.line_up(60)
            claims = list(self.store.claims.take_due(self.name, self.qids, 60, ClaimHold("last", 1e6)))
            new = self.store.claims.take_new(self.name, self.qids, 0, 60, ClaimHold("last", 1e6))
            claims += [] if new is None else [new]
            came += [work for claim in claims for work in self.of(claim)]
            assert not any(self.store.claims.ack(claims))
        assert sorted(map(id, came)) == sorted(map(id, left))

    def line_up(self, limit: int) -> None:
        """Put unread messages in line; nobody can do it again."""
        found = self.store.claims.unread(self.name, self.qids, self.chance.choice(self.qids), limit, 1000)
        unread = [work for works in self.works.values() for work in works if work.fate is Fate.UNREAD]
        assert (found is not None) is bool(unread)
        if found is not None:
            works = self.works[found.qid][found.start : found.end]
            assert works == [work for work in unread if work.qid == found.qid][:limit]
            keys = [work.key for work in works]
            assert [self.store.claims.line_up(self.name, found, keys) for _ in range(2)] == [True, False]
            for work in works:
                work.comes_again(self.now)

    def received(self, claims: Sequence[Claim], hold: float) -> object:
        """Note what was handed out; what used its attempts up is buried instead, as consumers do it."""
        outs = []
        for claim in claims:
            grip, run = Grip(self.now + hold), tuple(self.of(claim))
            for work in run:
                work.attempts += 1
                work.fate, work.grip = Fate.OUT, grip
                assert claim.attempts == work.attempts
                if work.attempts > MOST_ATTEMPTS:
                    self.buries(claim.only(work.offset), backout=False)
                    self.note_burial(work, backout=False)
                else:
                    work.handed_out += 1
                    outs.append(HandOut(work, grip, claim, run))
        return multiple(*outs)

    def due(self) -> set[Work]:
        """Return what comes to whoever asks: of each key the first in line."""
        works = [work for works in self.works.values() for work in works]
        due = {work for work in works if work.is_due(self.now)}
        return {work for work in due if not any(work.is_behind(other) for other in works)}

    def does(self, out: HandOut, step: Callable[[], None]) -> bool:
        """Do something with a message; tell whether its member still held it, and see that it was refused if not."""
        if out.grip in self.crashed:
            return False
        if self.holds(out, out.work):
            step()
            return True
        with pytest.raises(ClaimLost):
            step()
        return False

    def holds(self, out: HandOut, work: Work) -> bool:
        """Tell whether a message is still in the hands of whoever got it."""
        return work.grip is out.grip and work.is_held(self.now)

    def buries(self, claim: Claim, *, backout: bool) -> None:
        """Bury a message at the store."""
        (offset,) = claim.offsets()
        copy = Copy.of(read_one(self.store, claim.qid, offset))
        self.store.claims.bury(claim, Burial(copy, self.name, "broken", self.backout if backout else None))

    def note_burial(self, work: Work, *, backout: bool) -> None:
        """Note where a message went."""
        self.moved += backout
        work.fate = Fate.DONE if backout else Fate.BURIED
        if not backout:
            work.letter = self.store.dead_letters.list(self.name, 1)[0].id

    def binds(self, out: HandOut, life: TxRecord, rest: float) -> None:
        """Bind a message at the store."""
        with self.store.ledgers.open() as ledger:
            ledger.bind(life.txid, out.alone, timedelta(seconds=rest))

    def rolled_back(self, life: TxRecord) -> None:
        """Let what was bound to a transaction come again."""
        for work in self.bound_to(life):
            work.comes_again(self.now + work.retry)

    def bound_to(self, life: TxRecord) -> list[Work]:
        """Return what is bound to a transaction."""
        works = [work for works in self.works.values() for work in works]
        return [work for work in works if work.fate is Fate.BOUND and work.txid == life.txid]

    def of(self, claim: Claim) -> list[Work]:
        """Return the messages of a claim."""
        return [self.works[claim.qid][offset] for offset in claim.offsets()]
