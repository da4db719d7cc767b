"""
Handing received messages out one by one, as a loop asks for them.

What waits for its turn is held for longer before its time is over, and given back when the loop is left. Leaving a
message's block sends its acknowledgement off at once, together with those of other members; the loop goes on, and
before it takes more it waits for all of them and logs those that came too late. If it did not wait, nobody would know.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from txsaga.engine.hands import Hands
from txsaga.engine.received import Received, Sent, by_claim, handed_out, named
from txsaga.errors import ClaimLost, StoreError, TxSagaError

logger = logging.getLogger("txsaga")

LONGEST_ANSWER = 120.0
"""Seconds: a store that is away is waited for half a minute, twice."""


class Handing:
    """The messages that a loop has taken and not handed out yet."""

    def __init__(self, hands: Hands, invisible: float) -> None:
        self._hands, self._pause = hands, invisible / 2
        self._waiting: deque[Received] = deque()

    def out(self, messages: Sequence[Received], closed: Callable[[], bool]) -> Iterator[Received]:
        """Hand messages out until there are none, or the consumer is closed; what was too late is logged."""
        self._waiting.extend(messages)
        sent, renew_at = Sent(), time.monotonic() + self._pause
        try:
            while self._waiting and not closed():
                if time.monotonic() > renew_at:
                    self._hold_longer()
                    renew_at = time.monotonic() + self._pause
                if self._waiting:
                    yield handed_out(self._waiting.popleft(), sent)
        finally:
            sent.over = True
            if self._hands.ours and not sys.is_finalizing():  # at the end of a program nobody is left to answer
                _wait_for(sent)
                self.give_back()

    def give_back(self) -> None:
        """Let what nobody has worked on come again, uncounted."""
        rest = []
        while self._waiting:
            rest.append(self._waiting.popleft())
        for claim, _ in by_claim(rest):
            try:
                self._hands.give_back(claim)
            except TxSagaError as reason:
                said = "messages of group %s come again when their time is over: %s"
                logger.warning(said, claim.group, reason, extra={"group": claim.group})

    def _hold_longer(self) -> None:
        """Extend the claims of what waits; what is lost is dropped, since it comes again."""
        for _, messages in by_claim(list(self._waiting)):  # whoever closes the consumer takes them out
            try:
                messages[0].extend()
            except StoreError as away:
                told = named(messages[0])
                logger.warning("a claim of group %s could not be held longer: %s", told["group"], away, extra=told)
            except ClaimLost as lost:
                logger.warning("%s", lost, extra=named(messages[0]))
                self._waiting = deque(message for message in list(self._waiting) if message not in messages)


def _wait_for(sent: Sent) -> None:
    for message, call in sent.calls:
        try:
            call.result(LONGEST_ANSWER)
        except (TxSagaError, TimeoutError) as reason:
            logger.warning("message %s comes again: %s", message.id, reason, extra=named(message))
