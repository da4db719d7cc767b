"""
What the owner of one coordinated transaction has in the store: its record, its named branches, its decision.

Branches are named before their work (R9): recovery rolls back what no transaction names, and what an earlier attempt
holds must not be committed.

The decision request goes through the batches of this process: many owners' decisions share one commit. Effects that
only the decider applies (late bodies, bound offsets and messages) are decided there, with the same rows. If the request
is never written, check-back rolls the transaction back once its owner is silent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from txsaga.core import facts
from txsaga.core.arguments import check_kind
from txsaga.core.decision import Decision
from txsaga.core.fibers import current_fiber, loops, run_blocking
from txsaga.core.kernel import Kernel
from txsaga.core.lifecycle import TxEvent, TxState
from txsaga.core.records import Doubt, Group, RegisteredResource, Row, TxRecord
from txsaga.core.retry import patiently
from txsaga.errors import (
    ConfigError,
    DecidedOtherwise,
    EffectConflict,
    InDoubt,
    OutcomeUnknown,
    Superseded,
    TxSagaError,
    Unfinished,
)
from txsaga.flows.ballot import Ballot, require_carried
from txsaga.flows.ballots import ballots
from txsaga.flows.batches import noted
from txsaga.flows.branch import NOTHING_DONE, BranchEvent, BranchId, Finish, Vote
from txsaga.flows.calls import BeginBranches, BranchOutcome, BranchVote, DecisionRequest
from txsaga.flows.recovery import Recovery
from txsaga.flows.sessions_in_loop import looped
from txsaga.flows.work import BranchPart, PhaseTwoResult, Work
from txsaga.lake.table import Effect
from txsaga.messages.decide import DecidedBy
from txsaga.messages.effects import PreparedEffects
from txsaga.messages.tx_records import TxRecords
from txsaga.resources.participant import Participant

if TYPE_CHECKING:
    from txsaga.messages.ledger_store import Ledger


NamedParticipant = tuple[RegisteredResource, Participant]


def check_names(resources: Sequence[str]) -> None:
    """Refuse names that are missing, no strings, or given twice."""
    for name in resources:
        check_kind(name, str, "a resource", "give the names of registered ones")
    if not resources or len(set(resources)) != len(resources):
        raise ConfigError("name each resource of a coordinated transaction once, and at least one")


def resources_of(kernel: Kernel, names: Sequence[str], patience: float) -> Sequence[NamedParticipant]:
    """Return the resources; an unavailable one is waited for."""
    resources = [patiently(partial(kernel.participant, name), patience) for name in names]
    unable = [each.name for _, each in resources if not each.capabilities.two_phase]
    if len(unable) > 1:
        raise ConfigError(
            f"{' and '.join(map(repr, unable))} can't vote, and only one resource can come last; "
            "leave all but one of them to a transaction of their own"
        )
    if current_fiber() is not None:
        for _, each in resources:
            looped(each)  # refuses a participant that can't be used in a loop
    return resources


PART = 1
"""The part number of a block's one contribution; its attempt is the owner."""


