"""
What a committed flow reports to its followers, and the role that reports it if the run of the flow has not.

The report is the body of a message that the flow itself sends, so it exists exactly if the flow commits: its number,
its id, and the assets of its host that get an event. The run's own last task reports first: only when the run is over
is what is missing made up for. If the role never runs, a report whose run died after the decision waits until it does.
Any sender can write to the topic: only a flow's reports about itself are used.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol

from txsaga.consume.claim import Policy
from txsaga.consume.consumer import Consumer
from txsaga.consume.delivery import Delivery
from txsaga.consume.groups import create_group
from txsaga.core.kernel import Kernel
from txsaga.core.role_loop import Pace
from txsaga.errors import HostFailed, RightsMissing, UnknownTopic

logger = logging.getLogger("txsaga")
TOPIC = "asset-events"
"""The topic that flows report to; of type `transaction`."""
SKEW = timedelta(hours=1)
"""Clocks differ: events are searched from so long before they may have been made."""


class AssetName(NamedTuple):
    """The name of an asset, its URI, or both."""

    name: str | None
    uri: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowUp:
    """The events that follow a commit."""

    run: str
    txid: int
    id: str
    assets: tuple[AssetName, ...]
    amends: str | None = None  # the id of the transaction that it amends

    def extra(self) -> dict[str, object]:
        """Return the data that each event carries."""
        told: dict[str, object] = {"txid": self.txid, "id": self.id}
        return told | ({"amends": self.amends} if self.amends else {})

    def body(self) -> bytes:
        """Return the body of the message."""
        assets = [each._asdict() for each in self.assets]
        return json.dumps({"run": self.run, "assets": assets, **self.extra()}).encode()

    @classmethod
    def read(cls, body: bytes) -> FollowUp:
        """Parse such a body; raise `ValueError` if it is not one."""
        try:
            found = json.loads(body)
            assets = tuple(AssetName(_text(each.get("name")), _text(each.get("uri"))) for each in found["assets"])
            if (None, None) in assets:
                raise ValueError("an asset has no name")
            told = {name: str(found[name]) for name in ("run", "id")}
            return cls(txid=int(found["txid"]), assets=assets, amends=_text(found.get("amends")), **told)
        except (TypeError, KeyError, AttributeError, OverflowError, RecursionError) as strange:
            raise ValueError(f"{strange!r}") from strange


class Followers(Protocol):
    """The followers of one host."""

    @property
    def name(self) -> str:
        """The name of the host; empty if it has none."""

    def tell(self, committed: FollowUp, since: datetime) -> bool:
        """Notify them once; False if the run may still do it. `since`: none was notified before that moment."""


def carries(extra: object, id: str) -> bool:
    """Return whether an event carries this transaction; its id names the store, as others have the same numbers."""
    return isinstance(extra, Mapping) and extra.get("id") == id


def _text(given: Any) -> str | None:  # a JSON value
    if given is None:
        return None
    text = str(given)
    text.encode()  # raises `ValueError` for text that can't be encoded: no asset has it
    return text or None


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
            logger.warning("can't create asset events for runs that died: %s", missing, extra={"role": self.name})
            return ()

    def _tell_all(self, messages: Sequence[Delivery]) -> tuple[int, str]:
        """Return how many were reported, and why the host failed."""
        done, silent = 0, ""
        for message in messages:
            try:
                told = not silent and self._tell(message)
            except HostFailed as failure:
                told, silent = False, str(failure)
                logger.warning("asset events of flows are created later: %s", failure, extra={"role": self.name})
            if told:
                message.ack()
                done += 1
            else:
                message.nack(silent or "its run is still active")
        return done, silent

    def _tell(self, message: Delivery) -> bool:
        try:
            committed = self._read(message)
        except ValueError as strange:
            logger.error("message %s of topic %r is ignored, not written by its flow: %s", message.id, TOPIC, strange)
            return True
        return self._followers.tell(committed, message.delivered.born)

    def _read(self, message: Delivery) -> FollowUp:
        """Parse what a flow reports about itself; raise `ValueError` if others wrote it, or it names another run."""
        committed, half = FollowUp.read(message.body), message.delivered.half
        if (committed.txid, committed.id) != (half.txid, half.transaction):
            raise ValueError(f"it was sent by transaction {half.transaction}, but describes {committed.id}")
        with self._kernel.store.ledgers.open() as ledger:
            life = ledger.share(half.txid)
        if life is None or life.run != committed.run:
            raise ValueError(f"transaction {half.transaction} is not of run {committed.run}")
        return committed
