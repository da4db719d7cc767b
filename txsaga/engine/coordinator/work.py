"""
The work of one coordinated transaction in its resources: a session for each, opened by its first use.

All resources are at work at the same time: each step is sent to all of them before anybody waits, so that no lock is
held longer than the slowest answer takes. A session that is lost is never opened again in the same transaction. If
this process dies, what was not prepared is rolled back by its resource, and what was prepared waits for recovery.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from txsaga.engine.announce import Announcer
from txsaga.errors import TransactionError
from txsaga.model import facts
from txsaga.model.branch import EVENT_OF, BranchEvent, BranchId, Finish, Vote
from txsaga.model.decision import Decision
from txsaga.ports.branches import Noted, Voted
from txsaga.ports.participants import Enlisted, Participant

logger = logging.getLogger("txsaga")

Answer = TypeVar("Answer")

PLAIN_EVENT = {Decision.COMMIT: BranchEvent.COMMIT, Decision.ROLLBACK: BranchEvent.ROLL_BACK}


class Part(NamedTuple):
    """One branch and its resource."""

    branch: BranchId
    participant: Participant
    aux: bool = False  # a unit of an auxiliary lane


class Work:
    """What was opened for the branches of one transaction."""

    def __init__(self, txid: int, announce: Announcer) -> None:
        self._txid, self._announce = txid, announce
        self._parts: dict[str, Part] = {}
        self._open: dict[str, Enlisted] = {}
        self._committed: str | None = None  # the last resource

    def add(self, key: str, part: Part) -> None:
        """Let a branch be worked in."""
        self._parts[key] = part

    @property
    def used(self) -> list[str]:
        """What something was done in."""
        return list(self._open)

    @property
    def unused(self) -> set[int]:
        """The numbers of the branches in which nothing was done."""
        return {part.branch.number for key, part in self._parts.items() if key not in self._open and not part.aux}

    @property
    def last(self) -> str | None:
        """The one that commits in one phase: what can't vote, or whoever is alone."""
        able = {key: self._parts[key].participant.capabilities for key in self._open if not self._parts[key].aux}
        unable = [key for key, can in able.items() if not can.two_phase]
        alone = [key for key, can in able.items() if can.last_resource] if len(self._open) == 1 else []
        return next(iter(unable or alone), None)

    @property
    def voting(self) -> list[str]:
        """Who is asked for a vote; a unit that can't give one follows the outcome behind it."""
        able = [key for key in self._open if self._parts[key].participant.capabilities.two_phase]
        return [key for key in able if key != self.last]

    def handle(self, key: str) -> object:
        """Return what the user works with in a branch, opening its session."""
        if key not in self._parts:
            known = ", ".join(repr(key) for key, part in self._parts.items() if not part.aux)
            raise TransactionError(
                f"resource {key!r} is not one of this transaction's; it was opened for {known}: name it there"
            )
        if key not in self._open:
            part = self._parts[key]
            self._open[key] = part.participant.enlist(part.branch)
        return self._open[key].handle

    def prepare(self, keys: Iterable[str]) -> dict[str, Vote]:
        """Ask these branches for their votes; a no is raised once all have answered."""
        found, votes = self._each(facts.Voting, set(keys), lambda enlisted: enlisted.prepare()), dict[str, Vote]()
        for key, answer in found.items():
            if isinstance(answer, Exception):
                answer.add_note(f"this was the vote of resource {self._parts[key].participant.name!r}")
                raise answer
            votes[key] = answer
            if answer is Vote.READ_ONLY:
                self.drop(key)  # it has left
        return votes

    def named(self, votes: Mapping[str, Vote]) -> tuple[Voted, ...]:
        """Name every branch: by its vote, the last resource as prepared, one where nothing was done as gone."""
        return tuple(
            Voted(*part.branch[1:], votes.get(key, Vote.PREPARED if key in self._open else Vote.READ_ONLY))
            for key, part in self._parts.items()
        )

    def commit(self, key: str, transaction: str | None = None) -> None:
        """Let one branch commit in one phase; with a transaction, that commit is its decision."""
        name = self._parts[key].participant.name
        self._tell(facts.Working, name)
        self._open[key].commit(transaction)()
        self._tell(facts.Worked, name)
        self.drop(key)
        if transaction is not None:
            self._committed = key

    def part(self, key: str) -> Part:
        """Return a branch and its resource."""
        return self._parts[key]

    def settled(self, key: str) -> None:
        """Forget a unit that is committed or rolled back: the outcome has nothing to do with it."""
        self.drop(key)
        self._parts.pop(key, None)

    def finish(self, decision: Decision, keys: Iterable[str]) -> tuple[list[Noted], dict[str, Exception]]:
        """Tell these branches what was decided; return what became of them, and which resources did not answer."""
        asked = set(keys)
        notes, silent = self._follow(decision, asked), dict[str, Exception]()
        if self._committed is not None:
            notes.append(noted(self._txid, self._parts[self._committed].branch, decision, Finish.DONE))
        for key, answer in self._each(facts.Finishing, asked, lambda enlisted: enlisted.finish(decision)).items():
            if isinstance(answer, Exception):
                silent[self._parts[key].participant.name] = answer
            else:
                notes.append(noted(self._txid, self._parts[key].branch, decision, answer))
        return notes, silent

    def _follow(self, decision: Decision, asked: set[str]) -> list[Noted]:
        """Let units that can't vote follow a COMMIT."""
        notes: list[Noted] = []
        for key in [key for key in asked if key in self._open and not self._can_vote(key)]:
            if decision is Decision.COMMIT and self._parts[key].aux:
                branch = self._parts[key].branch
                asked.discard(key)
                try:
                    self.commit(key)
                except Exception as error:  # noqa: BLE001  # whatever a resource raises is its answer
                    name = self._parts[key].participant.name
                    logger.error("the open unit of lane %r did not follow COMMIT of %d: %s", name, self._txid, error)
                    continue  # recovery finds by its evidence what became of it
                notes.append(noted(self._txid, branch, decision, Finish.DONE))
        return notes

    def _can_vote(self, key: str) -> bool:
        return self._parts[key].participant.capabilities.two_phase

    def leave(self) -> None:
        """Give every session back."""
        for name in list(self._open):
            self.drop(name)

    def drop(self, key: str) -> None:
        """Give one session back."""
        enlisted = self._open.pop(key, None)
        if enlisted is None:
            return
        try:
            enlisted.leave()
        except Exception:  # it is over in any case; the resource rolls back what was not prepared
            logger.warning("the session of %r could not be given back", key, exc_info=True)

    def _each(
        self, fact: type[facts.Fact], keys: set[str], send: Callable[[Enlisted], Callable[[], Answer]]
    ) -> dict[str, Answer | Exception]:
        """Send to all of them, then wait for each."""
        waiting: dict[str, Callable[[], Answer]] = {}
        found: dict[str, Answer | Exception] = {}
        for key, enlisted in self._open.items():
            if key in keys:
                self._tell(fact, self._parts[key].participant.name)
                try:
                    waiting[key] = send(enlisted)
                except Exception as error:  # noqa: BLE001  # whatever a resource raises is its answer
                    found[key] = error
        for key, wait in waiting.items():
            try:
                found[key] = wait()
            except Exception as error:  # noqa: BLE001  # the same
                found[key] = error
            else:
                self._tell(facts.AFTER[fact], self._parts[key].participant.name)
        return found

    def _tell(self, fact: type[facts.Fact], name: str) -> None:
        if self._announce:
            self._announce(fact((self._txid,), about=name))


def noted(txid: int, branch: BranchId, decision: Decision, finish: Finish) -> Noted:
    """Write down what a second phase found."""
    event = EVENT_OF.get(finish, PLAIN_EVENT[decision])
    why = "" if finish is Finish.DONE else f"found {finish.name.lower()} while {decision.name} was decided"
    return Noted(txid, branch.number, branch.attempt, event, why)
