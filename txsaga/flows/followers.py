"""
Reports of a flow's commit to its followers, if the run of the flow has not made them.

It processes what flows wrote with their decision. The run's own last task reports first: only when the run is over is
what is missing made up for. If this never runs, a follow-up whose run died after the decision waits until it does. Any
sender can write to the topic: only a flow's reports about itself are used.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta

from txsaga.consume.claim import Policy
from txsaga.consume.consumer import Consumer
from txsaga.consume.delivery import Delivery
from txsaga.consume.groups import create_group
from txsaga.core.kernel import Kernel
from txsaga.core.role_loop import Pace
from txsaga.errors import HostFailed, RightsMissing, UnknownTopic
from txsaga.flows.follow_up import TOPIC, Followers, FollowUp

logger = logging.getLogger("txsaga")
PATIENT = Policy(max_attempts=None, first_retry=timedelta(seconds=2), longest_retry=timedelta(minutes=1))
"""A run may last for days after the decision: a message that waits for it is never given up."""
AT_ONCE, PORTIONS = 4, 8
"""Messages per batch, batches per round: a message may take several calls of a slow host."""
HELD = timedelta(minutes=5)
"""Longer than any batch takes: else another engine would report it, too."""


class FollowUpRole:
    """Reports what committed flows wrote for their followers."""

    name = "asset events"
    pace = Pace(1.0, 5.0)

    def __init__(self, kernel: Kernel, followers: Followers, consumer: Callable[..., Consumer]) -> None:
        self._kernel, self._followers, self._open = kernel, followers, consumer
        self._group = f"{TOPIC}-{followers.name}" if followers.name else TOPIC
        self._consumer: Consumer | None = None
        self._refused = False

    def run_once(self) -> int:
        """Report what is pending; return how much was."""
        done = 0
        for _ in range(PORTIONS):
            messages = () if self._refused else self._received()
            told, silent = self._tell_all(messages)
            done += told
            if silent or not messages:
                break
        return done

    def _received(self) -> Sequence[Delivery]:
        try:
            if self._consumer is None:
                self._kernel.store.registry.topic(TOPIC)
                create_group(self._kernel, self._group, PATIENT)
                self._consumer = self._open(self._group, [TOPIC], invisible=HELD)
            return self._consumer.receive(AT_ONCE)
        except UnknownTopic:
            return ()  # no flow has followers yet
        except RightsMissing as missing:
            self._refused = True
            logger.warning("nobody is told here of commits whose run died: %s", missing, extra={"role": self.name})
            return ()

    def _tell_all(self, messages: Sequence[Delivery]) -> tuple[int, str]:
        """Return how many were reported, and why the host failed."""
        done, silent = 0, ""
        for message in messages:
            try:
                told = not silent and self._tell(message)
            except HostFailed as failure:
                told, silent = False, str(failure)
                logger.warning("who follows flows is told later: %s", failure, extra={"role": self.name})
            if told:
                message.ack()
                done += 1
            else:
                message.nack(silent or "its run goes on")
        return done, silent

    def _tell(self, message: Delivery) -> bool:
        try:
            committed = self._read(message)
        except ValueError as strange:
            logger.error("message %s of topic %r is left out, no flow wrote it: %s", message.id, TOPIC, strange)
            return True
        return self._followers.tell(committed, message.delivered.born)

    def _read(self, message: Delivery) -> FollowUp:
        """Parse what a flow reports about itself; raise `ValueError` if others wrote it, or it names another run."""
        committed, half = FollowUp.read(message.body), message.delivered.half
        if (committed.txid, committed.id) != (half.txid, half.transaction):
            raise ValueError(f"it was sent by transaction {half.transaction}, and is about {committed.id}")
        with self._kernel.store.ledgers.open() as ledger:
            life = ledger.share(half.txid)
        if life is None or life.run != committed.run:
            raise ValueError(f"transaction {half.transaction} is not of run {committed.run}")
        return committed
