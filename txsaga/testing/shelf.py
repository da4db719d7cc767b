"""What a contract test must know about a kind of resource: how to write an item, and how things fail there."""

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
        """Return the committed items, as other sessions see them; it must not wait for a branch."""

    def spoil(self, handle: object) -> None:
        """Make the resource roll a branch back by itself, and ignore the resulting error."""

    def cut(self, handle: object) -> None:
        """Break the session of a handle, as a lost connection does; do nothing if the kind has no sessions."""

    def overrule(self, branch: BranchId, decision: Decision) -> None:
        """Decide a prepared branch in the resource itself, as its administrator would."""

    def kept(self, branch: BranchId) -> bool:
        """Return whether the resource still keeps anything of a finished branch."""

    def foreign(self) -> AbstractContextManager[None]:
        """Hold a foreign prepared transaction; at the end it must still exist, and is removed."""
