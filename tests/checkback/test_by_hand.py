"""A person decides what nothing else could, on record, and not against what can be known."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from uuid import UUID, uuid4

import pytest

from tests.contracts.samples import (
    COMMIT,
    ROLLBACK,
    add,
    bound,
    claimed,
    decided,
    end_of,
    new_group,
    new_queues,
    opened,
    park,
    position,
    prepared,
    published,
    read,
    row,
    swept,
)
from tests.oracle import MemoryStore
from tests.scene.fake_store import bare_kernel
from txsaga.checkback.by_hand import ByHand
from txsaga.core.announcer import Announcer
from txsaga.core.decision import Decision
from txsaga.core.facts import Deciding, Fact
from txsaga.core.lifecycle import TxEvent
from txsaga.core.records import EvidenceOutcome, Half, LateSlot, Receipt
from txsaga.errors import (
    ConfigError,
    DecidedOtherwise,
    EffectConflict,
    IllegalTransition,
    InDoubt,
    ResourceUnknown,
    StoreUnavailable,
    TransactionError,
    UnknownTransaction,
)
from txsaga.testing import FakeClock

BOTH = [COMMIT, ROLLBACK]
YES, NO = EvidenceOutcome(committed=True, bodies={}), EvidenceOutcome(committed=False, bodies={})


class FakeEvidence:
    """The evidence of one database, as a test wants it."""

    at_once = 1

    def __init__(self) -> None:
        self.database: UUID = uuid4()
        self.outcome: EvidenceOutcome | None = None
        self.running = False
        self.down: Exception | None = None
        self.fences = 0

    def read(self, transaction: str) -> EvidenceOutcome | None:
        if self.down is not None:
            raise self.down
        return self.outcome

    def fence(self, transaction: str) -> EvidenceOutcome | None:
        self.fences += 1
        if not self.running and self.outcome is None:
            self.outcome = NO
        return self.outcome


class Desk:
    """A store in memory, the evidence of its one resource, and the person who decides."""

    def __init__(self) -> None:
        self.store, self.evidence = MemoryStore(FakeClock()), FakeEvidence()
        self.between: deque[Callable[[], None]] = deque()  # what others do between a judgement and its decision
        self.kernel = bare_kernel(self.store, Announcer([self._interrupt]), "desk", evidence=self._find)
        self.resources = {"billing"}
        self.resource = self.store.registry.resource("billing", self.evidence.database).id
        (self.qid,), self.group = new_queues(self.store), new_group(self.store)

    def half(self, text: str = "a") -> int:
        """Store a half whose local work leaves evidence."""
        (receipt,) = self.store.halves.write([Half(self.group, [row(self.qid, text)], self.resource)], ()).receipts
        assert isinstance(receipt, Receipt)
        return receipt.txid

    def decide(self, txid: int, decision: Decision, *, force: bool = False, why: str = "asked the shop") -> bool:
        """Decide by hand; tell whether this made the decision."""
        by_hand = ByHand(self.kernel)
        return by_hand.decide(txid, decision, who="anna", why=why, force=force).won

    def history(self, txid: int) -> list[tuple[str, str, str]]:
        """Return what is on record."""
        return [(each.what, each.who, each.why) for each in self.store.overview.history(txid)]

    def undecided(self) -> list[int]:
        """List what nobody decided."""
        return [view.txid for view in self.store.overview.transactions(undecided=True, limit=100)]

    def move(self, txid: int, event: TxEvent, outcome: EvidenceOutcome | None = None) -> None:
        """Move a life as its owner or a check does, its evidence behind it."""
        with self.store.ledgers.open() as ledger:
            ledger.move(txid, event, evidence=self.resource if event is TxEvent.SEAL else None)
        self.evidence.outcome = outcome

    def _interrupt(self, fact: Fact) -> None:
        if isinstance(fact, Deciding) and self.between:
            self.between.popleft()()

    def _find(self, named: object) -> tuple[str, FakeEvidence]:
        if named not in self.resources:
            raise ResourceUnknown(str(named), sorted(self.resources))
        return str(named), self.evidence


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.kernel.close()


def test_a_decision_by_hand_counts_also_when_the_delivery_can_not_be_woken(desk: Desk) -> None:
    receipt = prepared(desk.store, desk.group, row(desk.qid, "a"))

    def unable() -> None:
        raise RuntimeError("can't start new thread")

    desk.kernel.when_decided(unable)
    assert desk.decide(receipt.txid, COMMIT)
    assert read(desk.store, desk.qid) == ["a"]


@pytest.mark.req("BEYOND-5", "IBM-10")
@pytest.mark.parametrize("decision", BOTH)
def test_a_half_without_evidence_is_decided_by_word(desk: Desk, decision: Decision) -> None:
    receipt = prepared(desk.store, desk.group, row(desk.qid, "a"))
    assert desk.decide(receipt.txid, decision)
    assert read(desk.store, desk.qid) == (["a"] if decision is COMMIT else [])
    assert desk.history(receipt.txid) == [(f"{decision.name} BY HAND", "anna", "asked the shop")]
    view = desk.store.overview.transaction(receipt.txid)
    assert view is not None
    assert (view.decision, view.from_check) == (decision, True)


@pytest.mark.req("BEYOND-5")
@pytest.mark.rule("R2")
@pytest.mark.parametrize("decision", BOTH)
def test_a_keyed_transaction_is_decided_with_its_home_effects(desk: Desk, decision: Decision) -> None:
    life = opened(desk.store, desk.group)
    add(desk.store, life, 1, row(desk.qid, "a"))
    (source,) = new_queues(desk.store, "source")
    published(desk.store, desk.group, row(source, "x", "y"))
    claim = claimed(desk.store, source)
    bound(desk.store, life, claim, 2)
    with desk.store.ledgers.open() as ledger:
        ledger.move(life.txid, TxEvent.SEAL)
    assert desk.decide(life.txid, decision)
    assert read(desk.store, desk.qid) == (["a"] if decision is COMMIT else [])
    assert position(desk.store, source) == (2 if decision is COMMIT else 0)
    assert desk.history(life.txid) == [(f"{decision.name} BY HAND", "anna", "asked the shop")]


@pytest.mark.rule("R1")
def test_an_open_transaction_can_be_rolled_back_but_not_committed(desk: Desk) -> None:
    life = opened(desk.store, desk.group)
    with pytest.raises(IllegalTransition):
        desk.decide(life.txid, COMMIT)
    assert desk.decide(life.txid, ROLLBACK)


@pytest.mark.rule("R1")
def test_an_owner_who_closes_and_commits_meanwhile_is_not_rolled_back(desk: Desk) -> None:
    life = opened(desk.store, desk.group)
    desk.between.append(lambda: desk.move(life.txid, TxEvent.SEAL, YES))
    with pytest.raises(TransactionError, match="committed; decide the same"):
        desk.decide(life.txid, ROLLBACK)
    assert desk.undecided() == [life.txid]
    assert desk.decide(life.txid, COMMIT)


@pytest.mark.rule("R1")
def test_a_decision_is_judged_anew_as_often_as_its_transaction_moves(desk: Desk) -> None:
    life = opened(desk.store, desk.group)
    desk.between += [
        lambda: desk.move(life.txid, TxEvent.SEAL),
        lambda: desk.move(life.txid, TxEvent.PARK, desk.evidence.outcome),
    ]
    assert desk.decide(life.txid, ROLLBACK)
    assert desk.evidence.outcome == NO
    assert desk.history(life.txid) == [("ROLLBACK BY HAND", "anna", "asked the shop")]


@pytest.mark.parametrize("decision", BOTH)
def test_a_parked_transaction_is_decided_and_leaves_the_list(desk: Desk, decision: Decision) -> None:
    receipt, life = prepared(desk.store, desk.group, row(desk.qid, "a")), opened(desk.store, desk.group)
    with desk.store.ledgers.open() as ledger:
        ledger.move(life.txid, TxEvent.SEAL)
    swept(desk.store, desk.group)
    with desk.store.ledgers.open() as ledger:
        ledger.move(life.txid, TxEvent.PARK)
    for txid in (receipt.txid, life.txid):
        park(desk.store, txid, "out of checks")
        assert desk.decide(txid, decision)
        assert desk.store.overview.checks(txid) is None
    assert desk.undecided() == []


@pytest.mark.req("RMQ-92", "BEYOND-2")
def test_the_first_decision_stands(desk: Desk) -> None:
    receipt = prepared(desk.store, desk.group, row(desk.qid, "a"))
    decided(desk.store, end_of(receipt, ROLLBACK))
    assert not desk.decide(receipt.txid, ROLLBACK)
    with pytest.raises(DecidedOtherwise) as refused:
        desk.decide(receipt.txid, COMMIT, force=True)
    assert refused.value.standing == "ROLLBACK"
    assert desk.history(receipt.txid) == []
    assert desk.evidence.fences == 0


@pytest.mark.parametrize(("outcome", "decision"), [(YES, COMMIT), (NO, ROLLBACK)])
def test_what_the_evidence_says_may_be_said_by_hand(desk: Desk, outcome: EvidenceOutcome, decision: Decision) -> None:
    desk.evidence.outcome = outcome
    assert desk.decide(desk.half(), decision)


@pytest.mark.parametrize(("outcome", "decision"), [(YES, ROLLBACK), (NO, COMMIT), (None, COMMIT)])
def test_the_other_is_refused_unless_it_is_forced(
    desk: Desk, outcome: EvidenceOutcome | None, decision: Decision
) -> None:
    desk.evidence.outcome = outcome
    txid = desk.half()
    with pytest.raises(TransactionError):
        desk.decide(txid, decision)
    assert desk.undecided() == [txid]
    assert desk.history(txid) == []
    assert desk.evidence.fences == 0
    assert desk.decide(txid, decision, force=True)
    assert desk.history(txid)[-1] == (f"{decision.name} BY FORCE", "anna", "asked the shop")


def test_a_rollback_by_hand_writes_the_barrier_first(desk: Desk) -> None:
    assert desk.decide(desk.half(), ROLLBACK)
    assert desk.evidence.outcome == NO


def test_local_work_that_still_runs_is_in_doubt(desk: Desk) -> None:
    desk.evidence.running = True
    txid = desk.half()
    with pytest.raises(InDoubt, match="still running"):
        desk.decide(txid, ROLLBACK)
    assert desk.undecided() == [txid]


@pytest.mark.rule("R10")
@pytest.mark.parametrize("decision", BOTH)
def test_evidence_that_cannot_be_read_is_in_doubt_unless_forced(desk: Desk, decision: Decision) -> None:
    down, gone, other = desk.half("a"), desk.half("b"), desk.half("c")
    desk.evidence.down = StoreUnavailable("resource 'billing' does not answer")
    with pytest.raises(InDoubt, match="does not answer"):
        desk.decide(down, decision)
    desk.evidence.database, mine = uuid4(), desk.evidence.database
    with pytest.raises(InDoubt, match="another database"):
        desk.decide(other, decision)
    desk.evidence.database = mine
    desk.resources.clear()
    with pytest.raises(InDoubt, match="not registered"):
        desk.decide(gone, decision)
    for txid in (down, gone, other):
        assert desk.decide(txid, decision, force=True)


@pytest.mark.rule("R16")
def test_late_bodies_come_from_the_evidence(desk: Desk) -> None:
    for forced in (False, True):
        life = opened(desk.store, desk.group, f"key {forced}")
        with desk.store.ledgers.open() as ledger:
            ledger.reserve(LateSlot(txid=life.txid, slot=1, qid=desk.qid))
            ledger.move(life.txid, TxEvent.SEAL, evidence=desk.resource)
        if forced:
            desk.evidence.outcome = NO
            with pytest.raises(EffectConflict):
                desk.decide(life.txid, COMMIT, force=True)
            assert desk.undecided() == [life.txid]
        else:
            desk.evidence.outcome = EvidenceOutcome(committed=True, bodies={1: b"late"})
            assert desk.decide(life.txid, COMMIT)
            assert read(desk.store, desk.qid) == ["late"]


def test_an_unknown_transaction_and_a_missing_reason_change_nothing(desk: Desk) -> None:
    receipt = prepared(desk.store, desk.group, row(desk.qid, "a"))
    with pytest.raises(UnknownTransaction):
        desk.decide(receipt.txid + 1000, ROLLBACK)
    with pytest.raises(ConfigError, match="give a reason"):
        desk.decide(receipt.txid, ROLLBACK, why=" ")
    assert desk.undecided() == [receipt.txid]
