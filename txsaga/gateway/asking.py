"""
Operators' commands, passed on to the clients that are connected here.

An answer counts if it comes on the stream that was asked, with the nonce of the command. A client that runs its
listener on a message for an operator gets no receipt handle: nothing is claimed, and nothing can be acknowledged.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from txsaga import errors
from txsaga.core.kernel import Kernel
from txsaga.gateway import wire
from txsaga.gateway.arrivals import LOOK
from txsaga.gateway.client_commands import ClientCommands
from txsaga.gateway.clients import ConnectedClient, ConnectedClients
from txsaga.gateway.messages import pulled
from txsaga.gateway.pulling import PullingCalls
from txsaga.gateway.status import CallRefused, Code, of_error

PLACE = re.compile(r"(.+)/(\d{1,9})@(\d{1,18})", re.ASCII)
RESULTS = {Code.OK: "success", Code.FAILED_TO_CONSUME_MESSAGE: "failure"}


class OperatorCommands:
    """Looks for commands as long as there are clients."""

    def __init__(self, kernel: Kernel, clients: ConnectedClients, pulling: PullingCalls) -> None:
        self._commands = ClientCommands(kernel.store.engine, kernel.store.namespace)
        self._clients, self._pulling = clients, pulling

    async def run(self) -> None:
        """Serve commands as they come."""
        async with asyncio.TaskGroup() as asking:
            while True:
                await asyncio.sleep(LOOK)
                with suppress(errors.TxSagaError):  # the store is away: the next look finds them
                    for command in await asyncio.to_thread(self._commands.waiting) if self._clients else ():
                        asking.create_task(self._serve(command))

    async def _serve(self, command: Any) -> None:
        here = [each for id, each in self._clients.latest.items() if command.client in (None, id)]
        with suppress(errors.TxSagaError):  # the operator is gone, or the store is away
            taken = await asyncio.to_thread(self._commands.take, command.nonce, [*map(_about, here)])
            if taken and command.client is not None and (answer := await self._asked(here[0], command)):
                await asyncio.to_thread(self._commands.answer, command.nonce, command.client, *answer)

    async def _asked(self, client: ConnectedClient, command: Any) -> tuple[bool, str] | None:
        """Return whether a client did what it was asked for, and what it says; None if it says nothing."""
        asked: dict[str, Any] = {"nonce": command.nonce}
        try:
            if command.message is None:
                made = wire.new("TelemetryCommand", print_thread_stack_trace_command=asked)
            else:
                asked["message"] = await self._message(client, command.message)
                made = wire.new("TelemetryCommand", verify_message_command=asked)
            return _said(await client.ask(command.nonce, made))
        except TimeoutError:
            return None
        except Exception as refused:  # noqa: BLE001  # the operator is told
            return False, of_error(refused).message

    async def _message(self, client: ConnectedClient, named: str) -> Any:
        """Return a message for the listener of a client, if it is one that the client reads."""
        about, place = _about(client), PLACE.fullmatch(named)
        if place is None:
            raise CallRefused(
                Code.BAD_REQUEST, f"{named!r} is no message; write TOPIC/QUEUE@OFFSET, as in `txsaga tail`"
            )
        if about["kind"] != "push consumer":
            raise CallRefused(Code.BAD_REQUEST, f"client {about['client']!r} is no push consumer: it has no listener")
        if place[1] not in about["topics"]:
            raise CallRefused(Code.BAD_REQUEST, f"client {about['client']!r} does not read topic {place[1]!r}")
        client.caller.require("receive", [place[1]])
        return pulled(await self._pulling.message(place[1], int(place[2]), int(place[3])))


def _about(client: ConnectedClient) -> Mapping[str, Any]:
    """Describe a client: what it is, its group and topics, and for how many seconds it has been silent."""
    settings = client.settings
    named = [each.topic for each in settings.subscription.subscriptions] or settings.publishing.topics
    return {
        "client": client.caller.client,
        "kind": wire.name("ClientType", settings.client_type).lower().replace("_", " "),
        "group": settings.subscription.group.name or None,
        "topics": sorted(each.name.replace("\0", "") for each in named),  # JSONB takes none
        "silent": round(time.monotonic() - client.seen, 1),
    }


def _said(answer: Any) -> tuple[bool, str]:
    code = answer.status.code
    if answer.HasField("thread_stack_trace") and code == Code.OK:
        return True, answer.thread_stack_trace.thread_stack_trace
    if answer.HasField("verify_message_result") and code in RESULTS:
        return True, RESULTS[code]
    return False, f"the client refuses: {wire.name('Code', code)} {answer.status.message}".rstrip()
