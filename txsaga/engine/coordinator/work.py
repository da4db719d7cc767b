"""
The work of one coordinated transaction in its resources: a session for each, opened by its first use.

All resources are at work at the same time: each step is sent to all of them before anybody waits, so that no lock is
held longer than the slowest answer takes. A session that is lost is never opened again in the same transaction. If
this process dies, what was not prepared is rolled back by its resource, and what was prepared waits for recovery.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

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


class Work:
    """What was opened for the branches of one transaction."""

    def __init__(self, txid: int, branches: Mapping[str, tuple[BranchId, Participant]], announce: Announcer) -> None:
        self._txid, self._branches, self._announce = txid, branches, announce
        self._open: dict[str, Enlisted] = {}
        self._committed: str | None = None  # in one phase

    @property
    def used(self) -> list[str]:
        """The resources that something was done in."""
        return list(self._open)

    @property
    def unused(self) -> set[int]:
        """The numbers of the branches in which nothing was done."""
        return {branch.number for name, (branch, _) in self._branches.items() if name not in self._open}

    @property
    def last(self) -> str | None:
        """The one that commits in one phase: what can't vote, or whoever is alone."""
        able = {name: self._branches[name][1].capabilities for name in self._open}
        unable = [name for name, can in able.items() if not can.two_phase]
        alone = [name for name, can in able.items() if can.last_resource] if len(able) == 1 else []
        return next(iter(unable or alone), None)

    def handle(self, name: str) -> object:
        """Return what the user works with in a resource, opening its session."""
        if name not in self._branches:
            known = ", ".join(repr(each) for each in self._branches)
            raise TransactionError(
                f"resource {name!r} is not one of this transaction's; it was opened for {known}: name it there"
            )
        if name not in self._open:
            branch, participant = self._branches[name]
            self._open[name] = participant.enlist(branch)
        return self._open[name].handle

    def prepare(self, names: Iterable[str]) -> dict[str, Vote]:
        """Ask these resources for their votes; a no is raised once all have answered."""
        votes = dict[str, Vote]()
        for name, answer in self.ask(names).items():
            if isinstance(answer, Exception):
                answer.add_note(f"this was the vote of resource {name!r}")
                raise answer
            votes[name] = answer
            if answer is Vote.READ_ONLY:
                self.drop(name)  # it has left
        return votes

    def ask(self, names: Iterable[str]) -> dict[str, Vote | Exception]:
        """Ask these resources for their votes; each has its answer."""
        return self._each(facts.Voting, set(names), lambda enlisted: enlisted.prepare())

    def take_out(self, name: str) -> Enlisted:
        """Let one resource take no part any more; whoever takes it out rolls it back."""
        return self._open.pop(name)

    def named(self, votes: Mapping[str, Vote], *, besides: Collection[str] = ()) -> tuple[Voted, ...]:
        """Name every branch: by its vote, the last resource as prepared, one where nothing was done as gone.

        What is left out keeps its state: whatever it holds is rolled back.
        """
        return tuple(
            Voted(
                branch.number,
                branch.attempt,
                votes.get(name, Vote.PREPARED if name in self._open else Vote.READ_ONLY),
            )
            for name, (branch, _) in self._branches.items()
            if name not in besides
        )

    def decide(self, name: str, transaction: str) -> None:
        """Let one resource commit in one phase, with the evidence of the transaction itself."""
        if self._announce:
            self._announce(facts.Working((self._txid,), about=name))
        self._open[name].decide(transaction)()
        self.drop(name)
        self._committed = name
        if self._announce:
            self._announce(facts.Worked((self._txid,), about=name))

    def finish(self, decision: Decision, names: Iterable[str]) -> tuple[list[Noted], dict[str, Exception]]:
        """Tell these resources what was decided; return what became of them, and who did not answer."""
        found = self._each(facts.Finishing, set(names), lambda enlisted: enlisted.finish(decision))
        notes, silent = list[Noted](), dict[str, Exception]()
        if self._committed is not None:
            notes.append(noted(self._txid, self._branches[self._committed][0], decision, Finish.DONE))
        for name, answer in found.items():
            if isinstance(answer, Exception):
                silent[name] = answer
            else:
                notes.append(noted(self._txid, self._branches[name][0], decision, answer))
        return notes, silent

    def leave(self) -> None:
        """Give every session back."""
        for name in list(self._open):
            self.drop(name)

    def drop(self, name: str) -> None:
        """Give one session back."""
        try:
            self._open.pop(name).leave()
        except Exception:  # it is over in any case; the resource rolls back what was not prepared
            logger.warning("the session in resource %r could not be given back", name, exc_info=True)

    def _each(
        self, fact: type[facts.Fact], names: set[str], send: Callable[[Enlisted], Callable[[], Answer]]
    ) -> dict[str, Answer | Exception]:
        """Send to all of them, then wait for each."""
        waiting: dict[str, Callable[[], Answer]] = {}
        found: dict[str, Answer | Exception] = {}
        for name, enlisted in self._open.items():
            if name in names:
                self._tell(fact, name)
                try:
                    waiting[name] = send(enlisted)
                except Exception as error:  # noqa: BLE001  # whatever a resource raises is its answer
                    found[name] = error
        for name, wait in waiting.items():
            try:
                found[name] = wait()
            except Exception as error:  # noqa: BLE001  # the same
                found[name] = error
            else:
                self._tell(facts.AFTER[fact], name)
        return found

    def _tell(self, fact: type[facts.Fact], name: str) -> None:
        if self._announce:
            self._announce(fact((self._txid,), about=name))


def noted(txid: int, branch: BranchId, decision: Decision, finish: Finish) -> Noted:
    """Write down what a second phase found."""
    event = EVENT_OF.get(finish, PLAIN_EVENT[decision])
    why = "" if finish is Finish.DONE else f"found {finish.name.lower()} while {decision.name} was decided"
    return Noted(txid, branch.number, branch.attempt, event, why)
