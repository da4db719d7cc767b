"""
The branches of one transaction that its owner works in, and the block that asks them for their votes and decides.

A coordinated block and the end of a flow are such blocks. The branches are named before their work (R9): recovery rolls
back what no transaction names, and what an earlier attempt holds must not be committed. If one resource can't vote, or
is alone, its own commit is the decision: the transaction is sealed before it, and its evidence row shows the decision
to everyone (R12). If the process dies before the decision, it rolls back; after it, recovery finishes what is prepared.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Self

from txsaga import errors
from txsaga.consume.dead_letter import short_cause
from txsaga.core import facts
from txsaga.core.arguments import check_kind
from txsaga.core.decision import Decision
from txsaga.core.failure import report_failure
from txsaga.core.fibers import current_fiber, loops, run_blocking
from txsaga.core.kernel import Kernel
from txsaga.core.records import Doubt, RegisteredResource, Row, TxRecord
from txsaga.core.retry import patiently
from txsaga.flows.batches import noted
from txsaga.flows.branch import NOTHING_DONE, BranchEvent, BranchId, Finish, Vote
from txsaga.flows.owner import Owner
from txsaga.flows.recovery import Recovery
from txsaga.flows.requests import BranchOutcome, BranchVote
from txsaga.flows.saga import enter_key
from txsaga.flows.self_deadlock import held_by
from txsaga.flows.step import Step
from txsaga.flows.work import BranchPart, PhaseTwoResult, Work, looped
from txsaga.messages.message_buffer import DecidedBlock
from txsaga.messages.stored_block import BlockStage
from txsaga.resources.participant import Participant

logger = logging.getLogger("txsaga")

NamedParticipant = tuple[RegisteredResource, Participant]


def check_names(resources: Sequence[str]) -> None:
    """Refuse names that are missing, no strings, or given twice."""
    for name in resources:
        check_kind(name, str, "a resource", "give the names of registered ones")
    if not resources or len(set(resources)) != len(resources):
        raise errors.ConfigError("name each resource of a coordinated transaction once, and at least one")


def resources_of(kernel: Kernel, names: Sequence[str], patience: float) -> Sequence[NamedParticipant]:
    """Return the resources; an unavailable one is waited for."""
    resources = [patiently(partial(kernel.participant, name), patience) for name in names]
    unable = [each.name for _, each in resources if not each.capabilities.two_phase]
    if len(unable) > 1:
        raise errors.ConfigError(
            f"{' and '.join(map(repr, unable))} can't vote, and only one such resource can take part; use "
            "separate transactions for the others"
        )
    if current_fiber() is not None:
        for _, each in resources:
            looped(each)  # refuses a participant that can't be used in a loop
    return resources


class Enlisted:
    """The branches of one transaction in this process."""

    def __init__(self, kernel: Kernel, owner: Owner, names: Sequence[str] = (), patience: float = 0.0) -> None:
        self._kernel, self._owner, self._names, self._patience = kernel, owner, names, patience
        self._resources: Sequence[NamedParticipant] = () if loops() else resources_of(kernel, names, patience)
        self._released = PhaseTwoResult([], {}, [])
        self._settled_units = False  # a unit of a lane was committed or rolled back by itself
        self.work: Work

    def begin(self) -> None:
        """Begin the transaction with a branch in each of its resources."""
        self._resources = self._resources or resources_of(self._kernel, self._names, self._patience)
        ids = [recorded.id for recorded, _ in self._resources]
        if self._owner.key is None:
            self._owner.begin(ids)
            self.open()
            numbers: Sequence[int] = range(1, len(ids) + 1)
        else:
            numbers = run_blocking(partial(self._enter, ids))
        for number, (_, each) in zip(numbers, self._resources, strict=True):
            self.add(each.name, each, number)
        self._owner.hold(self)

    def open(self) -> None:
        """Prepare for work under the owner's record."""
        self.work = Work(self._owner.life.txid, self._kernel.announce, self._patience)

    def add(
        self, key: str, participant: Participant, number: int, *, aux: bool = False, held: Sequence[Step] = ()
    ) -> None:
        """Add a named branch to work in; `held` are steps that its flow holds prepared in the same database."""
        branch = self.id(number, self._owner.life.owner)
        self.work.add(key, BranchPart(branch, participant, aux=aux, held=held_by(branch.transaction, held)))

    def id(self, number: int, attempt: int) -> BranchId:
        """Return the name of a branch in its resource."""
        return BranchId(self._kernel.store.registry.identity.transaction(self._owner.life.txid), number, attempt)

    def named(self, resources: Sequence[int], *, aux: bool = False) -> Sequence[int]:
        """Name a branch in each of these resources; return their numbers."""
        life = self._owner.life
        with self._kernel.announce.around(facts.Naming, life.txid), self._kernel.store.ledgers.open() as ledger:
            self._owner.records.own(ledger, life)
            return ledger.name(life, resources, aux=aux)

    def refuse_last_resource(self, what: str) -> None:
        """Refuse `what`, which can fail at the decision, if a resource's own commit is the decision (R12)."""
        for _, each in self._resources:
            if not each.capabilities.two_phase:
                raise errors.ConfigError(
                    f"a transaction can't {what} together with {each.name!r}: its commit comes last and can't be "
                    "undone; use a separate transaction"
                )

    def decide(
        self, decision: Decision, why: str, rows: Sequence[Row] = (), votes: Sequence[BranchVote] = ()
    ) -> Decision:
        """Write the decision with the branches that voted; return the final decision."""
        if self._settled_units:
            run_blocking(self._kernel.notes.flush)  # their outcomes are from before the decision
        try:
            return self._owner.decide(decision, why, rows, votes)
        except errors.Superseded:  # the later owner may wait for our locks
            self.work.finish(Decision.ROLLBACK)
            raise

    def seal(self, last: str, rows: Sequence[Row], votes: Sequence[BranchVote]) -> Decision | None:
        """Seal: from here on the last resource's evidence decides. Return any earlier decision."""
        evidence, _ = self._kernel.resource(last)
        # Read-only branches are named by the decision: a rollback may still follow the seal.
        held = [vote for vote in votes if vote.vote is Vote.PREPARED]
        try:
            return self._owner.seal(rows, held, evidence.id, f"resource {last!r} decides")
        except errors.Superseded:
            self.work.finish(Decision.ROLLBACK)
            raise

    def commit_last(self, last: str, votes: Sequence[BranchVote]) -> tuple[Decision, Exception | None]:
        """Commit the last resource; return the decision by its evidence, and the error if it did not commit."""
        branch = self.work.part(last).branch
        try:
            self.work.commit(last, branch.transaction)
        except Exception as error:  # noqa: BLE001  # only the evidence is reliable
            self.work.drop(last)  # its session would block the barrier
            return self._follow_evidence(last, branch, error)
        left = [vote for vote in votes if vote.vote is Vote.READ_ONLY]
        try:
            return self.decide(Decision.COMMIT, f"resource {last!r} committed", votes=left), None
        except errors.TxSagaError as silent:  # it is committed: the process that finds the evidence writes COMMIT
            raise errors.Unfinished(self._owner.life.txid, ["the home database"]) from silent

    def finish(self, decision: Decision) -> PhaseTwoResult:
        """Finish every branch by the decision; the outcomes are written later."""
        told, life = self.work.finish(decision), self._owner.life
        told.silent.update(self._released.silent)
        notes = [*self._released.notes, *told.notes]
        if decision is Decision.ROLLBACK:
            notes += [
                BranchOutcome(life.txid, number, life.owner, BranchEvent.ROLL_BACK, NOTHING_DONE)
                for number in self.work.empty
            ]
        self._kernel.notes.add(notes)
        return told

    def release(self) -> None:
        """Roll back branches that were not asked for their vote: they can only roll back."""
        self._released = self.work.release()

    def abandon(self, error: BaseException) -> None:
        """Undo a begin that was interrupted: it must not be taken for running work."""
        self._owner.leave(self)
        if self._owner.txid is None or isinstance(error, errors.TxSagaError):
            return  # nothing is to be undone, or it can't be undone now: check-back does it
        with suppress(errors.TxSagaError):
            standing = self._owner.decide(Decision.ROLLBACK, f"its beginning was interrupted: {type(error).__name__}")
            if hasattr(self, "work"):
                self.finish(standing)

    def leave(self) -> None:
        """Give every session back; from here on check-back may ask about the transaction."""
        try:
            if hasattr(self, "work"):
                self.work.leave()
        finally:
            self._owner.leave(self)

    def note(self, branch: BranchId, decision: Decision) -> None:
        """Note that a branch is finished apart from the others; it is written later."""
        self._settled_units = True
        self._kernel.notes.add([noted(self._owner.life.txid, branch, decision, Finish.DONE)])

    def _enter(self, ids: Sequence[int]) -> Sequence[int]:
        """Open the key and name the branches; finish what earlier records and owners of it left."""
        life = enter_key(self._kernel, self._owner, self._patience)
        self.open()
        numbers = patiently(partial(self.named, ids), self._patience)
        if life.epoch > 1:
            with self._kernel.store.ledgers.open() as ledger:
                before = ledger.latest(life.group, life.key or "", before=life.epoch)
            if before is not None:
                Recovery(self._kernel).finish(before.txid, {each.name for _, each in self._resources})
        if life.owner > 1:
            participants = {recorded.id: each for recorded, each in self._resources}
            for branch in self._kernel.store.work.branches(life.txid):
                participant = participants.get(branch.recorded)
                if participant is not None and branch.unfinished and branch.attempt < life.owner:
                    # No decision names it any more, and its locks would block us.
                    with self._kernel.announce.around(facts.Finishing, life.txid, about=participant.name):
                        participant.finish(self.id(branch.number, branch.attempt), Decision.ROLLBACK)
        return numbers

    def _follow_evidence(self, last: str, branch: BranchId, error: Exception) -> tuple[Decision, Exception | None]:
        life, (evidence, _) = self._owner.life, self._kernel.resource(last)
        try:
            checked = run_blocking(lambda: self._kernel.settler.check(Doubt.of(life, evidence.id)))
        except errors.TxSagaError as silent:
            raise errors.InDoubt(f"transaction {life.txid} is undecided: {silent}; check-back settles it") from error
        if checked.standing is None:
            raise errors.InDoubt(
                f"transaction {life.txid} is undecided: {checked.why}; check-back settles it"
            ) from error
        decision = checked.standing.decision
        if checked.standing.won:  # otherwise the decision may contradict the evidence: recovery asks the resource
            self._released.notes.append(noted(life.txid, branch, decision, Finish.DONE))
        return decision, error if decision is Decision.ROLLBACK else None


