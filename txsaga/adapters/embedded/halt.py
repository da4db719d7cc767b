"""Stops the server of a home; its caller holds the home's lock.

It needs no binaries, so it still works after the virtual environment was deleted. It must not
signal a process that is not a server of this very data folder. It returns only when the last server
process is gone; if it is killed before, the server stops all the same.
"""

import signal
import time
from enum import StrEnum

from txsaga.adapters.embedded.account import Account
from txsaga.adapters.embedded.complaint import complaint
from txsaga.adapters.embedded.home import Home
from txsaga.adapters.embedded.locks import LifeLock
from txsaga.adapters.embedded.processes import OrphanWatch, Processes, tell

_PAUSE = 0.01


class StopMode(StrEnum):
    """How a stop treats those who are connected, as in pg_ctl."""

    SMART = "smart"
    """Wait until they leave."""
    FAST = "fast"
    """Roll their open transactions back."""
    IMMEDIATE = "immediate"
    """Leave at once; the next start recovers."""


_SIGNALS = {
    StopMode.SMART: signal.SIGTERM,
    StopMode.FAST: signal.SIGINT,
    StopMode.IMMEDIATE: signal.SIGQUIT,
}


def halt(home: Home, account: Account, mode: StopMode, *, deadline: float) -> int:
    """Stop the server and return the life lock, held."""
    life = LifeLock(path=home.life)
    watch = OrphanWatch(data=home.data, account=account)
    told: int | None = None
    while True:
        processes = watch.look()
        descriptor = None if processes.everyone else life.take()
        if descriptor is not None:
            return descriptor
        if processes.postmaster is not None and processes.postmaster != told:
            told = processes.postmaster
            tell(told, _SIGNALS[mode])
        if time.monotonic() > deadline:
            raise complaint(_too_late(home, mode, processes))
        time.sleep(_PAUSE)


def _too_late(home: Home, mode: StopMode, processes: Processes) -> str:
    if processes.postmaster is None and not processes.everyone:
        return f"a server that can't be seen from here (another container?) uses {home.data}: stop it there"
    smart = mode is StopMode.SMART
    advice = "wait for its clients to leave, or stop it in fast mode" if smart else f"look at {home.log}"
    return f"the server at {home.root} did not stop in time ({mode} mode): {advice}"
