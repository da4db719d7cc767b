"""
Check-back's questions, passed on to a client that is connected here.

The checker of a topic sends the question on the stream of one of its clients and waits for the end that answers it. An
answer that arrives at another instance is the decision as well; then this one hears nothing, and its question is over.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from contextlib import suppress

from txsaga import errors
from txsaga.broker import Broker
from txsaga.checkback.checkers import Question
from txsaga.checkback.heartbeat import checkers_of
from txsaga.core.decision import LocalState
from txsaga.core.records import Group
from txsaga.gateway import wire
from txsaga.gateway.clients import ConnectedClients
from txsaga.gateway.handles import transaction_id
from txsaga.gateway.messages import undecided

PATIENCE = 3.0
"""Seconds in which a client is to answer."""


class ClientChecks:
    """The checker of every topic whose clients send half messages through this process."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.clients = ConnectedClients(broker.kernel, self._begin, self._end)
        self._loop = asyncio.get_running_loop()
        self._asked: dict[str, Future[LocalState]] = {}  # by transaction id
        self._groups: dict[str, Group] = {}

    def ask(self, question: Question) -> LocalState:
        """Ask a client what became of a transaction; UNKNOWN if none answers."""
        client = next(self.clients.senders(question.group), None)
        if client is None:
            return LocalState.UNKNOWN
        if {each.topic for each in question.messages} != {question.group}:
            raise LookupError(
                f"it has messages of other topics than {question.group}, whose clients know nothing of it"
            )
        id = transaction_id(self._broker.identity, question.case.doubt)
        about = {"message": undecided(question.messages[0], question.case.message_id), "transaction_id": id}
        command = wire.new("TelemetryCommand", recover_orphaned_transaction_command=about)
        answer = self._asked[id] = Future[LocalState]()
        try:
            self._loop.call_soon_threadsafe(client.tell, command)
            return answer.result(PATIENCE)
        except TimeoutError:
            raise TimeoutError(f"client {client.caller.client} has not answered within {PATIENCE:.0f} s") from None
        finally:
            self._asked.pop(id, None)

    def answered(self, id: str, state: LocalState) -> None:
        """Pass a client's answer on to the question that waits for it."""
        waiting = self._asked.get(id)
        if waiting is not None and not waiting.done():
            waiting.set_result(state)

    def _begin(self, topic: str) -> None:
        self._groups[topic] = self._broker.producer(topic, checker=self.ask).group

    def _end(self, topic: str) -> None:
        group, kernel = self._groups.pop(topic), self._broker.kernel
        kernel.checkers.leave(group)
        with suppress(errors.TxSagaError):  # its membership runs out
            kernel.store.leases.drop([checkers_of(group.id)], kernel.member)
