"""
What a member does with the messages it holds, each at the store, announced before and after.

Every one of them is refused when the claim ran out. If an acknowledgement went out without the store's word, two
members would both believe that they did the work.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from txsaga.engine.burial import bury
from txsaga.engine.consuming import Consuming, Stepwise
from txsaga.engine.kernel import Kernel
from txsaga.engine.life import Lives
from txsaga.engine.patience import patiently
from txsaga.engine.pending import Pending
from txsaga.engine.portion import MessagePortion
from txsaga.engine.processes import this_process
from txsaga.engine.received import Fate, Received
from txsaga.errors import ClaimLost, ConfigError
from txsaga.model import facts
from txsaga.model.arguments import check_kind
from txsaga.model.claim import LONGEST, Claim, Policy
from txsaga.model.dead_letter import short_cause


class Hands:
    """One member's way to put messages where they belong."""

    def __init__(
        self, kernel: Kernel, invisible: timedelta, policy: Callable[[], Policy], jitter: Callable[[], float]
    ) -> None:
        self._kernel, self._claims = kernel, kernel.store.claims
        self._invisible, self._policy, self._jitter = invisible, policy, jitter
        self._process = this_process()

    @property
    def ours(self) -> bool:
        """Whether these are the hands of this process: a forked child has the messages, and no right to them."""
        return self._process == this_process()

    def require_ours(self) -> None:
        """Refuse to act for the parent, which holds the same messages."""
        if not self.ours:
            raise ClaimLost("a forked child has nothing of its parent's consumer; open another with broker.consumer")

    def acknowledge(self, claim: Claim) -> None:
        """Take its open messages off the group."""
        self.require_ours()
        self._kernel.acks.call(claim)

    def send_ack(self, claim: Claim) -> Pending[None]:
        """Acknowledge without waiting for the answer."""
        self.require_ours()
        return self._kernel.acks.submit(claim)

    def extend(self, claim: Claim, by: timedelta | None) -> None:
        """Hold a claim for longer."""
        self.require_ours()
        span = self._invisible if by is None else _span(by)
        with self._kernel.announce.around(facts.Extending, about=claim.group):
            self._claims.extend(claim, span)

    def fail(self, message: Received, cause: str, delay: timedelta | None) -> None:
        """Put a message back, or bury it when its attempts are used up."""
        self.require_ours()
        check_kind(cause, str, "cause", "give a text")
        policy, claim, cause = self._policy(), message.claim, short_cause(cause)
        if policy.exhausted(claim.attempts):
            bury(self._kernel, policy, claim, message.delivered, cause)
            return
        rest = policy.retry_in(claim.attempts, self._jitter()) if delay is None else _span(delay)
        with self._kernel.announce.around(facts.Returning, about=claim.group):
            self._claims.put_back(claim, rest, cause)

    def give_back(self, claim: Claim) -> None:
        """Let its open messages come again, uncounted."""
        if not self.ours:
            return
        with self._kernel.announce.around(facts.Surrendering, about=claim.group):
            patiently(lambda: self._claims.give_back(claim))

    def bind(self, message: Received, transaction: Consuming) -> Fate:
        """Make a message a transaction's, or that of the step which is open; tell which."""
        self.require_ours()
        claim = message.claim
        rest = self._policy().retry_in(claim.attempts, self._jitter())
        if isinstance(transaction, Stepwise):
            transaction.take(MessagePortion(self, message, self._kernel.store.registry.identity, rest))
            return Fate.TAKEN
        life = transaction.join_life()
        with (
            self._kernel.announce.around(facts.Binding, life.txid, about=claim.group),
            self._kernel.store.ledgers.open() as ledger,
        ):
            Lives(self._kernel).hold(ledger, life)
            ledger.bind(life.txid, claim, rest)
        return Fate.BOUND


def _span(given: timedelta) -> timedelta:
    if not isinstance(given, timedelta) or not timedelta() <= given <= LONGEST:
        raise ConfigError(f"{given!r} is no time for a message; give a timedelta of at most {LONGEST.days} day")
    return given
