"""
The leases of this process: of the transactions that it works on, and of its membership in producer groups.

A transaction in progress is not checked before its lease ends, however long the work takes; the heartbeat renews it.
When this process dies, no lease is renewed and the transaction is checked at once. The heartbeat also announces which
groups this process answers for. If it never runs, long work is checked as if its owner were dead, and the checkers of
this process are never asked.
"""

from __future__ import annotations

import time
from datetime import timedelta

from txsaga.checkback.profile import LEASE
from txsaga.checkback.questions import Lead
from txsaga.core import facts
from txsaga.core.kernel import Kernel
from txsaga.core.role_loop import Pace

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
        driven = self._kernel.running.driven()
        if driven:
            with self._kernel.announce.around(facts.Holding, *(txid for txid, _ in driven)):
                self._kernel.store.steps.hold(driven, LEASE)
        held = self._kernel.running.long()
        if held:
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
