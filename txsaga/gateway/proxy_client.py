"""
A client of a native RocketMQ, for one topic: it sends half messages, ends them, and answers check-back.

Check-back comes on a stream that a thread keeps open. RocketMQ asks any client of the topic, until it gets an answer.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
import socket
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import methodcaller
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import Any

import grpc

from txsaga.core.clock import wall_clock
from txsaga.core.decision import Decision
from txsaga.core.forking import this_process
from txsaga.errors import ResourceManagerFailed
from txsaga.gateway import wire
from txsaga.gateway.access import AUTHORIZATION, CLIENT, DATE
from txsaga.gateway.remoting import Keys
from txsaga.gateway.status import Code

logger = logging.getLogger("txsaga")

SERVICE = f"/{wire.PACKAGE}.MessagingService"
TIMEOUT, PAUSE, RENEWED = 5.0, 2.0, 10.0
"""Seconds for a call, until a stream is reopened, and between signs of life (RocketMQ waits 120, and answers each)."""
WRITTEN = methodcaller("SerializeToString")
FIXED = (("x-mq-language", "PYTHON"), ("x-mq-client-version", "5.0.0"), ("x-mq-protocol", "v2"))
OPTIONS = {"grpc.keepalive_time_ms": 20_000, "grpc.keepalive_timeout_ms": 5_000, "grpc.http2.ping_timeout_ms": 5_000}
OPTIONS |= {"grpc.http2.max_pings_without_data": 0, "grpc.max_reconnect_backoff_ms": 3_000}
"""Silence is noticed within 25 seconds: the third bounds the wait for the answer to a ping, by default 60 seconds."""
LOST = (
    "RocketMQ at %s can't ask us about topic %s: %s; we connect again every %.0f s, until then other processes answer"
)
Answer = Callable[[Any], Decision | None]


class ProxyClient:
    """One client; `answer` returns the decision about a message, None if there is none or it is unknown here."""

    def __init__(
        self, endpoint: str, topic: str, answer: Answer, keys: Keys | None, tls: grpc.ChannelCredentials | None
    ) -> None:
        self._endpoint, self._topic, self._answer, self._keys, self._tls = endpoint, topic, answer, keys, tls
        self._lock, self._process = Lock(), 0

    def call(self, name: str, **fields: Any) -> Any:
        """Call a method of the proxy; `ResourceManagerFailed` without an answer."""
        method = wire.SERVICE.methods_by_name[name]
        call = self.listen().unary_unary(f"{SERVICE}/{name}", WRITTEN, partial(wire.read, method.output_type.name))
        try:
            return call(wire.new(method.input_type.name, **fields), TIMEOUT, self._metadata())
        except (grpc.RpcError, ValueError) as lost:  # a closed channel is a ValueError
            raise ResourceManagerFailed(f"RocketMQ at {self._endpoint} did not answer {name}: {_why(lost)}") from lost

    def end(self, message_id: str, decision: Decision, source: str = "SOURCE_CLIENT") -> Any:
        """End a half message; return the status."""
        said = {"source": wire.number("TransactionSource", source), "topic": {"name": self._topic}}
        said |= {"resolution": wire.number("TransactionResolution", decision.name)}
        return self.call("EndTransaction", message_id=message_id, transaction_id=message_id, **said).status

    def listen(self) -> grpc.Channel:
        """Answer check-back from now on, in this process; return the connection."""
        with self._lock:
            if self._process != this_process():  # a forked child has nothing of its parent's
                self._process, self._closed, self._asked = this_process(), Event(), SimpleQueue[Any]()
                self._id = f"{socket.gethostname()}@{os.getpid()}@txsaga@{secrets.token_hex(4)}"
                make = partial(grpc.secure_channel, credentials=self._tls) if self._tls else grpc.insecure_channel
                self._channel = make(self._endpoint, options=[*OPTIONS.items()])
                for work in (partial(self._listen, self._closed), partial(self._reply, self._closed, self._asked)):
                    Thread(target=work, name="txsaga-rocketmq", daemon=True).start()
            if self._closed.is_set():
                raise ResourceManagerFailed(f"the client of RocketMQ at {self._endpoint} is closed")
            return self._channel

    def close(self) -> None:
        """Answer and send nothing more, in this process."""
        with self._lock:
            if self._process == this_process():
                self._closed.set()
                self._asked.put(None)
                self._channel.close()

    def place(self) -> dict[str, object]:
        """Return the address of the proxy, as the protocol writes it."""
        host, _, port = self._endpoint.rpartition(":")
        return {"scheme": wire.number("AddressScheme", "DOMAIN_NAME"), "addresses": [{"host": host, "port": int(port)}]}

    def _metadata(self) -> Sequence[tuple[str, str]]:
        said = [(CLIENT, self._id), *FIXED]
        if self._keys is not None:
            (key, secret), date = self._keys, wall_clock().strftime("%Y%m%dT%H%M%SZ")
            signature = hmac.new(secret.encode(), date.encode(), hashlib.sha1).hexdigest().upper()
            signed = f"MQv2-HMAC-SHA1 Credential={key}, SignedHeaders={DATE}, Signature={signature}"
            said += [(DATE, date), (AUTHORIZATION, signed)]
        return said

    def _listen(self, closed: Event) -> None:
        open_stream = self._channel.stream_stream(
            f"{SERVICE}/Telemetry", WRITTEN, partial(wire.read, "TelemetryCommand")
        )
        warned = False
        while not closed.is_set():
            over, why = Event(), "it closed the stream"
            try:
                for command in open_stream(self._signs_of_life(over), metadata=self._metadata()):
                    if command.HasField("recover_orphaned_transaction_command"):
                        self._asked.put(command.recover_orphaned_transaction_command.message)
                    elif command.status.code not in (0, Code.OK):
                        raise ResourceManagerFailed(command.status.message)
                    elif warned:  # it has accepted our settings
                        logger.info("RocketMQ at %s asks us again", self._endpoint)
                        warned = False
            except (grpc.RpcError, ValueError, ResourceManagerFailed) as lost:  # a closed channel is a ValueError
                why = _why(lost)
            over.set()
            if not (warned or closed.is_set()):
                logger.warning(LOST, self._endpoint, self._topic, why, PAUSE)
                warned = True
            closed.wait(PAUSE)

    def _signs_of_life(self, over: Event) -> Iterator[Any]:
        settings: dict[str, Any] = {"client_type": wire.number("ClientType", "PRODUCER"), "access_point": self.place()}
        settings["publishing"] = {"topics": [{"name": self._topic}]}
        settings["user_agent"] = {"language": wire.number("Language", "PYTHON"), "version": "5.0.0"}
        while not over.is_set():
            yield wire.new("TelemetryCommand", settings=settings)
            over.wait(RENEWED)

    def _reply(self, closed: Event, asked: SimpleQueue[Any]) -> None:
        while (message := asked.get()) is not None and not closed.is_set():
            id = message.system_properties.message_id
            try:
                decision = self._answer(message)
                if decision is not None and (said := self.end(id, decision, "SOURCE_SERVER_CHECK")).code != Code.OK:
                    logger.warning("RocketMQ asked about message %s and refused the answer: %s", id, said.message)
            except Exception:  # outermost frame of its thread: RocketMQ asks again
                if not closed.is_set():
                    logger.exception("RocketMQ's question about message %s failed", id)


def _why(lost: Exception) -> str:
    return str(lost.details() or lost.code() if isinstance(lost, grpc.RpcError) else lost)
