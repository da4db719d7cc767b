"""
Handing received messages out one by one, as a loop asks for them.

What waits for its turn is held for longer before its time is over, and given back when the loop is left. Leaving a
message's block sends its acknowledgement off at once, together with those of other members; the loop goes on, and
before it takes more it waits for all of them. If it did not wait, a message that came too late would go unnoticed.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from txsaga.engine.hands import Hands
from txsaga.engine.received import Received, Sent, by_claim, handed_out
from txsaga.errors import ClaimLost, TxSagaError

logger = logging.getLogger("txsaga")


class Handing:
    """The messages that a loop has taken and not handed out yet."""

    def __init__(self, hands: Hands, invisible: float) -> None:
        self._hands, self._pause = hands, invisible / 2
        self._waiting: deque[Received] = deque()

    def out(self, messages: Sequence[Received], closed: Callable[[], bool]) -> Iterator[Received]:
        """Hand messages out until there are none, or the consumer is closed; `ClaimLost` for one that was too late."""
        self._waiting.extend(messages)
        sent: Sent = []
        renew_at = time.monotonic() + self._pause
        try:
            while self._waiting and not closed():
                if time.monotonic() > renew_at:
                    self._hold_longer()
                    renew_at = time.monotonic() + self._pause
                if self._waiting:
                    yield handed_out(self._waiting.popleft(), sent)
        finally:
            failed = _answers(sent)
            self.give_back()
        if failed:
            raise failed[0]

    def give_back(self) -> None:
        """Let what nobody has worked on come again, uncounted."""
        rest = []
        while self._waiting:
            rest.append(self._waiting.popleft())
        for claim, _ in by_claim(rest):
            self._hands.give_back(claim)

    def _hold_longer(self) -> None:
        """Extend the claims of what waits; what is lost is dropped, since it comes again."""
        for _, messages in by_claim(self._waiting):
            try:
                messages[0].extend()
            except ClaimLost as lost:
                logger.warning("%s", lost)
                self._waiting = deque(message for message in self._waiting if message not in messages)


def _answers(sent: Sent) -> list[TxSagaError]:
    """Wait for acknowledgements; return what went wrong."""
    failed = []
    for message, call in sent:
        try:
            call.result()
        except TxSagaError as reason:
            logger.warning("message %s comes again: %s", message.id, reason)
            failed.append(reason)
    return failed
