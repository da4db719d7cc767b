"""
Who is at work in a step that leaves no evidence: its process says so, for as long as it lives.

What undoes such a step waits until nobody is in it. If nobody said so, it could run before the work that it undoes, and
that would stay.
"""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Self

from txsaga.checkback.heartbeat import AT_WORK
from txsaga.checkback.profile import LEASE
from txsaga.core import facts
from txsaga.core.kernel import Kernel
from txsaga.errors import TxSagaError
from txsaga.flows.ports import Start

logger = logging.getLogger("txsaga")


class Presence:
    """This process in one attempt of a step; where nothing undoes it, or its resource tells, nobody has to know.

    That of an application says so in any case: whoever waits for it asks.
    """

    def __init__(self, kernel: Kernel, txid: int, start: Start | None, application: str | None = None) -> None:
        self._kernel, self._txid = kernel, txid
        silent = start is None or start.compensation is None or start.resource is not None
        name = application if silent or start is None else start.name
        self._name = None if name is None else place_of(txid, kernel.member, name)

    def __enter__(self) -> Self:
        """Say it before the attempt is written down: whoever finds that finds this too."""
        if self._name is not None:
            with self._kernel.announce.around(facts.Enlisting, self._txid, about=self._name):
                self._kernel.store.leases.keep(AT_WORK, self._name, LEASE)
            self._kernel.running.enter(self._name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Say that it has left; if that fails, its lease runs out."""
        if self._name is None:
            return
        self._kernel.running.exit(self._name)
        try:
            with self._kernel.announce.around(facts.Enlisting, self._txid, about=self._name):
                self._kernel.store.leases.drop(AT_WORK, self._name)
        except TxSagaError as away:
            logger.warning("what undoes a step of flow %d may have to wait: %s", self._txid, away)


def place_of(txid: int, member: str, step: str) -> str:
    """Name the lease of a process in a step."""
    return f"{txid}/{member}/{step}"


def at_work(kernel: Kernel, txid: int, step: str) -> str | None:
    """Return a process that is in a step, if there is one."""
    first, last = f"{txid}/", f"/{step}"
    names = kernel.store.leases.alive(AT_WORK).get(*AT_WORK, ())
    found = (name for name in names if name.startswith(first) and name.endswith(last))
    return next((name.removeprefix(first).removesuffix(last) for name in found), None)
