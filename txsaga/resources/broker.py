"""
Another txsaga store as a participant: durable half messages are its yes, an op row is its commit.

Its own check-back rolls back only what has not voted. A branch that voted yes is decided only by the store that
coordinates it, or by an operator's force, which is reported to that store (R15). The key of its record is the branch's
name, so that each attempt is found from any process and opened once. If the decision never comes, the branch stays
prepared, with what it consumed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING
from uuid import UUID

from txsaga import errors
from txsaga.broker import Broker
from txsaga.core import facts
from txsaga.core.clock import wall_clock
from txsaga.core.decision import Decision
from txsaga.core.failure import on_failure
from txsaga.core.kernel import Kernel
from txsaga.core.lifecycle import TxEvent, TxState
from txsaga.core.records import Doubt, Row, TxRecord
from txsaga.core.retry import patiently
from txsaga.flows.branch import BranchId, Finish, Vote
from txsaga.flows.requests import Guest
from txsaga.messages.decide import DecidedBy
from txsaga.messages.message_buffer import FLUSH, MessageBuffer
from txsaga.messages.tx_records import TxRecords
from txsaga.resources.capabilities import CAPABILITIES, ResourceKind
from txsaga.resources.participant import ours
from txsaga.resources.two_phase import VotingBranch, VotingParticipant
from txsaga.store.right import Right

if TYPE_CHECKING:
    from txsaga.messages.ledger_store import Ledger


PART = 1
"""A branch is one contribution; its attempt is part of its name."""
PATIENCE = 5.0
"""Seconds to retry after a lost answer; recovery has more."""
STEPS = {Decision.COMMIT: ("committing", "committed"), Decision.ROLLBACK: ("rolling back", "rolled back")}
OVERRULED = {Decision.COMMIT: Finish.COMMITTED, Decision.ROLLBACK: Finish.ROLLED_BACK}


class TxLog:
    """A file for an operator who settles by hand when everything else is lost; the program never reads it.

    Each step writes a line before and one after: the time, the step, the transaction's id and its branch. A line is on
    disk before the step begins; if it can't be written, the step does not happen.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._lock = path, Lock()

    def write(self, step: str, branch: BranchId) -> None:
        """Append a line; it is on disk when this returns."""
        line = f"{wall_clock().isoformat()} {step} {branch.transaction} {branch.qualifier}\n"
        with self._lock, self._path.open("a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())


class BranchRecords:
    """Records of branches in one store."""

    def __init__(self, kernel: Kernel, log: TxLog | None = None) -> None:
        self._kernel, self._lives, self._log = kernel, TxRecords(kernel), log
        self._groups: dict[str, int] = {}  # the number of a coordinator's group never changes

    def open(self, branch: BranchId) -> TxRecord:
        """Open the record of a branch; `DuplicateBranch` if it exists."""
        try:
            life = self._create(branch)
        except errors.OutcomeUnknown:  # no other process uses this attempt's name
            life = patiently(lambda: self._find(branch) or self._create(branch), PATIENCE)
        if life is None:
            raise errors.DuplicateBranch(f"branch {branch.gid} is open here already")
        return life

    def add(self, life: TxRecord, rows: Sequence[Row]) -> None:
        """Store messages before the vote."""
        with self._kernel.announce.around(facts.Adding, life.txid), self._open() as ledger:
            self._lives.hold(ledger, life)
            _add(ledger, life, rows)

    def vote(self, life: TxRecord, rows: Sequence[Row]) -> None:
        """Store the remaining messages and vote yes, in one commit; repeating this is no error."""
        with self._kernel.announce.around(facts.Voting, life.txid), self._open() as ledger:
            current = ledger.lock(life.txid)
            if current is not None and current.state is TxState.PREPARED:
                return  # its answer was lost
            self._lives.own(ledger, life)
            _add(ledger, life, rows)
            ledger.move(life.txid, TxEvent.SEAL)
            ledger.move(life.txid, TxEvent.PREPARE)

    def tell(self, branch: BranchId, decision: Decision) -> Finish:
        """Carry out the coordinator's decision, or return the different one that was made before."""
        try:
            finish = self._told(branch, decision)
        except errors.OutcomeUnknown:
            finish = patiently(lambda: self._told(branch, decision), PATIENCE)
        if decision is Decision.COMMIT:
            self._kernel.tell_decided()
        return finish

    def logged(self, branch: BranchId, decision: Decision, tell: Callable[[], Finish]) -> Finish:
        """Carry out the decision on a branch that may have voted, and log it."""
        before, after = STEPS[decision]
        self.note(before, branch)
        finish = tell()
        self.note(after if finish is Finish.DONE else f"found {finish.name.lower()}", branch)
        return finish

    def note(self, step: str, branch: BranchId) -> None:
        """Log a step, if there is a log."""
        if self._log is not None:
            self._log.write(step, branch)

    def forget(self, branch: BranchId) -> None:
        """Drop the mark of a forced decision; refuse if nothing is decided."""
        with self._kernel.announce.around(facts.Noting, about=branch.gid), self._open() as ledger:
            life = ledger.latest(self._group(branch), branch.gid)
            if life is None or life.coordinator is None:
                return
            if ledger.standing(life.txid) is None:
                raise errors.ProtocolError(
                    f"branch {branch.gid} is {life.state}: only decided branches can be acknowledged"
                )
            ledger.release(life.txid)

    def _create(self, branch: BranchId) -> TxRecord | None:
        group = self._group(branch)
        with self._kernel.announce.around(facts.Opening, about=branch.gid), self._open() as ledger:
            return ledger.create(group, branch.gid, 1, coordinator=UUID(branch.store))

    def _told(self, branch: BranchId, decision: Decision) -> Finish:
        with self._kernel.announce.around(facts.Deciding, about=branch.gid), self._open() as ledger:
            life = ledger.latest(self._group(branch), branch.gid)
            if life is None:  # nothing was done under this name, and no later yes will count
                self._require_sight(ledger, branch)
                return Finish.DONE if decision is Decision.ROLLBACK else Finish.ROLLED_BACK
            standing = ledger.standing(life.txid)
            if standing is None:
                self._decide(ledger, life, branch, decision)
                return Finish.DONE
            if standing is not decision:
                return OVERRULED[standing]
            if life.coordinator is not None:
                ledger.release(life.txid)
            return Finish.DONE

    def _decide(self, ledger: Ledger, life: TxRecord, branch: BranchId, decision: Decision) -> None:
        if decision is Decision.COMMIT and not life.voted:
            raise errors.ProtocolError(f"branch {branch.gid} is {life.state}: without a yes vote it can't be committed")
        by = DecidedBy(who=f"store {life.coordinator}", why=f"it decided {branch.transaction}", told=True)
        self._kernel.decider.within(ledger, life.txid, decision, by)

    def _require_sight(self, ledger: Ledger, branch: BranchId) -> None:
        """Refuse to consider gone what this login can't see: its coordinator would assume a heuristic outcome."""
        if not ledger.sees(self._group(branch)):
            raise errors.RightsMissing(
                f"this login is not shown the branches of store {branch.store} in this broker; grant it the producer "
                f"group coordinator-{branch.store}"
            )

    def _find(self, branch: BranchId) -> TxRecord | None:
        with self._open() as ledger:
            return ledger.latest(self._group(branch), branch.gid)

    def _group(self, branch: BranchId) -> int:
        """Return the number of the group of a coordinator's branches."""
        if branch.store not in self._groups:
            name = f"coordinator-{branch.store}"
            with self._kernel.announce.around(facts.Registering, about=f"producer group {name}"):
                self._groups[branch.store] = self._kernel.store.registry.group(name, transactional=True).id
        return self._groups[branch.store]

    def _open(self) -> AbstractContextManager[Ledger]:
        return self._kernel.store.ledgers.open()


def _add(ledger: Ledger, life: TxRecord, rows: Sequence[Row]) -> None:
    if rows:
        ledger.add(life, PART, rows)
        ledger.win(life.txid, PART, life.owner)


class BrokerWork(MessageBuffer):
    """The work of one branch in a broker."""

    def __init__(self, kernel: Kernel, lives: BranchRecords, life: TxRecord) -> None:
        super().__init__(kernel)
        self._lives, self._life = lives, life
        self._closed = self._broken = self._used = False

    @property
    def txid(self) -> int:
        """The branch's transaction number in this broker."""
        return self._life.txid

    @property
    def used(self) -> bool:
        """Whether it sent or consumed messages, or tried to."""
        return self._used or self._outbox.overflowed

    def join_life(self) -> TxRecord:
        """Return the branch's record, to bind something to it."""
        self._require_open("consume")
        self._used = True
        return self._life

    def close(self) -> list[Row]:
        """Accept nothing more; return what is not stored yet, unless something is missing."""
        self._closed = True
        self._broken = self._broken or self._outbox.overflowed
        return [] if self._broken else self._outbox.take()

    def tell(self, decision: Decision) -> None:
        """Call the listeners."""
        self._tell(decision)

    def _flush(self) -> None:
        self._used = True
        if self._outbox.bytes > FLUSH:
            with on_failure(setattr, self, "_broken", True):  # the messages that were not stored would be missing
                self._lives.add(self._life, self._outbox.take_whole())

    def require_whole(self) -> None:
        """Refuse to continue without messages that could not be stored."""
        if self._broken:
            raise errors.TransactionError(
                "messages of this branch could not be stored; the transaction can only roll back"
            )

    def _require_open(self, what: str) -> None:
        self.require_whole()
        if self._closed:
            raise errors.TransactionClosed(f"this branch was asked for its vote: it is too late to {what}")


class StoreBranch(VotingBranch):
    """The work of one branch."""

    def __init__(self, kernel: Kernel, lives: BranchRecords, branch: BranchId, life: TxRecord) -> None:
        super().__init__(branch)
        self._kernel, self._lives, self._life = kernel, lives, life
        self.handle = BrokerWork(kernel, lives, life)
        self._rows: list[Row] = []
        self._over = self._unknown = False
        kernel.running.begin(self, Doubt.of(life))

    def leave(self) -> None:
        """Release the branch; roll it back if it was not asked for its vote."""
        if self._asked is None and not self._over:
            with suppress(errors.TxSagaError):  # its own check-back finds it, once its lease has expired
                self._close()
                self._end(Decision.ROLLBACK)
        self._kernel.running.end(self)

    def _close(self) -> None:
        self._rows += self.handle.close()

    def _vote(self) -> Vote:
        self._lives.note("preparing", self._branch)
        vote = self._voted()
        self._lives.note("prepared", self._branch)
        return vote

    def _voted(self) -> Vote:
        try:
            if not self.handle.used:
                self._lives.tell(self._branch, Decision.ROLLBACK)
                return Vote.READ_ONLY
            self.handle.require_whole()
            self._write()
            self._prepared = True
            return Vote.PREPARED
        except errors.OutcomeUnknown as lost:
            self._unknown = True
            raise errors.ResourceManagerFailed(f"the vote of branch {self._branch.gid} is not known: {lost}") from lost
        except errors.TxSagaError as refused:
            raise code_of(refused)(f"branch {self._branch.gid} votes no: {refused}") from refused
        finally:
            self._over = not (self._prepared or self._unknown)
            self._kernel.running.end(self)

    def _write(self) -> None:
        try:
            self._lives.vote(self._life, self._rows)
        except errors.OutcomeUnknown as lost:
            try:
                patiently(lambda: self._lives.vote(self._life, self._rows))
            except (errors.StoreUnavailable, errors.BrokerClosed):
                raise lost from None

    def _end(self, decision: Decision) -> Finish:
        if self._asked is None:
            return self._told(decision)
        return self._lives.logged(self._branch, decision, lambda: self._told(decision))

    def _told(self, decision: Decision) -> Finish:
        if self._over:
            return Finish.DONE  # its store rolls back a branch that has not voted
        found = self._lives.tell(self._branch, decision)
        self._over = True
        self._kernel.running.end(self)
        if found is Finish.DONE:
            self.handle.tell(decision)
        return found


def code_of(refused: errors.TxSagaError) -> type[errors.XaError]:
    """Return what a broker's error means for a branch that was asked for its vote: a no, with its reason."""
    for kinds, code in _CODES:
        if isinstance(refused, kinds):
            return code
    return errors.OtherReason


_CODES: Sequence[tuple[tuple[type[errors.TxSagaError], ...], type[errors.XaError]]] = (
    ((errors.StoreUnavailable, errors.BrokerClosed), errors.CommunicationFailed),
    ((errors.StoreBusy,), errors.TransientFailure),
    ((errors.DecidedOtherwise,), errors.TimedOut),  # its broker considered the owner dead
    ((errors.LeaseLost, errors.ClaimLost, errors.EffectConflict), errors.IntegrityViolated),
)


PAGE = 1_000


class StoreParticipant(VotingParticipant):
    """A broker that takes part in other brokers' transactions."""

    capabilities = CAPABILITIES[ResourceKind.BROKER]

    def __init__(self, broker: Broker, *, name: str, log: TxLog | None = None) -> None:
        self.name, self.broker = name, broker
        self._lives = BranchRecords(broker.kernel, log)

    @property
    def database(self) -> UUID:
        """The uuid of the store."""
        return self.broker.identity.uuid

    def probe(self) -> None:
        """Refuse a login that may not write transactions there, and a store that accepts none; write nothing."""
        store = self.broker.kernel.store
        if Right.PRODUCER not in store.rights:
            raise errors.ConfigError(
                f"broker {self.name!r} can't vote: this login has no producer right there; grant it"
            )
        if store.registry.rejects_transactions:
            raise errors.TransactionsRejected(f"{self.broker.identity} (broker {self.name!r})")

    def enlist(self, branch: BranchId) -> StoreBranch:
        """Open the record of a branch; a broker is no participant in transactions that it coordinates itself."""
        if branch.store == self.database.hex:
            raise errors.ConfigError(
                f"broker {self.name!r} coordinates transaction {branch.transaction}, so it can't vote on it; "
                "send with the transaction itself"
            )
        if self.broker.kernel.closed:
            raise errors.StoreUnavailable(f"broker {self.name!r} is closed here")
        return StoreBranch(self.broker.kernel, self._lives, branch, self._lives.open(branch))

    def finish(self, branch: BranchId, decision: Decision) -> Finish:
        """Carry out the decision, from any process."""
        return self._lives.logged(branch, decision, lambda: self._lives.tell(branch, decision))

    def prepared(self, store: str) -> Sequence[BranchId]:
        """Return every branch that voted yes for a store."""
        return [branch for branch, guest in self.guests(UUID(hex=store)) if guest.state is TxState.PREPARED]

    def guests(self, coordinator: UUID | None = None) -> list[tuple[BranchId, Guest]]:
        """Return the branches that voted yes here for one store, or any, and those that were decided by force."""
        found: list[tuple[BranchId, Guest]] = []
        after = 0
        while page := self.broker.kernel.store.work.guests(coordinator, after=after, limit=PAGE):
            after = page[-1].txid
            found += [(branch, guest) for guest in page for branch in ours(guest.gid)]
        return found

    def forget(self, branch: BranchId) -> None:
        """Drop the mark of a forced decision."""
        self._lives.forget(branch)

    def close(self) -> None:
        """Close the broker in this process."""
        self.broker.close()
