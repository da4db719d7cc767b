"""
Messages that a block gathers for its decision, and those who hear of it: the same in every kind of block.

It stores nothing and decides nothing. Whoever gathers refuses what comes too early or too late, and stores what has
become too much to be kept here. What was not stored when the process dies is lost with it, and so is the transaction.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from txsaga.engine.half import as_message
from txsaga.engine.kernel import Kernel
from txsaga.engine.outbox import Outbox
from txsaga.engine.stage import Stage
from txsaga.errors import BrokerClosed, OutcomeUnknown, TxSagaError
from txsaga.model.arguments import check_function
from txsaga.model.decision import Decision
from txsaga.model.message import Message
from txsaga.model.topic import Way

logger = logging.getLogger("txsaga")

FLUSH = 8 * 1024 * 1024
"""So many bytes are stored ahead of the decision."""


class Gathering(ABC):
    """Gathers messages, and who is to hear of the decision."""

    _stage: Stage
    decision: Decision | None

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._outbox = Outbox(kernel.topics, Way.HALF)
        self._listeners: list[Callable[[Decision], None]] = []

    def send(self, topic: str | Message, body: bytes | None = None, **options: object) -> None:
        """Add a message: it is published by COMMIT, and by nothing else."""
        message = as_message(topic, body, options)
        self._require_open("send")
        self._outbox.add(message)
        self._flush()

    def send_many(
        self,
        topic: str,
        bodies: Sequence[bytes],
        *,
        keys: Sequence[str] | None = None,
        tags: Sequence[str] | None = None,
    ) -> None:
        """Add many messages of one topic as columns."""
        self._require_open("send")
        self._outbox.add_many(topic, bodies, keys, tags)
        self._flush()

    def when_decided(self, listener: Callable[[Decision], None]) -> None:
        """Tell somebody the decision."""
        check_function(listener, "listener", "give a function that takes the decision")
        self._listeners.append(listener)

    def _tell(self, decision: Decision) -> None:
        """Call each listener once; one that raises is logged, since the decision is made."""
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            try:
                listener(decision)
            except Exception:
                logger.exception("a listener of transaction %s failed", self.txid)

    @property
    @abstractmethod
    def txid(self) -> int | None:
        """The number of the transaction, once it has one."""

    def _require_new(self) -> None:
        """Raise unless the block may be entered."""
        self._stage.require_new()
        self._kernel.require_open()

    @contextmanager
    def _leaving(self, error: BaseException | None) -> Iterator[None]:
        """Leave the block; while its outcome is not known, "closed, nothing was done" never comes out of it."""
        try:
            yield
        except TxSagaError as reason:
            self._come_out(reason, error)
        if isinstance(error, BrokerClosed) and self.txid is not None and self.decision is None:
            raise unknown(self.txid) from error

    def _come_out(self, reason: TxSagaError, error: BaseException | None) -> None:
        """Raise why the block could not be decided, unless an error of its own comes out of it."""
        if isinstance(reason, BrokerClosed) and self.txid is not None:
            reason = unknown(self.txid)
        if error is None or isinstance(error, BrokerClosed):
            raise reason
        error.add_note(str(reason))
        logger.warning("transaction %s was left undecided or unfinished: %s", self.txid, reason)

    @abstractmethod
    def _require_open(self, what: str) -> None:
        """Raise unless messages are taken; `what` is what was asked for."""

    @abstractmethod
    def _flush(self) -> None:
        """Store what has become too much to be kept here."""


def unknown(txid: int) -> OutcomeUnknown:
    """Say what is known of a transaction that is under way when a broker, consumer or cluster is closed."""
    return OutcomeUnknown(
        f"a broker, consumer or cluster was closed while transaction {txid} was under way, so its outcome is not known "
        f"here; look with `txsaga tx show {txid}` before it is done again"
    )
