"""
A client of a native RocketMQ, for one topic: it sends half messages, ends them, and answers check-back.

Check-back comes on a stream that a thread keeps open; one that breaks is opened again. RocketMQ asks any one of the
clients that send to the topic. If nothing answers it asks again later, so no answer is lost for good. A question waits
a moment for its answer: whoever decided may just be ending that message.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import Any

import grpc

from txsaga.core.clock import wall_clock
from txsaga.core.decision import Decision
from txsaga.core.forking import this_process
from txsaga.gateway import wire
from txsaga.gateway.access import AUTHORIZATION, CLIENT, DATE
from txsaga.gateway.status import Code

logger = logging.getLogger("txsaga")

SERVICE = f"/{wire.PACKAGE}.MessagingService"
TIMEOUT, PAUSE, GRACE = 5.0, 2.0, 0.5
"""Seconds for a call, before a stream is opened again, and before a question is answered."""
RENEWED = 20.0
"""Seconds between two signs of life; RocketMQ forgets a client after 120."""
FIXED = (("x-mq-language", "PYTHON"), ("x-mq-client-version", "5.0.0"), ("x-mq-protocol", "v2"))

Answer = Callable[[Any], Decision | None]
"""Returns the decision about a message that RocketMQ asks about; None if there is none, or it is unknown here."""


class ProxyClient:
    """One client."""

    def __init__(
        self,
        endpoint: str,
        topic: str,
        answer: Answer,
        *,
        keys: tuple[str, str] | None = None,
        tls: grpc.ChannelCredentials | None = None,
    ) -> None:
        self._endpoint, self._topic, self._answer, self._keys, self._tls = endpoint, topic, answer, keys, tls
        self._lock, self._process = Lock(), 0

    def route(self) -> Any:
        """Return the answer to a question for the topic's queues."""
        return self._call("QueryRoute", topic={"name": self._topic}, endpoints=self._place())

    def send(self, message: Any) -> Any:
        """Send a message and return its status; a status that is not OK leaves open whether it was stored."""
        sent = self._call("SendMessage", messages=[message])
        return sent.entries[0].status if sent.entries else sent.status

    def end(self, message_id: str, decision: Decision, *, asked: bool = False) -> Any:
        """End a half message, because RocketMQ asked or without that; return the status."""
        source = "SOURCE_SERVER_CHECK" if asked else "SOURCE_CLIENT"
        return self._call(
            "EndTransaction",
            topic={"name": self._topic},
            message_id=message_id,
            transaction_id=message_id,
            source=wire.number("TransactionSource", source),
            resolution=wire.number("TransactionResolution", decision.name),
        ).status

    def listen(self) -> None:
        """Answer check-back from now on, in this process."""
        self._opened()

    def close(self) -> None:
        """Answer nothing more."""
        with self._lock:
            if self._process == this_process():
                self._closed.set()
                self._asked.put(None)
                self._channel.close()
            self._process = 0

    def _opened(self) -> grpc.Channel:
        with self._lock:
            if self._process != this_process():  # a forked child has nothing of its parent's
                self._process, self._closed, self._asked = this_process(), Event(), SimpleQueue[Any]()
                self._id = f"{socket.gethostname()}@{os.getpid()}@txsaga@{secrets.token_hex(4)}"
                make = (
                    grpc.insecure_channel if self._tls is None else partial(grpc.secure_channel, credentials=self._tls)
                )
                self._channel = make(self._endpoint)
                for work in (partial(self._listen, self._closed), partial(self._reply, self._asked)):
                    Thread(target=work, name="txsaga-rocketmq", daemon=True).start()
            return self._channel

    def _call(self, name: str, **fields: Any) -> Any:
        """Call a method; `ConnectionError` without an answer."""
        method = wire.SERVICE.methods_by_name[name]
        call = self._opened().unary_unary(
            f"{SERVICE}/{name}",
            request_serializer=_written,
            response_deserializer=partial(wire.read, method.output_type.name),
        )
        try:
            return call(wire.new(method.input_type.name, **fields), metadata=self._metadata(), timeout=TIMEOUT)
        except grpc.RpcError as lost:
            raise ConnectionError(f"{self._endpoint} did not answer {name}: {lost.details() or lost.code()}") from lost

    def _metadata(self) -> Sequence[tuple[str, str]]:
        said = [(CLIENT, self._id), *FIXED]
        if self._keys is not None:
            (key, secret), date = self._keys, wall_clock().strftime("%Y%m%dT%H%M%SZ")
            signature = hmac.new(secret.encode(), date.encode(), hashlib.sha1).hexdigest().upper()
            signed = f"MQv2-HMAC-SHA1 Credential={key}, SignedHeaders={DATE}, Signature={signature}"
            said += [(DATE, date), (AUTHORIZATION, signed)]
        return said

    def _listen(self, closed: Event) -> None:
        while not closed.is_set():
            over = Event()
            try:
                self._serve(over)
            except (grpc.RpcError, ValueError) as lost:  # a closed channel is a ValueError
                if not closed.is_set():
                    logger.info("RocketMQ at %s does not ask us now: %r; trying again", self._endpoint, lost)
            finally:
                over.set()
            closed.wait(PAUSE)

    def _serve(self, over: Event) -> None:
        stream = self._channel.stream_stream(
            f"{SERVICE}/Telemetry",
            request_serializer=_written,
            response_deserializer=partial(wire.read, "TelemetryCommand"),
        )
        for command in stream(self._signs_of_life(over), metadata=self._metadata()):
            if command.HasField("recover_orphaned_transaction_command"):
                self._asked.put((time.monotonic(), command.recover_orphaned_transaction_command.message))

    def _reply(self, asked: SimpleQueue[Any]) -> None:
        while (question := asked.get()) is not None:
            at, message = question
            time.sleep(max(0.0, at + GRACE - time.monotonic()))
            id = message.system_properties.message_id
            try:
                decision = self._answer(message)
                status = None if decision is None else self.end(id, decision, asked=True)
                if status is not None and status.code != Code.OK:
                    logger.warning("RocketMQ asked about message %s and refused the answer: %s", id, status.message)
            except Exception:  # outermost frame of its thread: RocketMQ asks again
                logger.exception("RocketMQ's question about message %s failed", id)

    def _signs_of_life(self, over: Event) -> Iterator[Any]:
        settings = {
            "client_type": wire.number("ClientType", "PRODUCER"),
            "access_point": self._place(),
            "publishing": {"topics": [{"name": self._topic}]},
            "user_agent": {"language": wire.number("Language", "PYTHON"), "version": "5.0.0"},
        }
        while not over.is_set():
            yield wire.new("TelemetryCommand", settings=settings)
            over.wait(RENEWED)

    def _place(self) -> dict[str, object]:
        host, _, port = self._endpoint.rpartition(":")
        scheme = wire.number("AddressScheme", "DOMAIN_NAME")
        return {"scheme": scheme, "addresses": [{"host": host, "port": int(port)}]}


def _written(made: Any) -> bytes:
    return bytes(made.SerializeToString())
