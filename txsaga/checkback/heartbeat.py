"""
The leases of this process: of the transactions and steps that it works on, of its membership in producer groups.

A transaction in progress is not checked before its lease ends, however long the work takes; the heartbeat renews it.
When this process dies, no lease is renewed and the transaction is checked at once. The heartbeat also announces which
groups this process answers for. If it never runs, long work is checked as if its owner were dead, and the checkers of
this process are never asked.
"""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from typing import Self

from txsaga.checkback.profile import LEASE
from txsaga.checkback.questions import Lead
from txsaga.core import facts
from txsaga.core.kernel import Kernel
from txsaga.core.role_loop import Pace
from txsaga.errors import TxSagaError
from txsaga.flows.requests import Start

logger = logging.getLogger("txsaga")

AT_WORK = ("call",)
"""The kind of lease of a process in a step that leaves no evidence."""
MEMBERSHIP = timedelta(seconds=15)


def checkers_of(group: int) -> str:
    """Return the kind of lease that members of a producer group have."""
    return f"checker:{group}"


class Heartbeat:
    """Renews the leases of this process."""

    name = "heartbeat"

    def __init__(self, kernel: Kernel, *, enlists: bool = True) -> None:
        self._kernel, self._enlists = kernel, enlists
        self._enlisted: tuple[list[str], list[str]] = ([], [])
        self._renew_at = 0.0

    @property
    def pace(self) -> Pace:
        """As often as the work in progress here may have to be held."""
        beat = self._kernel.running.beat
        return Pace(beat, beat)

    def run_once(self) -> int:
        """Hold the work in progress, and announce the groups that this process answers for."""
        try:
            self._hold()
        finally:  # even if a hold can't be written, members go on answering
            if self._enlists:
                self.enlist()
        return 0

    def _hold(self) -> None:
        for name in self._kernel.running.present():
            with self._kernel.announce.around(facts.Enlisting, about="call"):
                self._kernel.store.leases.keep(AT_WORK, name, LEASE)
        if driven := self._kernel.running.driven():
            with self._kernel.announce.around(facts.Holding, *(txid for txid, _ in driven)):
                self._kernel.store.work.hold(driven, LEASE)
        if held := self._kernel.running.long():
            sagas = {txid for txid, _ in driven}
            mine = [doubt for doubt in held if doubt.txid not in sagas]
            with self._kernel.announce.around(facts.Holding, *(doubt.txid for doubt in held)):
                # Those that drive sagas come first, since they can also undo them.
                for some, lease in ((mine, LEASE), ([each for each in held if each.txid in sagas], 2 * LEASE)):
                    if some:
                        self._kernel.store.doubts.hold(some, lease)

    def enlist(self) -> None:
        """Announce this process as a member of its groups, except those whose checkers hang."""
        checkers, leases, member = self._kernel.checkers, self._kernel.store.leases, self._kernel.member
        hanging = sorted(map(checkers_of, checkers.hanging))
        answering = sorted(map(checkers_of, checkers.by_id.keys() - checkers.hanging))
        enlisted = answering, hanging
        if enlisted == self._enlisted and time.monotonic() < self._renew_at:
            return
        if answering or hanging:
            with self._kernel.announce.around(facts.Enlisting, about=member):
                if answering:
                    leases.keep(answering, member, MEMBERSHIP)
                if hanging:
                    leases.drop(hanging, member)
            self._enlisted, self._renew_at = enlisted, time.monotonic() + MEMBERSHIP.total_seconds() / 3


class Lease:
    """The lead of one kind of round: its holder leads, all other processes stand by."""

    TTL = timedelta(seconds=10)

    def __init__(self, kernel: Kernel, name: str) -> None:
        self._kernel, self._name = kernel, name
        self._until = 0.0
        self.lead: Lead | None = None

    def take(self) -> bool:
        """Take or keep the lead; False while another process has it."""
        ours = self.lead is not None and self.lead.holder == self._kernel.member  # a forked child is another member
        if ours and time.monotonic() < self._until:
            return True
        asked = time.monotonic()
        with self._kernel.announce.around(facts.Leading, about=self._name):
            self.lead = self._kernel.store.leases.acquire("round", self._name, self._kernel.member, self.TTL)
        self._until = asked + self.TTL.total_seconds() / 2
        return self.lead is not None

    def give_back(self) -> None:
        """Let another process lead."""
        lead, self.lead = self.lead, None
        if lead is not None:
            with self._kernel.announce.around(facts.Yielding, about=self._name):
                self._kernel.store.leases.release(lead)


class Presence:
    """This process in one attempt of a step; hidden if nothing undoes the step, or if its resource has evidence.

    The compensation waits until no process is in the step: it could run before the work that it undoes, and the work
    would stay. An application is always shown: the process that waits for it asks.
    """

    def __init__(self, kernel: Kernel, txid: int, start: Start | None, application: str | None = None) -> None:
        self._kernel, self._txid = kernel, txid
        silent = start is None or start.compensation is None or start.resource is not None
        name = application if silent or start is None else start.name
        self._name = None if name is None else place_of(txid, kernel.member, name)

    def __enter__(self) -> Self:
        """Take the lease before the attempt is written, so that the lease is found with it."""
        if self._name is not None:
            with self._kernel.announce.around(facts.Enlisting, self._txid, about=self._name):
                self._kernel.store.leases.keep(AT_WORK, self._name, LEASE)
            self._kernel.running.enter(self._name)
        return self

    def __exit__(self, *_: object) -> None:
        """Drop the lease; if that fails, it runs out."""
        if self._name is None:
            return
        self._kernel.running.exit(self._name)
        try:
            with self._kernel.announce.around(facts.Enlisting, self._txid, about=self._name):
                self._kernel.store.leases.drop(AT_WORK, self._name)
        except TxSagaError as away:
            logger.warning("the compensation of a step of flow %d may be delayed: %s", self._txid, away)


def place_of(txid: int, member: str, step: str) -> str:
    """Return the lease name of a process in a step."""
    return f"{txid}/{member}/{step}"


def at_work(kernel: Kernel, txid: int, step: str) -> str | None:
    """Return a process that is in a step, if there is one."""
    first, last = f"{txid}/", f"/{step}"
    names = kernel.store.leases.alive(AT_WORK).get(*AT_WORK, ())
    found = (name for name in names if name.startswith(first) and name.endswith(last))
    return next((name.removeprefix(first).removesuffix(last) for name in found), None)
