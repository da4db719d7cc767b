"""
What producers call: send, end a transaction, recall a message.

The producer group of a topic's messages has the name of the topic, as it has in RocketMQ for these clients. Each
message of a call is stored by itself, all of them by the same commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import Any
from zlib import crc32

from txsaga import errors
from txsaga.broker import Broker
from txsaga.core.decision import Decision, LocalState
from txsaga.core.message import Message
from txsaga.core.records import End, Receipt
from txsaga.core.topic import SendKind, TopicType
from txsaga.gateway import wire
from txsaga.gateway.checks import ClientChecks
from txsaga.gateway.contribution import TokenContribution
from txsaga.gateway.handles import end_of, transaction_id
from txsaga.gateway.messages import immunity_of, read, token_of
from txsaga.gateway.status import CallRefused, Code, of_all, of_error, status
from txsaga.messages.producer import Producer

FROM_CHECK = wire.number("TransactionSource", "SOURCE_SERVER_CHECK")
STATES = {
    wire.number("TransactionResolution", "COMMIT"): LocalState.COMMIT,
    wire.number("TransactionResolution", "ROLLBACK"): LocalState.ROLLBACK,
}
LOCKS = 64
"""Topics with the same hash share one; only a topic that is looked up for the first time keeps it. So do tokens."""


class SendingCalls:
    """Serves producers."""

    def __init__(self, broker: Broker, checks: ClientChecks) -> None:
        self._broker, self._kernel, self._checks = broker, broker.kernel, checks
        self._producers: dict[str, Producer] = {}
        self._order, self._joining = ([asyncio.Lock() for _ in range(LOCKS)] for _ in range(2))

    async def send_message(self, request: Any) -> Any:
        """Store messages."""
        if not request.messages:
            raise CallRefused(Code.BAD_REQUEST, "there is no message")
        entries = await asyncio.gather(*map(self._sent, request.messages))
        return wire.new("SendMessageResponse", status=of_all(entries), entries=entries)

    async def end_transaction(self, request: Any) -> Any:
        """Decide a transaction; the answer comes once the decision is durable."""
        state, from_check = STATES.get(request.resolution, LocalState.UNKNOWN), request.source == FROM_CHECK
        wanted = Decision.ROLLBACK if state.decision is None else state.decision
        end = end_of(self._broker.identity, request.transaction_id, wanted, from_check=from_check)
        if state.decision is not None:
            await self._decided(end)
        self._checks.answered(request.transaction_id, state)  # also by a client that does not say that it was asked
        return wire.new("EndTransactionResponse", status=status(Code.OK))

    async def recall_message(self, request: Any) -> Any:
        """Take a message for later back, unless it is delivered already."""
        end = end_of(self._broker.identity, request.recall_handle, Decision.ROLLBACK, recalls=True)
        await self._decided(end)
        return wire.new(
            "RecallMessageResponse", status=status(Code.OK), message_id=self._broker.identity.transaction(end.txid)
        )

    async def _decided(self, end: End) -> None:
        standing = await (await self._kernel.in_loop(lambda: self._kernel.decides.submit(end)))
        if standing.decision is not end.decision:
            raise errors.DecidedOtherwise(standing.txid, standing.decision.name)

    async def _sent(self, sent: Any) -> Any:
        try:
            message, type = read(sent)
            if (token := token_of(sent)) is not None:
                async with self._joining[crc32(token.encode()) % LOCKS]:
                    return await asyncio.to_thread(self._joined, message, type, token)
            async with self._order[crc32(message.topic.encode()) % LOCKS]:  # messages are stored as they came
                producer = await self._producer(message.topic)
                storing = await self._kernel.in_loop(partial(self._submit, producer, message, type, immunity_of(sent)))
            receipt: Receipt = await storing
        except Exception as refused:  # noqa: BLE001  # the other messages of the call are stored
            return wire.new("SendResultEntry", status=of_error(refused))
        entry = {"message_id": message.unique_key, "offset": receipt.txid}
        id = transaction_id(self._broker.identity, receipt)
        entry |= {"transaction_id": id} if type is TopicType.TRANSACTION else {}
        entry |= {"recall_handle": id} if type is TopicType.DELAY else {}
        return wire.new("SendResultEntry", status=status(Code.OK), **entry)

    def _joined(self, message: Message, type: TopicType, token: str) -> Any:
        """Add a message to the transaction of another program."""
        self._require_type(message, type, SendKind.HALF)
        txid = TokenContribution(self._kernel, token).send(message)
        entry = {"message_id": message.unique_key, "transaction_id": self._broker.identity.transaction(txid)}
        return wire.new("SendResultEntry", status=status(Code.OK), offset=txid, **entry)

    def _submit(
        self, producer: Producer, message: Message, type: TopicType, immunity: int | None
    ) -> Awaitable[Receipt]:
        if type is not TopicType.TRANSACTION:
            self._require_type(message, type, SendKind.PLAIN)
            return producer.submit(message)
        self._require_type(message, type, SendKind.HALF)
        return self._kernel.stores.submit(self._kernel.topics.half(producer.group, message, immunity)[1])

    def _require_type(self, message: Message, type: TopicType, way: SendKind) -> None:
        topic = self._kernel.topics.open(message.topic, way, scheduled=message.scheduled)
        if topic.type is not type:
            raise errors.TopicTypeMismatch(
                f"topic {topic.name!r} is of type {topic.type}, the message is of type {type}"
            )

    async def _producer(self, topic: str) -> Producer:
        found = self._producers.get(topic)
        if found is None:
            await asyncio.to_thread(self._kernel.store.registry.topic, topic)  # no group for a topic that is not there
            found = self._producers[topic] = await asyncio.to_thread(self._broker.producer, topic)
        return found
