"""
Show which process is at work in a step that leaves no evidence, for as long as it lives.

The compensation of such a step waits until no process is in it. Otherwise it could run before the work that it undoes,
and the work would stay.
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
from txsaga.flows.calls import Start

logger = logging.getLogger("txsaga")


class Presence:
    """This process in one attempt of a step; hidden if nothing undoes the step, or if its resource has evidence.

    An application is always shown: the process that waits for it asks.
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Drop the lease; if that fails, it runs out."""
        if self._name is None:
            return
        self._kernel.running.exit(self._name)
        try:
            with self._kernel.announce.around(facts.Enlisting, self._txid, about=self._name):
                self._kernel.store.leases.drop(AT_WORK, self._name)
        except TxSagaError as away:
            logger.warning("what undoes a step of flow %d may have to wait: %s", self._txid, away)


def place_of(txid: int, member: str, step: str) -> str:
    """Return the lease name of a process in a step."""
    return f"{txid}/{member}/{step}"


def at_work(kernel: Kernel, txid: int, step: str) -> str | None:
    """Return a process that is in a step, if there is one."""
    first, last = f"{txid}/", f"/{step}"
    names = kernel.store.leases.alive(AT_WORK).get(*AT_WORK, ())
    found = (name for name in names if name.startswith(first) and name.endswith(last))
    return next((name.removeprefix(first).removesuffix(last) for name in found), None)
