"""What a contract test needs to know of one kind of resource: how to write an item, and how things go wrong there."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from txsaga.core.decision import Decision
from txsaga.flows.branch import BranchId


class Shelf(Protocol):
    """A place for items in the resource of a participant."""

    def put(self, handle: object, item: int) -> None:
        """Write an item through the handle of a branch."""

    def items(self) -> set[int]:
        """Return the items that are committed, as anybody else sees them; it must not wait for a branch."""

    def spoil(self, handle: object) -> None:
        """Let the resource roll a branch back by itself, and drop the error that says so."""

    def cut(self, handle: object) -> None:
        """Break the session under a handle, as a lost connection does; nothing where the kind has no sessions."""

    def overrule(self, branch: BranchId, decision: Decision) -> None:
        """Decide a prepared branch in the resource itself, as its administrator would."""

    def kept(self, branch: BranchId) -> bool:
        """Tell whether the resource still keeps anything of a finished branch."""

    def foreign(self) -> AbstractContextManager[None]:
        """Hold a prepared transaction of somebody else; at the end it must still be there, and goes."""
