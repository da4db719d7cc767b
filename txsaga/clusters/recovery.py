"""
Recover and forget over a cluster: branches that its brokers hold prepared, or that were decided heuristically.

It lists and forgets; the role Recovery settles. A scan never silently omits a broker: one that takes part and can't be
queried is an XA error that names it. A prepared branch is never forgotten: its coordinator's commit would then have no
effect.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from txsaga.clusters.members import AWAY, Members
from txsaga.core.kernel import Kernel
from txsaga.core.lifecycle import TxState
from txsaga.errors import ConfigError, ProtocolError, ResourceManagerFailed, UnknownBranch
from txsaga.flows.branch import BRANCH, HEURISTIC, BranchEvent, BranchId, BranchState
from txsaga.flows.recovery import own_number
from txsaga.flows.requests import NONE, BranchOutcome
from txsaga.flows.search import Scope

logger = logging.getLogger("txsaga")

PAGE = 1_000
STATES = {
    TxState.PREPARED: BranchState.PREPARED,
    TxState.COMMITTED: BranchState.HEURISTIC_COMMITTED,
    TxState.ROLLED_BACK: BranchState.HEURISTIC_ROLLED_BACK,
}
WAITING = tuple(BRANCH.sources(BranchEvent.ROLL_BACK))


class FoundBranch(NamedTuple):
    """A branch that a broker holds."""

    broker: str
    branch: BranchId
    state: BranchState


class Recovering:
    """Scans the brokers of a cluster for one client."""

    def __init__(self, kernel: Kernel, members: Members, groups: Callable[[], set[str]]) -> None:
        self._kernel, self._members, self._groups = kernel, members, groups

    def scan(self, mode: Scope | str, page: int) -> Scan:
        """Start a scan."""
        return Scan(self._found(_mode(mode)), page)

    def forget(self, found: FoundBranch | None) -> list[FoundBranch]:
        """Forget branches that were decided outside their coordinator: one, or all of this client on each broker."""
        if found is None:
            chosen = [each for each in self._found(Scope.RESTRICTED) if each.state in HEURISTIC]
        else:
            chosen = [found]
        for each in chosen:
            self._forget(each)
        return chosen

    def _forget(self, found: FoundBranch) -> None:
        if found.state not in HEURISTIC:
            raise ProtocolError(
                f"branch {found.branch.gid} of {found.broker!r} is {found.state}; only heuristic ones are forgotten"
            )
        if not any(each == found for each in self._of(found.broker, Scope.GLOBAL)):
            raise UnknownBranch(f"broker {found.broker!r} has no branch {found.branch.gid}")
        _, participant = self._kernel.participant(found.broker)
        participant.forget(found.branch)
        branch, txid = found.branch, own_number(self._kernel, found.branch)
        if txid is not None:
            self._kernel.requests.call(BranchOutcome(txid, branch.number, branch.attempt, BranchEvent.FORGET))

    def _found(self, mode: Scope) -> Iterator[FoundBranch]:
        for name in self._members.names:
            yield from self._of(name, mode)

    def _of(self, name: str, mode: Scope) -> Iterator[FoundBranch]:
        after = 0
        coordinator = self._kernel.store.registry.identity.uuid if mode is Scope.RESTRICTED else None
        while True:
            try:
                branches = self._members.broker(name).kernel.store.work
                guests = branches.guests(coordinator, after=after, limit=PAGE)
            except AWAY as away:
                return self._missed(name, mode, away)
            for guest in guests:
                branch = BranchId.parse(guest.gid)
                if mode is Scope.GLOBAL or self._is_ours(branch):
                    yield FoundBranch(name, branch, STATES[guest.state])
            if len(guests) < PAGE:
                return
            after = guests[-1].txid

    def _missed(self, name: str, mode: Scope, away: Exception) -> None:
        """Raise for a broker that takes part; if nothing of this client waits there, only log."""
        if mode is Scope.GLOBAL or self._takes_part(name):
            raise ResourceManagerFailed(
                f"broker {name!r} can't be asked, and this list would lack its branches: {away}"
            ) from away
        logger.warning("broker %r can't be asked; no branch of this client waits for it: %s", name, away)

    def _takes_part(self, name: str) -> bool:
        states, after = (*WAITING, *HEURISTIC), NONE
        while page := self._kernel.store.work.branches_in(states, after=after, limit=PAGE):
            if any(each.resource == name for each in page):
                return True
            after = page[-1][:3]
        return False

    def _is_ours(self, branch: BranchId) -> bool:
        txid = own_number(self._kernel, branch)
        view = None if txid is None else self._kernel.store.overview.transaction(txid)
        return view is not None and view.group in self._groups()


class Scan:
    """A running scan: start, continue, end."""

    def __init__(self, found: Iterator[FoundBranch], page: int) -> None:
        if type(page) is not int or page < 1:
            raise ConfigError(f"page is {page!r}; give how many branches at a time, 1 or more")
        self._found: Iterator[FoundBranch] | None = found
        self._page = page

    def next(self) -> list[FoundBranch]:
        """Return the next page; an empty one marks the end."""
        if self._found is None:
            raise ProtocolError("this scan has ended; start another")
        return list(islice(self._found, self._page))

    def end(self) -> None:
        """End the scan."""
        self._found = None

    def __iter__(self) -> Iterator[list[FoundBranch]]:
        while page := self.next():
            yield page
        self.end()


def _mode(mode: Scope | str) -> Scope:
    try:
        return Scope(mode)
    except ValueError:
        raise ConfigError(f"mode is {mode!r}; give {' or '.join(Scope)}") from None
