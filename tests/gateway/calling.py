"""A gateway that listens, and a client of its own that says just what a test wants."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Self

import grpc

from txsaga.broker import Broker
from txsaga.gateway import wire
from txsaga.gateway.access_keys import AccessKey
from txsaga.gateway.server import GatewayServer

SERVICE = f"/{wire.PACKAGE}.MessagingService"
PRODUCER = wire.number("ClientType", "PRODUCER")


@contextmanager
def listening(broker: Broker, keys: Mapping[str, AccessKey] | None = None) -> Iterator[str]:
    """Serve a broker on a free port, in a thread with a loop of its own."""
    ready: queue.SimpleQueue[str] = queue.SimpleQueue()
    over: queue.SimpleQueue[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = queue.SimpleQueue()

    async def serve() -> None:
        server, stop = GatewayServer(broker, keys), asyncio.Event()
        over.put((asyncio.get_running_loop(), stop))
        ready.put(f"127.0.0.1:{await server.start('127.0.0.1:0')}")
        await stop.wait()
        await server.stop()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        yield ready.get(timeout=30)
    finally:
        loop, stop = over.get(timeout=30)
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)


def message(topic: str, body: bytes = b"hello", type: str = "NORMAL", **given: Any) -> Any:
    """Make a message as a client sends it."""
    system = {"message_type": wire.number("MessageType", type), "message_id": given.pop("id", "")}
    properties = given.pop("properties", {})
    return wire.new(
        "Message", topic={"name": topic}, body=body, user_properties=properties, system_properties={**system, **given}
    )


class RawClient:
    """One client of a gateway."""

    def __init__(self, address: str, id: str = "tester@1", headers: Mapping[str, str] | None = None) -> None:
        self._channel = grpc.insecure_channel(address)
        self._said: queue.SimpleQueue[Any] = queue.SimpleQueue()  # on the stream that was opened last
        self._metadata = [("x-mq-client-id", id), *(headers or {}).items()] if id else [*(headers or {}).items()]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._channel.close()

    def __call__(self, name: str, **fields: Any) -> Any:
        """Call a method that has one answer."""
        method = wire.SERVICE.methods_by_name[name]
        call = self._channel.unary_unary(
            f"{SERVICE}/{name}",
            request_serializer=lambda made: made.SerializeToString(),
            response_deserializer=partial(wire.read, method.output_type.name),
        )
        return call(wire.new(method.input_type.name, **fields), metadata=self._metadata, timeout=30)

    def stream(self, name: str, **fields: Any) -> list[Any]:
        """Call a method that has several answers."""
        method = wire.SERVICE.methods_by_name[name]
        call = self._channel.unary_stream(
            f"{SERVICE}/{name}",
            request_serializer=lambda made: made.SerializeToString(),
            response_deserializer=partial(wire.read, method.output_type.name),
        )
        return [*call(wire.new(method.input_type.name, **fields), metadata=self._metadata, timeout=90)]

    def send(self, *messages: Any) -> Any:
        """Send messages."""
        return self("SendMessage", messages=messages)

    def end(self, transaction_id: str, resolution: str, source: str = "SOURCE_CLIENT") -> Any:
        """End a transaction."""
        said = {"resolution": wire.number("TransactionResolution", resolution)}
        return self(
            "EndTransaction", transaction_id=transaction_id, source=wire.number("TransactionSource", source), **said
        )

    def receive(self, group: str, topic: str, *, wait: float = 10, **given: Any) -> list[Any]:
        """Receive; return the parts of the answer."""
        fields: dict[str, Any] = {"group": {"name": group}, "message_queue": {"topic": {"name": topic}}}
        fields |= {
            "batch_size": 16,
            "invisible_duration": wire.in_parts(30),
            "long_polling_timeout": wire.in_parts(wait),
        }
        fields |= given
        return self.stream("ReceiveMessage", **fields)

    def messages(self, group: str, topic: str, **given: Any) -> list[Any]:
        """Receive, and return the messages."""
        return [part.message for part in self.receive(group, topic, **given) if part.HasField("message")]

    def say(self, **command: Any) -> None:
        """Say something on the stream."""
        self._said.put(wire.new("TelemetryCommand", **command))

    @contextmanager
    def connected(self, *topics: str, **settings: Any) -> Iterator[queue.SimpleQueue[Any]]:
        """Open the stream of a client that sends to topics; yield what it is told: settings first, at its end None."""
        said = self._said = queue.SimpleQueue()
        told: queue.SimpleQueue[Any] = queue.SimpleQueue()
        given = settings or {"client_type": PRODUCER, "publishing": {"topics": [{"name": each} for each in topics]}}
        said.put(wire.new("TelemetryCommand", settings=given))
        stream = self._channel.stream_stream(
            f"{SERVICE}/Telemetry",
            request_serializer=lambda made: made.SerializeToString(),
            response_deserializer=partial(wire.read, "TelemetryCommand"),
        )(iter(said.get, None), metadata=self._metadata)

        def read() -> None:
            try:
                for command in stream:
                    told.put(command)
            except grpc.RpcError:
                pass  # the test is over, or the gateway was killed
            told.put(None)

        reading = threading.Thread(target=read)
        reading.start()
        try:
            yield told
        finally:
            said.put(None)
            stream.cancel()
            reading.join(30)
