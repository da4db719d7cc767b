"""A resource that answers as a test tells it to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from txsaga.core.decision import Decision
from txsaga.flows.branch import BranchId, Finish, Vote
from txsaga.resources.capabilities import CAPABILITIES, Capabilities, ResourceKind
from txsaga.resources.participant import Ages, Over

Said = Exception | Vote | Finish


def say(said: Said) -> Said:
    """Return or raise what was said."""
    if isinstance(said, Exception):
        raise said
    return said


@dataclass
class Actor:
    """One resource; what it is told and forgets is remembered."""

    name: str
    vote: list[Said] = field(default_factory=lambda: [Vote.PREPARED])
    end: Said = Finish.DONE
    database: UUID = field(default_factory=uuid4)
    told: list[Decision] = field(default_factory=list)

    @property
    def capabilities(self) -> Capabilities:
        """What a function can do."""
        return CAPABILITIES[ResourceKind.CALLABLE]

    def probe(self) -> None:
        """Find nothing wrong."""

    def enlist(self, branch: BranchId) -> Acting:
        """Open a branch."""
        return Acting(self)

    def finish(self, branch: BranchId, decision: Decision) -> Finish:
        """Answer as told."""
        self.told.append(decision)
        found = say(self.end)
        assert isinstance(found, Finish)
        return found

    def fence(self, branch: BranchId) -> Finish:
        """Hold nothing that could commit."""
        return Finish.DONE

    def prepared(self, store: str) -> Sequence[BranchId]:
        """Hold nothing."""
        return []

    def forget(self, branch: BranchId) -> None:
        """Keep nothing."""

    def sweep(self, store: str, ages: Ages, over: Over) -> int:
        """Keep nothing."""
        return 0

    def close(self) -> None:
        """Have nothing open."""


@dataclass
class Acting:
    """One branch: its votes are said one after the other, the last one again and again."""

    actor: Actor
    handle: object = None

    def prepare(self) -> Callable[[], Vote]:
        """Vote as told."""

        def voted() -> Vote:
            votes = self.actor.vote
            vote = say(votes.pop(0) if len(votes) > 1 else votes[0])
            assert isinstance(vote, Vote)
            return vote

        return voted

    def finish(self, decision: Decision) -> Callable[[], Finish]:
        """End as told."""
        return lambda: self.actor.finish(BranchId("", 1), decision)

    def commit(self, transaction: str | None) -> Callable[[], None]:
        """Refuse."""
        raise AssertionError("it can't be the last resource")

    decide = commit

    def leave(self) -> None:
        """Have nothing to give back."""
