"""
The producer of a cluster: plain messages placed one by one, transactions as a whole.

If a broker can't take a plain message, the next one does. A lost answer is raised, because another broker would deliver
the message twice. If the policy guarantees several copies, each plain message is a transaction of its own, so that all
of them are kept or none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Unpack

from txsaga.clusters.copies import as_copy
from txsaga.clusters.members import AWAY, Members
from txsaga.clusters.selection import Selection
from txsaga.clusters.transaction import ClusterTransaction
from txsaga.core.kernel import Kernel
from txsaga.core.message import Message, MessageOptions
from txsaga.core.records import Receipt
from txsaga.core.validation import validate_key
from txsaga.errors import ConfigError, OutcomeUnknown, PinRefused, TxSagaError
from txsaga.messages.half import as_message
from txsaga.messages.producer import Producer


class PlacedSend(NamedTuple):
    """The placement of a message: the node list that pins later ones, and the receipts."""

    nodes: tuple[str, ...]
    receipts: Mapping[str, Receipt]


class ClusterProducer:
    """Sends to the brokers of a cluster for one group."""

    def __init__(
        self,
        group: str,
        selection: Selection,
        members: Members,
        coordinator: tuple[Kernel, Producer] | None,
        failures: Counter[str],
    ) -> None:
        self.group = group
        self._selection, self._members, self._coordinator = selection, members, coordinator
        self._failures = failures
        self._producers: dict[str, Producer] = {}

    def send(
        self,
        topic: str | Message,
        body: bytes | None = None,
        *,
        nodes: Sequence[str] | None = None,
        **options: Unpack[MessageOptions],
    ) -> PlacedSend:
        """Send a plain message to brokers chosen by the policy, or to a node list; return its placement."""
        message = as_message(topic, body, options)
        if self._selection.guaranteed:
            with self.transaction(nodes=nodes) as tx:
                tx.send(message)
            return PlacedSend(tx.nodes, {})
        while True:
            chosen = self._selection.choose(nodes)
            copy = as_copy(message, chosen[0], self._selection.new_id) if self._selection.makes_copies else message
            receipts, answers = self._sent(chosen, copy)
            if len(chosen) == 1 and nodes is None and isinstance(answers[chosen[0]], AWAY):
                continue  # nothing was written there: try the next one
            if len(chosen) == 1 and (error := answers[chosen[0]]) is not None:
                if isinstance(error, AWAY):
                    raise PinRefused(
                        f"broker {chosen[0]!r} is not available, and the message is pinned to it; "
                        "wait for it, or send without a node list"
                    ) from error
                raise error
            if not receipts and (unknown := _unknown(answers)) is not None:
                raise unknown  # it may be stored: a second send would be another message
            return PlacedSend(self._selection.accepted(answers), receipts)

    def transaction(self, *, key: str | None = None, nodes: Sequence[str] | None = None) -> ClusterTransaction:
        """Open a transaction whose messages all go to brokers that the policy chooses once."""
        if self._coordinator is None:
            raise ConfigError(
                f"cluster {self._selection.cluster.name!r} has no coordinator: brokers only vote; "
                "give xa=True and the broker that coordinates"
            )
        if key is not None:
            validate_key(key)
        kernel, producer = self._coordinator
        return ClusterTransaction(
            kernel, producer.group, self._selection, self._members, key=key, nodes=nodes, failures=self._failures
        )

    def _sent(
        self, chosen: Sequence[str], message: Message
    ) -> tuple[dict[str, Receipt], dict[str, TxSagaError | None]]:
        receipts, answers = dict[str, Receipt](), dict[str, TxSagaError | None]()
        for name in chosen:
            try:
                receipts[name] = self._producer(name).send(message)
                answers[name] = None
            except TxSagaError as error:
                answers[name] = error
                if isinstance(error, AWAY):
                    self._members.failed(name, error)
        return receipts, answers

    def _producer(self, name: str) -> Producer:
        if name not in self._producers:
            self._producers[name] = self._members.broker(name).producer(self.group)
        return self._producers[name]


def _unknown(answers: Mapping[str, TxSagaError | None]) -> OutcomeUnknown | None:
    """Return the error of a lost answer, if any."""
    return next((error for error in answers.values() if isinstance(error, OutcomeUnknown)), None)