WHY = "the block ended"


class BranchBlock(DecidedBlock):
    """A block over branches, as a context manager."""

    def __init__(self, kernel: Kernel, owner: Owner, branches: Enlisted) -> None:
        super().__init__(kernel, owner.group, owner.key)
        self._owner, self._branches = owner, branches

    @property
    def txid(self) -> int | None:
        """The number of the transaction, once the block is entered."""
        return self._owner.txid

    def join_life(self) -> TxRecord:
        """Return the transaction record, to bind other work to it."""
        self._require_open("consume")
        return self._owner.life

    def __enter__(self) -> Self:
        """Begin or take over the transaction, with its branches named before their work."""
        self._require_new()
        self._stage = BlockStage.ENTERING
        with report_failure(self._abandoned):
            self._enter()
        self._stage = BlockStage.OPEN
        return self

    def _abandoned(self, error: BaseException) -> None:
        self._branches.abandon(error)
        self._stage = BlockStage.NEW  # not before it is abandoned: another thread's beginning would be undone

    def _enter(self) -> None:
        self._branches.begin()

    def _release(self) -> None:
        self._branches.leave()

    def _leave(self, error: BaseException | None) -> None:
        if self._stage is BlockStage.OPEN and error is None:
            try:
                self._commit()
            except (errors.DecidedOtherwise, errors.InDoubt, errors.Unfinished, errors.Heuristic):
                raise
            except BaseException as reason:
                if self._stage is BlockStage.OPEN or isinstance(reason, errors.EffectConflict | errors.UnknownTopic):
                    with suppress(errors.TxSagaError):  # if this fails, others find it open and roll it back
                        self._roll_back(f"{type(reason).__name__}: {reason}", reason)
                elif (
                    not isinstance(reason, errors.TxSagaError) and self.decision is not Decision.ROLLBACK
                ):  # by a signal
                    reason.add_note(f"transaction {self.txid} may stand committed: ask before it is done again")
                raise
        elif self._stage in (BlockStage.OPEN, BlockStage.BROKEN):
            broken = errors.TransactionError("the transaction did not commit: its messages could not all be stored")
            if error is not None:
                self._branches.work.explain_own_lock(error)
            why = f"the block raised {type(error).__name__}: {error}" if error else "it was broken"
            self._roll_back(why, error or broken)
            if error is None:
                raise broken

    def _commit(self) -> None:
        work = self._branches.work
        work.refuse_open_units()
        rows = self._outbox.take_whole()
        work.do_journals()
        last = work.last(alone=not self._owner.with_effects)
        votes = work.named(work.prepare(besides=last), last=last)
        self._stage = BlockStage.CLOSED  # from here on the answer may be lost: only the store knows
        if last is None:
            self._follow(self._branches.decide(Decision.COMMIT, WHY, rows, votes))
        elif (standing := self._branches.seal(last, rows, votes)) is not None:
            self._follow(standing)
        else:
            self._follow(*self._branches.commit_last(last, votes))

    def _follow(self, standing: Decision, failure: Exception | None = None) -> None:
        """Notify everyone of the decision, and raise unless it is a plain success."""
        told = self._told(standing)
        if failure is not None:
            raise failure
        if standing is not Decision.COMMIT:
            raise errors.DecidedOtherwise(self._owner.life.txid, standing.name)
        if told.against:
            raise told.against[0]
        if told.silent:
            raise errors.Unfinished(self._owner.life.txid, list(told.silent))

    def _roll_back(self, why: str, leaves: BaseException | None = None) -> PhaseTwoResult:
        """Roll back; note on the exception which resources were not notified, and which had committed."""
        self._stage = BlockStage.BROKEN
        self._branches.release()
        told = self._told(self._branches.decide(Decision.ROLLBACK, short_cause(why)))
        notes = [str(heuristic) for heuristic in told.against]
        for name, silent in told.silent.items():
            notes.append(f"resource {name!r} could not be rolled back: {silent}; recovery rolls it back")
            logger.warning("transaction %s: %s", self.txid, notes[-1])
        if leaves is not None:
            for note in notes:
                leaves.add_note(note)
        return told

    def _told(self, decision: Decision) -> PhaseTwoResult:
        """Notify the resources, and then the listeners."""
        self.decision, self._stage = decision, BlockStage.LEFT
        told = self._branches.finish(decision)
        self._tell(decision)
        self._kernel.tell_decided()
        return told

    def _store(self, rows: Sequence[Row]) -> None:
        run_blocking(partial(self._owner.add, rows))