class BlockOwner:
    """The owner of one coordinated transaction."""

    def __init__(
        self,
        kernel: Kernel,
        group: Group,
        resources: Sequence[str],
        *,
        key: str | None,
        run: str | None,
        patience: float = 0.0,
    ) -> None:
        self._kernel, self._group, self._key, self._run = kernel, group, key, run
        self.patience = patience
        self._lives = TxRecords(kernel)
        self._polled = self._units = False
        self.recorded: Callable[[], Sequence[Effect]] = tuple
        self.with_effects = False  # it writes tables: the batch of many owners would refuse them
        self._released = PhaseTwoResult([], {}, [])
        self._names = resources
        self.ids: Sequence[int] = ()
        self._resources: Sequence[NamedParticipant] = () if loops() else resources_of(kernel, resources, patience)
        self.life: TxRecord
        self.work: Work

    @property
    def txid(self) -> int | None:
        """The number of the transaction, once it has one."""
        return self.life.txid if hasattr(self, "life") else None

    def enter(self) -> None:
        """Begin, and name the branches (R9)."""
        self._resources = self._resources or resources_of(self._kernel, self._names, self.patience)
        self.ids = [recorded.id for recorded, _ in self._resources]
        numbers: Sequence[int] = range(1, len(self.ids) + 1)
        if self._key is not None:
            numbers = run_blocking(partial(self._enter_again, self._key))
        else:
            life = self._kernel.branches.call(BeginBranches(self._group.id, self.ids, self._run))
            assert isinstance(life, TxRecord)
            self._own(life)
        transaction = self._kernel.store.registry.identity.transaction(self.life.txid)
        for number, (_, each) in zip(numbers, self._resources, strict=True):
            self.work.add(each.name, BranchPart(BranchId(transaction, number, self.life.owner), each))
        self._kernel.running.begin(self, Doubt.of(self.life))

    def _enter_again(self, key: str) -> Sequence[int]:
        self._own(patiently(lambda: self._lives.enter(self._group, key, self._run), self.patience))
        numbers = patiently(lambda: self._named(self.ids), self.patience)
        self._free_of_earlier(key)
        return numbers

    def refuse_last_resource(self, what: str) -> None:
        """Refuse `what`, which can fail at the decision, if a resource's own commit is the decision (R12)."""
        for _, each in self._resources:
            if not each.capabilities.two_phase:
                raise ConfigError(
                    f"a transaction can't {what} beside {each.name!r}: its commit comes last and can't be taken back; "
                    "leave it to a transaction of its own"
                )

    def add(self, rows: Sequence[Row]) -> None:
        """Store messages ahead of the decision."""
        life = self.life
        with self._kernel.announce.around(facts.Adding, life.txid), self._kernel.store.ledgers.open() as ledger:
            self._lives.hold(ledger, life)
            ledger.add(life, PART, rows)
            ledger.win(life.txid, PART, life.owner)

    def call(self, ballot: Ballot) -> None:
        """Call a ballot."""
        life, announce = self.life, self._kernel.announce
        with announce.around(facts.Calling, life.txid, about=ballot.name), self._kernel.store.ledgers.open() as ledger:
            self._lives.hold(ledger, life)
            ledger.call(life.txid, ballot)
        self._polled = True

    def polled(self) -> None:
        """Note that something else calls a ballot."""
        self._polled = True

    def decide(
        self, decision: Decision, why: str, rows: Sequence[Row] = (), votes: Sequence[BranchVote] = ()
    ) -> Decision:
        """Write the decision with all that belongs to it; return the final decision."""
        self._kernel.tell_hooks(self._group, self.life, decision, why)
        if self._units:
            run_blocking(self._kernel.notes.flush)  # outcomes of units from before the decision are written before it
        word = self._word(decision, why, rows, votes)
        with self._none_left_behind():
            if self.with_effects:
                return run_blocking(partial(self._decide_with_effects, word))
            try:
                standing = self._kernel.branches.call(word)
            except EffectConflict:
                return run_blocking(partial(self._decide_with_effects, word))
        assert isinstance(standing, Decision)
        return standing

    def end(self, rows: Sequence[Row], votes: Sequence[BranchVote], last: str) -> Decision | None:
        """Write the end: from here on the last resource's evidence decides (R12). Return any earlier decision."""
        # After the last resource's commit it would be too late. An earlier owner may have called a ballot.
        if self._polled or self.life.owner > 1:
            require_carried(run_blocking(partial(ballots, self._kernel, self.life.txid)))
        evidence, _ = self._kernel.resource(last)
        # Read-only branches are named by the decision: a rollback may still follow the end.
        held = [vote for vote in votes if vote.vote is Vote.PREPARED]
        word = self._word(None, f"resource {last!r} decides", rows, held, evidence.id)
        with self._none_left_behind():
            standing = self._kernel.branches.call(word)
        assert standing is None or isinstance(standing, Decision)
        return standing

    def commit_last(
        self, last: str, transaction: str, votes: Sequence[BranchVote]
    ) -> tuple[Decision, Exception | None]:
        """Commit the last resource; return the decision by its evidence, and the error if it did not commit."""
        try:
            self.work.commit(last, transaction)
        except Exception as error:  # noqa: BLE001  # only the evidence is reliable
            self.work.drop(last)  # its session would block the barrier
            return self._follow_evidence(last, error)
        left = [vote for vote in votes if vote.vote is Vote.READ_ONLY]
        try:
            return self.decide(Decision.COMMIT, f"resource {last!r} committed", votes=left), None
        except TxSagaError as silent:  # it is committed: the process that finds the evidence writes COMMIT
            raise Unfinished(self.life.txid, ["the home database"]) from silent

    def finish(self, decision: Decision) -> PhaseTwoResult:
        """Finish every branch by the decision; the outcomes are written later."""
        told = self.work.finish(decision)
        told.silent.update(self._released.silent)
        notes = [*self._released.notes, *told.notes]
        if decision is Decision.ROLLBACK:
            notes += [
                BranchOutcome(self.life.txid, number, self.life.owner, BranchEvent.ROLL_BACK, NOTHING_DONE)
                for number in self.work.empty
            ]
        self._kernel.notes.add(notes)
        return told

    def release(self) -> None:
        """Roll back branches that were not asked for their vote: they can only roll back."""
        self._released = self.work.release()

    def open_unit(self, resource: RegisteredResource, participant: Participant) -> str:
        """Name a unit of an auxiliary lane before its work; return its key."""
        (number,) = run_blocking(lambda: self._named([resource.id], aux=True))
        key = f"{participant.name} unit {number}"
        transaction = self._kernel.store.registry.identity.transaction(self.life.txid)
        self.work.add(key, BranchPart(BranchId(transaction, number, self.life.owner), participant, aux=True))
        return key

    def settle_unit(self, key: str, decision: Decision) -> None:
        """Commit or roll back one unit on its own, independently of the transaction."""
        try:
            if decision is Decision.COMMIT:
                self.work.commit(key)
        except Exception as error:  # noqa: BLE001  # only the evidence shows whether it committed
            self._fence_unit(key, error)
        else:
            self.work.drop(key)
            self._note_unit(key, decision)

    def _fence_unit(self, key: str, error: Exception) -> None:
        """Find out whether a unit has committed; if not, make sure that it never does."""
        part, own = self.work.part(key), self.work.knots.found(key)
        self.work.drop(key)
        try:
            found = run_blocking(partial(part.participant.fence, part.branch))
        except TxSagaError as silent:
            name = part.participant.name
            raise OutcomeUnknown(f"whether the unit of lane {name!r} has committed is not known: {silent}") from error
        self._note_unit(key, Decision.COMMIT if found is Finish.COMMITTED else Decision.ROLLBACK)
        if found is not Finish.COMMITTED:
            if own is not None:
                raise own from error
            raise error

    def _note_unit(self, key: str, decision: Decision) -> None:
        self._units = True
        self._kernel.notes.add([noted(self.life.txid, self.work.part(key).branch, decision, Finish.DONE)])

    def abandon(self, error: BaseException) -> None:
        """Undo a begin that was interrupted: it must not be taken for running work."""
        self._kernel.running.end(self)
        if self.txid is None or isinstance(error, TxSagaError):
            return  # nothing is to be undone, or it can't be undone now: check-back does it
        with suppress(TxSagaError):
            self.finish(self.decide(Decision.ROLLBACK, f"its beginning was interrupted: {type(error).__name__}"))

    def leave(self) -> None:
        """Give every session back; from here on check-back may ask about it."""
        try:
            if self.txid is not None:
                self.work.leave()
        finally:
            self._kernel.running.end(self)

    def _own(self, life: TxRecord) -> None:
        self.life = life
        self.work = Work(life.txid, self._kernel.announce, self.patience)

    def _word(
        self,
        decision: Decision | None,
        why: str,
        rows: Sequence[Row],
        votes: Sequence[BranchVote],
        evidence: int | None = None,
    ) -> DecisionRequest:
        return DecisionRequest(self.life, decision, f"owner {self.life.owner}", why, rows, votes, evidence)

    def _named(self, resources: Sequence[int], *, aux: bool = False) -> Sequence[int]:
        with self._kernel.announce.around(facts.Naming, self.life.txid), self._kernel.store.ledgers.open() as ledger:
            self._lives.own(ledger, self.life)
            return ledger.name(self.life, resources, aux=aux)

    def _free_of_earlier(self, key: str) -> None:
        """Finish what earlier records and owners of the key left: their locks would block this one."""
        if self.life.epoch > 1:
            with self._kernel.store.ledgers.open() as ledger:
                before = ledger.latest(self._group.id, key, before=self.life.epoch)
            if before is not None:
                Recovery(self._kernel).finish(before.txid, {each.name for _, each in self._resources})
        if self.life.owner > 1:
            self._free_of_owners()

    def _free_of_owners(self) -> None:
        """Roll back what earlier owners prepared: no decision names it any more."""
        identity, participants = self._kernel.store.registry.identity, {each.id: one for each, one in self._resources}
        for branch in self._kernel.store.branches.of(self.life.txid):
            participant = participants.get(branch.recorded)
            if participant is not None and branch.unfinished and branch.attempt < self.life.owner:
                id = BranchId(identity.transaction(branch.txid), branch.number, branch.attempt)
                with self._kernel.announce.around(facts.Finishing, branch.txid, about=branch.resource):
                    participant.finish(id, Decision.ROLLBACK)

    @contextmanager
    def _none_left_behind(self) -> Iterator[None]:
        """Roll back what is prepared here if a later owner has taken over: it may wait for our locks."""
        try:
            yield
        except Superseded:
            self.work.finish(Decision.ROLLBACK)
            raise

    def _follow_evidence(self, last: str, error: Exception) -> tuple[Decision, Exception | None]:
        evidence, _ = self._kernel.resource(last)
        try:
            checked = run_blocking(lambda: self._kernel.settler.check(Doubt.of(self.life, evidence.id)))
        except TxSagaError as silent:
            raise InDoubt(f"transaction {self.life.txid} is undecided: {silent}; check-back settles it") from error
        if checked.standing is None:
            raise InDoubt(f"transaction {self.life.txid} is undecided: {checked.why}; check-back settles it") from error
        decision = checked.standing.decision
        if checked.standing.won:  # otherwise the decision may contradict the evidence: recovery asks the resource
            self._released.notes.append(noted(self.life.txid, self.work.part(last).branch, decision, Finish.DONE))
        return decision, error if decision is Decision.ROLLBACK else None

    def _decide_with_effects(self, word: DecisionRequest) -> Decision:
        try:
            return self._apply(word, self.recorded() if word.decision is Decision.COMMIT else ())
        except OutcomeUnknown:  # check the decision before preparing anything: it may be published already
            return patiently(lambda: self._apply(word, ()))

    def _apply(self, word: DecisionRequest, known: Sequence[Effect]) -> Decision:
        with self._kernel.announce.around(facts.Deciding, self.life.txid):
            return self._kernel.decider.effects.around(self.life.txid, lambda ready: self._applied(word, ready), known)

    def _applied(self, word: DecisionRequest, ready: PreparedEffects) -> tuple[Decision, bool]:
        assert word.decision is not None
        life, by = self.life, DecidedBy(who=word.who, why=word.why, owner=self.life.owner)
        with self._kernel.store.ledgers.open() as ledger:
            current = ledger.lock(life.txid)
            if current is not None and current.owner != life.owner:
                raise Superseded(life.txid)
            try:
                if word.votes and current is not None and current.state is TxState.SEALED:
                    ledger.elect(life.txid, word.votes)
                elif word.votes:
                    self._end(ledger, word)
                standing = self._kernel.decider.within(ledger, life.txid, word.decision, by, ready=ready)
                return standing.decision, standing.won
            except DecidedOtherwise as stands:
                return Decision[stands.standing], False

    def _end(self, ledger: Ledger, word: DecisionRequest) -> None:
        life = word.life
        self._lives.own(ledger, life)
        if word.rows:
            ledger.add(life, PART, word.rows)
        ledger.win(life.txid, PART, life.owner)  # also without messages: those of an earlier owner don't count (R4)
        ledger.elect(life.txid, word.votes)
        ledger.move(life.txid, TxEvent.SEAL)
