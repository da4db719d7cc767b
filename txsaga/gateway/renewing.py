"""
Holding what push consumers have received, which they do not ask for themselves.

A client that is no longer connected here is not held for: its messages come again, to it or to others.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

from txsaga import errors
from txsaga.consume.claim import Claim
from txsaga.core import facts
from txsaga.core.kernel import Kernel

logger = logging.getLogger("txsaga")

LONGEST = timedelta(hours=3)


class Renewals:
    """The claims that are extended until they are settled."""

    def __init__(self, kernel: Kernel, span: timedelta, connected: Callable[[str], bool]) -> None:
        self._kernel, self._span, self._connected = kernel, span, connected
        self._held: dict[Claim, tuple[str, float, int]] = {}  # by the claim without its mask, which grows

    def add(self, client: str, claims: Sequence[Claim]) -> None:
        """Hold claims of a client from now on."""
        until = time.monotonic() + LONGEST.total_seconds()
        for claim in claims:
            run = claim._replace(open=0)
            self._held[run] = client, until, claim.open | self._held.get(run, (client, until, 0))[2]

    async def run(self) -> None:
        """Extend the claims, three times within the time that they are held."""
        while True:
            await asyncio.sleep(self._span.total_seconds() / 3)
            try:
                await asyncio.to_thread(self._renew)
            except Exception:  # the next turn tries again
                logger.exception("messages of push consumers could not be held")

    def _renew(self) -> None:
        for run, (client, until, open) in list(self._held.items()):
            if not (self._connected(client) and time.monotonic() < until and self._extended(run._replace(open=open))):
                self._held.pop(run, None)

    def _extended(self, claim: Claim) -> bool:
        try:
            with self._kernel.announce.around(facts.Extending, about=claim.group):
                self._kernel.store.claims.extend(claim, self._span)
        except errors.ClaimLost:
            return False  # it is settled
        except errors.TxSagaError:
            return True  # the store is away: it is tried again
        return True
