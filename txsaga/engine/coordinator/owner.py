"""
What the owner of one coordinated transaction has in the store: its life, its branches by name, its word.

The word goes through the batches of this process: many owners' decisions share one commit. What only the one way to
decide applies (late bodies, bound offsets and messages) is decided there, with the same rows. If a word is never
written, check-back rolls the transaction back once its owner is silent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from txsaga.engine.coordinator.ballots import ballots
from txsaga.engine.coordinator.work import Part, Work, noted
from txsaga.engine.decide import By
from txsaga.engine.kernel import Kernel
from txsaga.engine.life import Lives
from txsaga.engine.patience import patiently
from txsaga.errors import (
    ConfigError,
    DecidedOtherwise,
    EffectConflict,
    InDoubt,
    OutcomeUnknown,
    Superseded,
)
from txsaga.model import facts
from txsaga.model.arguments import check_kind
from txsaga.model.ballot import Ballot, require_carried
from txsaga.model.branch import BranchEvent, BranchId, Finish
from txsaga.model.decision import Decision
from txsaga.model.lifecycle import TxEvent
from txsaga.model.records import Doubt, Group, Life, Resource, Row
from txsaga.ports.branches import Begin, Noted, Resolve, Voted
from txsaga.ports.ledger import Ledger
from txsaga.ports.participants import Participant

PART = 1
"""A block is one contribution; its attempt is the owner."""


class Owner:
    """The owner of one coordinated transaction."""

    def __init__(
        self, kernel: Kernel, group: Group, resources: Sequence[str], *, key: str | None, run: str | None
    ) -> None:
        self._kernel, self._group, self._key, self._run = kernel, group, key, run
        self._lives = Lives(kernel)
        _check_names(resources)
        self._polled = False
        self._resources = [kernel.participant(name) for name in resources]
        unable = [each.name for _, each in self._resources if not each.capabilities.two_phase]
        if len(unable) > 1:
            raise ConfigError(
                f"{' and '.join(map(repr, unable))} can't vote, and only one resource can come last; "
                "leave all but one of them to a transaction of their own"
            )
        self.life: Life
        self.work: Work

    @property
    def txid(self) -> int | None:
        """The number of the transaction, once it has one."""
        return self.life.txid if hasattr(self, "life") else None

    def enter(self) -> None:
        """Begin, with the branches named before their work (R9)."""
        ids = [recorded.id for recorded, _ in self._resources]
        if self._key is None:
            life = self._kernel.branches.call(Begin(self._group.id, ids, self._run))
            assert isinstance(life, Life)
            self.life, numbers = life, list(range(1, len(ids) + 1))
        else:
            self.life = self._lives.enter(self._group, self._key, self._run)
            numbers = list(self._named(ids))
        transaction = self._kernel.store.registry.identity.transaction(self.life.txid)
        self.work = Work(self.life.txid, self._kernel.announce)
        for number, (_, each) in zip(numbers, self._resources, strict=True):
            self.work.add(each.name, Part(BranchId(transaction, number, self.life.owner), each))
        self._kernel.running.begin(self, Doubt.of(self.life))

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

    def decide(self, decision: Decision, why: str, rows: Sequence[Row] = (), votes: Sequence[Voted] = ()) -> Decision:
        """Write the decision, with all that belongs to it; return what stands."""
        self._kernel.tell_hooks(self._group, self.life, decision, why)
        word = Resolve(self.life, decision, f"owner {self.life.owner}", why, rows, votes)
        try:
            standing = self._kernel.branches.call(word)
        except EffectConflict:
            return self._decide_with_effects(word)
        assert isinstance(standing, Decision)
        return standing

    def close(
        self, rows: Sequence[Row], votes: Sequence[Voted], last: str, transaction: str, closed: Callable[[], None]
    ) -> tuple[Decision, Exception | None]:
        """Write the end, let the last resource commit, and write the decision that its evidence tells (R12).

        Return what stands, and why the last resource did not commit.
        """
        evidence, _ = self._kernel.resource(last)
        if self._polled:  # behind the last resource's commit it would be too late
            require_carried(ballots(self._kernel, self.life.txid))
        end = Resolve(
            self.life, None, f"owner {self.life.owner}", "its last resource decides", rows, votes, evidence.id
        )
        self._kernel.branches.call(end)
        closed()
        try:
            self.work.commit(last, transaction)
        except Exception as error:  # noqa: BLE001  # whatever it is: only the evidence tells
            self.work.drop(last)  # or it would stand in the way of the barrier
            return self._follow_evidence(evidence.id, error)
        return self.decide(Decision.COMMIT, f"resource {last!r} committed"), None

    def finish(self, decision: Decision) -> list[str]:
        """Tell every resource; return those that did not answer. What became of them is noted by and by."""
        notes, silent = self.work.finish(decision, self.work.used)
        if decision is Decision.ROLLBACK:
            used = {note.number for note in notes}
            notes += [
                Noted(self.life.txid, number, self.life.owner, BranchEvent.ROLL_BACK, "nothing was done in it")
                for number in self.work.unused - used
            ]
        self._kernel.notes.add(notes)
        return list(silent)

    def open_unit(self, resource: Resource, participant: Participant) -> str:
        """Name a unit of an auxiliary lane before its work; return what the work is found under."""
        (number,) = self._named([resource.id], aux=True)
        key = f"{participant.name} unit {number}"
        transaction = self._kernel.store.registry.identity.transaction(self.life.txid)
        self.work.add(key, Part(BranchId(transaction, number, self.life.owner), participant, aux=True))
        return key

    def settle_unit(self, key: str, decision: Decision) -> None:
        """Commit or roll back one unit by itself, whatever becomes of the transaction."""
        branch, participant, _ = self.work.part(key)
        failure: Exception | None = None
        finish = Finish.DONE
        try:
            if decision is Decision.COMMIT:
                self.work.commit(key)
            self.work.drop(key)
        except Exception as error:  # noqa: BLE001  # only the evidence tells what became of it
            self.work.drop(key)
            failure, finish = error, participant.finish(branch, Decision.ROLLBACK)
        committed = decision is Decision.COMMIT and (failure is None or finish is Finish.COMMITTED)
        stands = Decision.COMMIT if committed else Decision.ROLLBACK
        self._kernel.branches.call(noted(self.life.txid, branch, stands, Finish.DONE))
        self.work.settled(key)
        if failure is not None and not committed:
            raise failure

    def leave(self) -> None:
        """Give every session back; from here on others may ask about it."""
        if self.txid is not None:
            self.work.leave()
        self._kernel.running.end(self)

    def _named(self, resources: Sequence[int], *, aux: bool = False) -> Sequence[int]:
        with self._kernel.announce.around(facts.Naming, self.life.txid), self._kernel.store.ledgers.open() as ledger:
            self._lives.own(ledger, self.life)
            return ledger.name(self.life, resources, aux=aux)

    def _follow_evidence(self, evidence: int, error: Exception) -> tuple[Decision, Exception | None]:
        checked = self._kernel.settler.check(Doubt.of(self.life, evidence))
        if checked.standing is None:
            raise InDoubt(f"transaction {self.life.txid} is undecided: {checked.why}; check-back settles it") from error
        decision = checked.standing.decision
        return decision, error if decision is Decision.ROLLBACK else None

    def _decide_with_effects(self, word: Resolve) -> Decision:
        try:
            return self._apply(word)
        except OutcomeUnknown:
            return patiently(lambda: self._apply(word))

    def _apply(self, word: Resolve) -> Decision:
        assert word.decision is not None
        life, by = self.life, By(who=word.who, why=word.why, owner=self.life.owner)
        with self._kernel.announce.around(facts.Deciding, life.txid), self._kernel.store.ledgers.open() as ledger:
            current = ledger.lock(life.txid)
            if current is not None and current.owner != life.owner:
                raise Superseded(life.txid)
            try:
                if word.votes:
                    self._end(ledger, word)
                return self._kernel.decider.within(ledger, life.txid, word.decision, by).decision
            except DecidedOtherwise as standing:
                return Decision[standing.standing]

    def _end(self, ledger: Ledger, word: Resolve) -> None:
        life = word.life
        self._lives.own(ledger, life)
        if word.rows:
            ledger.add(life, PART, word.rows)
            ledger.win(life.txid, PART, life.owner)
        ledger.elect(life.txid, word.votes)
        ledger.move(life.txid, TxEvent.END)


def _check_names(resources: Sequence[str]) -> None:
    for name in resources:
        check_kind(name, str, "a resource", "give the names of registered ones")
    if not resources or len(set(resources)) != len(resources):
        raise ConfigError("name each resource of a coordinated transaction once, and at least one")
