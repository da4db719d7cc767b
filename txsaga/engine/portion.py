"""
What a step of a flow has consumed, a message or a chunk: the flow's once the step is done, else it comes again.

Until then it is held by its claim alone, or by the lease of its queue. If that runs out before, the step is not done:
somebody else has it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING

from txsaga.engine.consuming import Portion
from txsaga.engine.received import Fate, Received, by_claim, now_is
from txsaga.errors import TxSagaError
from txsaga.model.identity import StoreId
from txsaga.model.records import Life
from txsaga.ports.ledger import Ledger

if TYPE_CHECKING:
    from txsaga.engine.hands import Hands

logger = logging.getLogger("txsaga")


class MessagePortion:
    """One message in the hands of a step."""

    def __init__(self, hands: Hands, message: Received, store: StoreId, rest: timedelta) -> None:
        self._hands, self._message, self._rest = hands, message, rest
        self.store = store

    @property
    def taken(self) -> tuple[Received, timedelta]:
        """The message, and how long it rests before it comes again."""
        return self._message, self._rest

    def bind(self, ledger: Ledger, life: Life) -> None:
        """Make it the transaction's, in the commit that says that the step is done."""
        ledger.bind(life.txid, self._message.claim, self._rest)

    def settle(self) -> None:
        """Note that it is the transaction's."""
        now_is(self._message, Fate.BOUND)

    def go_back(self, error: BaseException) -> None:
        """Let it come again, counted and with the reason; uncounted where its process is being ended."""
        message = self._message
        now_is(message, Fate.PUT_BACK)
        try:
            if isinstance(error, Exception):
                self._hands.fail(message, f"its step failed: {type(error).__name__}: {error}", None)
            else:
                self._hands.give_back(message.claim)
        except TxSagaError as reason:
            logger.warning(
                "message %s could not be put back, it comes again when its time is over: %s", message.id, reason
            )


def bind_all(portions: Iterable[Portion], ledger: Ledger, life: Life) -> None:
    """Make all of it the transaction's: messages that were taken together are bound together, and rest as long."""
    rests: dict[str, timedelta] = {}
    messages: list[Received] = []
    for portion in portions:
        if isinstance(portion, MessagePortion):
            message, rest = portion.taken
            rests.setdefault(message.id, rest)
            messages.append(message)
        else:
            portion.bind(ledger, life)
    for claim, together in by_claim(messages):
        ledger.bind(life.txid, claim, rests[together[0].id])


class ChunkPortion:
    """One chunk of a stream in the hands of a step; the stream says how it is bound, followed, and read again."""

    def __init__(
        self,
        store: StoreId,
        bind: Callable[[Ledger, Life], None],
        settle: Callable[[], None],
        go_back: Callable[[], None],
    ) -> None:
        self.store, self.bind, self.settle, self._go_back = store, bind, settle, go_back

    def go_back(self, error: BaseException) -> None:
        """Read it again, whatever happened to the step."""
        self._go_back()
