"""
The gRPC server: which function serves which call, and how an error is answered.

Every answer has a status, so an error of a call is one as well; the call itself succeeds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from txsaga import errors
from txsaga.broker import Broker
from txsaga.core.message import MAX_BODY
from txsaga.gateway import wire
from txsaga.gateway.access import Caller, Signatures
from txsaga.gateway.access_keys import AccessKey
from txsaga.gateway.arrivals import Arrivals
from txsaga.gateway.asking import OperatorCommands
from txsaga.gateway.checks import ClientChecks
from txsaga.gateway.consumers import ConsumerPool
from txsaga.gateway.pulling import PullingCalls
from txsaga.gateway.receiving import RENEWED, ReceivingCalls
from txsaga.gateway.renewing import Renewals
from txsaga.gateway.routes import RouteCalls
from txsaga.gateway.sending import SendingCalls
from txsaga.gateway.status import CallRefused, Code, of_error

logger = logging.getLogger("txsaga")

LARGEST = 4 * MAX_BODY
"""Bytes of a request."""
GRACE = 3.0
"""Seconds that calls under way have when the server stops."""
TIDY = 10.0

Call = Callable[[Any], Awaitable[Any]]
StreamedCall = Callable[[Any, Caller], AsyncIterator[Any]]


class GatewayServer:
    """One process of the gateway; it is made within an event loop."""

    def __init__(self, broker: Broker, keys: Mapping[str, AccessKey] | None = None, *, shared: bool = False) -> None:
        self._signatures, self._checks = Signatures(keys), ClientChecks(broker)
        self._arrivals = Arrivals(broker.kernel)
        self._renewals = Renewals(broker.kernel, RENEWED, self._checks.clients.__contains__)
        self._consumers = ConsumerPool(broker.kernel, self._arrivals)
        self._receiving = ReceivingCalls(broker, self._consumers, self._renewals)
        sending, routes = SendingCalls(broker, self._checks), RouteCalls(broker.kernel)
        pulling = PullingCalls(broker.kernel, self._arrivals)
        self._commands = OperatorCommands(broker.kernel, self._checks.clients, pulling)
        self._calls: dict[str, Call] = {
            "QueryRoute": routes.query_route,
            "QueryAssignment": routes.query_assignment,
            "Heartbeat": routes.heartbeat,
            "NotifyClientTermination": routes.notify_client_termination,
            "SendMessage": sending.send_message,
            "EndTransaction": sending.end_transaction,
            "RecallMessage": sending.recall_message,
            "AckMessage": self._receiving.ack_message,
            "ChangeInvisibleDuration": self._receiving.change_invisible_duration,
            "ForwardMessageToDeadLetterQueue": self._receiving.forward_message_to_dead_letter_queue,
            "QueryOffset": pulling.query_offset,
            "GetOffset": pulling.get_offset,
            "UpdateOffset": pulling.update_offset,
        }
        self._streamed: dict[str, StreamedCall] = {
            "ReceiveMessage": self._receiving.receive_message,
            "PullMessage": pulling.pull_message,
        }
        self._server = grpc.aio.server(
            options=[("grpc.max_receive_message_length", LARGEST), ("grpc.so_reuseport", int(shared))]
        )
        self._server.add_generic_rpc_handlers([self._handlers()])
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, address: str, certificate: tuple[bytes, bytes] | None = None) -> int:
        """Listen, by TLS if there is a private key with its certificate, and return the port."""
        try:
            if certificate is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, grpc.ssl_server_credentials([certificate]))
        except RuntimeError:
            raise errors.ConfigError(f"the gateway can't listen on {address}; is it in use?") from None
        await self._server.start()
        running = (self._renewals.run(), self._commands.run(), self._tidy())
        self._tasks = [asyncio.create_task(each) for each in running]
        return int(port)

    async def stop(self) -> None:
        """Finish the calls under way, and let go of what is held."""
        await self._server.stop(GRACE)
        for task in self._tasks:
            task.cancel()
        await asyncio.to_thread(self._arrivals.close)
        await asyncio.to_thread(self._consumers.close)

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(TIDY)
            try:
                self._checks.clients.close_silent()
                await self._checks.clients.reconcile()
                await self._consumers.close_idle()
            except Exception:  # the next turn tries again
                logger.exception("the gateway could not tidy up")

    def _handlers(self) -> Any:
        found = {method.name: self._handler(method) for method in wire.SERVICE.methods}
        return grpc.method_handlers_generic_handler(wire.SERVICE.full_name, found)

    def _handler(self, method: Any) -> Any:
        written = {"response_serializer": lambda made: made.SerializeToString()}  # requests are read by us: see `_read`
        if method.client_streaming:
            return grpc.stream_stream_rpc_method_handler(self._served_in_parts(method), **written)
        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(self._served_in_parts(method), **written)
        return grpc.unary_unary_rpc_method_handler(self._served(method), **written)

    def _served(self, method: Any) -> Callable[[bytes, Any], Awaitable[Any]]:
        call = self._calls.get(method.name, _not_there)

        async def serve(written: bytes, context: Any) -> Any:
            try:
                request, caller = self._called(method, written, context)
                if method.name == "NotifyClientTermination":
                    self._checks.clients.leave(caller)
                return await call(request)
            except Exception as refused:  # noqa: BLE001  # a client gets a status, whatever is wrong
                return wire.new(method.output_type.name, status=of_error(refused))

        return serve

    def _served_in_parts(self, method: Any) -> Callable[[Any, Any], Awaitable[None]]:
        async def parts(said: Any, context: Any) -> AsyncIterator[Any]:
            try:
                async for part in self._parts(method, said, context):
                    yield part
            except Exception as refused:  # noqa: BLE001
                yield wire.new(method.output_type.name, status=of_error(refused))

        async def serve(said: Any, context: Any) -> None:
            with suppress(grpc.aio.InternalError):  # the client is gone
                async for part in parts(said, context):
                    await context.write(part)

        return serve

    def _parts(self, method: Any, said: Any, context: Any) -> AsyncIterator[Any]:
        if not method.client_streaming:
            return self._streamed[method.name](*self._called(method, said, context))
        return self._checks.clients.telemetry(_commands(said), self._signatures.caller(context.invocation_metadata()))

    def _called(self, method: Any, written: bytes, context: Any) -> tuple[Any, Caller]:
        """Return what is asked for and who asks, if it may."""
        caller = self._signatures.caller(context.invocation_metadata())
        self._checks.clients.saw(caller)
        request = _read(method.input_type.name, written)
        caller.require_call(method.name, request)
        return request, caller


def _read(name: str, request: bytes) -> Any:
    """Read a request here: the server would log a traceback for one that can't be read."""
    try:
        return wire.read(name, request)
    except DecodeError:
        raise CallRefused(Code.BAD_REQUEST, "the request can't be read") from None


async def _commands(commands: AsyncIterator[bytes]) -> AsyncIterator[Any]:
    async for command in commands:
        with suppress(CallRefused):  # a client that is newer than we are
            yield _read("TelemetryCommand", command)


async def _not_there(request: Any) -> Any:
    raise CallRefused(Code.NOT_IMPLEMENTED, "this call is not supported")
