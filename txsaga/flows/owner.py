"""
The owner of one transaction: its record, and what only its owner may do with it.

A decision goes through the batches of this process: the decisions of many owners share one commit. Effects that only
the decider applies (late bodies, bound offsets and messages, tables) are decided there, with the same rows. If a
decision is never written, check-back or another driver rolls the transaction back once its owner is silent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from txsaga.core import facts
from txsaga.core.decision import Decision
from txsaga.core.fibers import run_blocking
from txsaga.core.kernel import Kernel
from txsaga.core.lifecycle import TxEvent, TxState
from txsaga.core.records import Doubt, Group, Row, TxRecord
from txsaga.core.retry import patiently
from txsaga.errors import EffectConflict, OutcomeUnknown, Superseded, UnknownTransaction
from txsaga.flows.ballot import Ballot, require_carried
from txsaga.flows.ballots import ballots, call_ballot
from txsaga.flows.requests import Begin, BranchVote, Decide, Marks, RecordSteps, Start
from txsaga.lake.table import Effect
from txsaga.messages.decide import DecidedBy
from txsaga.messages.effects import PreparedEffects
from txsaga.messages.stored_block import PART
from txsaga.messages.tx_records import TxRecords


class Owner:
    """The owner of one transaction."""

    def __init__(self, kernel: Kernel, group: Group, *, key: str | None, run: str | None) -> None:
        self._kernel, self.group, self.key, self._run = kernel, group, key, run
        self.records = TxRecords(kernel)
        self.polled = False  # ballots may have been called
        self.with_effects = False  # they may be refused: no resource decides alone, nor the batch of many owners
        self.recorded: Callable[[], Sequence[Effect]] = tuple
        self.txid: int | None = None
        self.life: TxRecord

    def enter(self, patience: float = 0.0) -> TxRecord:
        """Open the key: a first record, a take-over, or the next epoch."""
        assert self.key is not None
        enter = partial(self.records.enter, self.group, self.key, self._run, undoes=True)
        return self.own(patiently(enter, patience))

    def begin(self, resources: Sequence[int] = (), steps: Sequence[Start] = ()) -> TxRecord:
        """Begin without a key, with branches in these resources and these first steps."""
        begun = self._kernel.requests.call(Begin(self.group.id, resources, steps, self._run))
        assert isinstance(begun, TxRecord)
        return self.own(begun)

    def open(self) -> TxRecord:
        """Begin without a key and without work."""
        return self.own(self.records.open_unkeyed(self.group, self._run))

    def own(self, life: TxRecord) -> TxRecord:
        """Go on with a record that this owner has opened."""
        self.life, self.txid = life, life.txid
        return life

    def hold(self, worker: object) -> None:
        """Let nobody else ask about it while this works on it; a forked child keeps the sessions that it refers to."""
        self._kernel.running.begin(worker, Doubt.of(self.life))

    def add(self, rows: Sequence[Row]) -> None:
        """Store messages ahead of the decision."""
        life = self.life
        with self._kernel.announce.around(facts.Adding, life.txid), self._kernel.store.ledgers.open() as ledger:
            self.records.hold(ledger, life)
            ledger.add(life, PART, rows)
            ledger.win(life.txid, PART, life.owner)

    def call(self, ballot: Ballot) -> None:
        """Call a ballot."""
        call_ballot(self._kernel, self.life, ballot, self.records.hold)
        self.polled = True

    def seal(self, rows: Sequence[Row], votes: Sequence[BranchVote], evidence: int, why: str) -> Decision | None:
        """Seal: from here on the evidence in that resource decides (R12). Return any earlier decision."""
        # After the resource's commit it would be too late. An earlier owner may have called a ballot.
        if self.polled or self.life.owner > 1:
            require_carried(run_blocking(partial(ballots, self._kernel, self.life.txid)))
        name = f"owner {self.life.owner}"
        standing = self._kernel.requests.call(Decide(self.life, None, name, why, rows, votes, evidence))
        assert standing is None or isinstance(standing, Decision)
        return standing

    def decide(
        self,
        decision: Decision,
        why: str,
        rows: Sequence[Row] = (),
        votes: Sequence[BranchVote] = (),
        *,
        driver: str | None = None,
        steps: Sequence[Start] = (),
        marks: Marks = (),
    ) -> Decision:
        """Write the decision with all that belongs to it; return the final decision."""
        name = f"owner {self.life.owner}"
        request = Decide(self.life, decision, name, why, rows, votes, None, driver, steps, marks)
        return decided(self._kernel, request, self.recorded, at_once=not self.with_effects)

    def leave(self, worker: object) -> None:
        """Let others ask about it from here on."""
        self._kernel.running.end(worker)


def decided(
    kernel: Kernel, request: Decide, recorded: Callable[[], Sequence[Effect]] = tuple, *, at_once: bool = True
) -> Decision:
    """Write an owner's decision, with its effects if it has some; return the final decision."""
    if at_once:
        with suppress(EffectConflict):
            standing = kernel.requests.call(request)
            assert isinstance(standing, Decision)
            return standing
    return run_blocking(partial(_decided_with_effects, kernel, request, recorded))


def _decided_with_effects(kernel: Kernel, request: Decide, recorded: Callable[[], Sequence[Effect]]) -> Decision:
    """Decide by the decider; steps after the decision are written before it, and get their driver after it."""
    if request.steps and request.decision is Decision.COMMIT:
        kernel.requests.call(RecordSteps(request.life, request.steps))
    try:
        standing = applied(kernel, request, recorded() if request.decision is Decision.COMMIT else ())
    except OutcomeUnknown:  # check the decision before preparing anything: it may be published already
        standing = patiently(partial(applied, kernel, request, ()))
    if request.driver is not None:
        kernel.requests.call(request)
    return standing


def applied(kernel: Kernel, request: Decide, known: Sequence[Effect]) -> Decision:
    """Write a decision with its effects in one commit."""
    txid = request.life.txid
    with kernel.announce.around(facts.Deciding, txid):
        return kernel.decider.effects.around(txid, partial(_written, kernel, request), known)


def _written(kernel: Kernel, request: Decide, ready: PreparedEffects) -> tuple[Decision, bool]:
    """Write a decision with prepared effects, sealed before; return the final one, and whether this is it."""
    life, decision = request.life, request.decision
    assert decision is not None
    by = DecidedBy(who=request.who, why=request.why, owner=life.owner)
    with kernel.store.ledgers.open() as ledger:
        current = ledger.lock(life.txid)
        if current is not None and current.owner != life.owner:
            if decision is Decision.ROLLBACK and ledger.standing(life.txid) is Decision.ROLLBACK:
                return decision, False  # its answer was lost, and another process undoes it already
            raise Superseded(life.txid)
        if decision is Decision.COMMIT and current is not None and current.state is TxState.ACTIVE:
            if current.token != life.token:
                raise UnknownTransaction(f"transaction {life.txid} is not in this store")
            if request.rows:
                ledger.add(life, PART, request.rows)
            ledger.win(life.txid, PART, life.owner)  # also without messages: those of an earlier owner don't count (R4)
            ledger.record_votes(life.txid, request.votes)
            ledger.move(life.txid, TxEvent.SEAL)
        elif current is not None and current.state is TxState.SEALED:
            ledger.record_votes(life.txid, request.votes)
        standing = kernel.decider.within(ledger, life.txid, decision, by, ready=ready)
        return standing.decision, standing.won
