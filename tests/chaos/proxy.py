"""A network between client and server that breaks when it is told to.

It looks for some bytes in what a client sends. The message that holds them can be lost, or its answer, or
both lines can fall silent while the server goes on: the three ways in which a COMMIT becomes unknown. It can also
vanish without anybody noticing, or arrive after everybody has given it up.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto

from sqlalchemy.engine import make_url

READY = {"postgresql": b"Z\x00\x00\x00\x05I"}
"""The last message of an answer: nothing is open any more. Others answer in one message."""
AT_ONCE = struct.pack("ii", 1, 0)
"""What makes closing a line a reset."""
LOOK = 0.02
DELAY = 0.3
"""Seconds that a slow message takes."""


class Loss(Enum):
    """What the network does to a message."""

    REQUEST = auto()
    """It never arrives."""
    ANSWER = auto()
    """It arrives and is done; the answer does not come back."""
    SILENCE = auto()
    """It arrives; the client is cut off at once, and the server does not hear of that."""
    HOLE = auto()
    """It never arrives, and nobody hears of that."""
    MUTE = auto()
    """It arrives and is done; nothing comes back, and the line stays."""
    LATE = auto()
    """It arrives when everybody has given up: at `deliver`."""
    SLOW = auto()
    """It takes some time."""
    RESET = auto()
    """It never arrives, and both sides are told at once that the line is no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Break once, at a message that holds these bytes."""

    needle: bytes
    loss: Loss


class Proxy:
    """Passes connections on to a server."""

    def __init__(self, url: str) -> None:
        self._target = make_url(url)
        self.ready = READY.get(self._target.get_backend_name(), b"")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = [self._listener]
        self._lock = threading.Lock()
        self._order: Order | None = None
        self.refusing = False
        self.broke, self._delivery = threading.Event(), threading.Event()
        self.delivered = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """The URL that leads through here."""
        port = self._listener.getsockname()[1]
        return self._target.set(host="127.0.0.1", port=port).render_as_string(hide_password=False)

    def lose(self, needle: bytes, loss: Loss) -> None:
        """Break at the next message that holds these bytes."""
        self.broke.clear()
        self._order = Order(needle=needle, loss=loss)

    def deliver(self) -> None:
        """Let what is late arrive, and wait until it has."""
        self._delivery.set()
        assert self.delivered.wait(10)

    def wait_for_delivery(self) -> None:
        """Wait until what is late may arrive."""
        self._delivery.wait()

    def close(self) -> None:
        """Cut every line."""
        self._delivery.set()
        self.refusing = True
        for each in self._sockets:
            _cut(each)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.refusing:
                    _cut(client)
                    continue
                server = socket.create_connection((self._target.host, self._target.port))
                self._sockets += [client, server]
                line = _Line(self, client, server)
                for pump in (line.requests, line.answers):
                    threading.Thread(target=pump, daemon=True).start()

    def take_order(self, message: bytes) -> Loss | None:
        """Tell what happens to a message; an order is carried out once."""
        with self._lock:
            order = self._order
            if order is None or order.needle not in message:
                return None
            self._order = None
            return order.loss


class _Line:
    """One connection, both ways."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._losing_answer = self._mute = False

    def requests(self) -> None:
        """Pass on what the client says."""
        with suppress(OSError, ValueError):  # of a line that is closed
            while message := _read(self._client):
                loss = self._proxy.take_order(message)
                if loss is Loss.RESET:
                    self._reset()
                if loss in (Loss.REQUEST, Loss.RESET):
                    break
                if loss is Loss.HOLE:
                    self._proxy.broke.set()
                    continue
                self._hold_up(loss)
                self._losing_answer = loss is Loss.ANSWER
                self._server.sendall(message)
                if loss is Loss.LATE:
                    self._proxy.delivered.set()
                if loss is Loss.SILENCE:
                    _cut(self._client)
                    self._proxy.broke.set()
                    return
        self._cut_both()

    def answers(self) -> None:
        """Pass on what the server says, unless it is to be lost."""
        with suppress(OSError, ValueError):  # of a line that is closed
            while message := _read(self._server):
                if self._mute:
                    continue
                if not self._losing_answer:
                    self._client.sendall(message)
                elif self._proxy.ready in message:
                    break
        self._cut_both()

    def _hold_up(self, loss: Loss | None) -> None:
        """Keep a message back, or get ready to keep its answer back."""
        if loss is Loss.MUTE:
            self._mute = True
        elif loss is Loss.SLOW:
            time.sleep(DELAY)
        elif loss is Loss.LATE:
            self._proxy.broke.set()
            self._proxy.wait_for_delivery()
        if loss in (Loss.MUTE, Loss.SLOW):
            self._proxy.broke.set()

    def _reset(self) -> None:
        for line in (self._client, self._server):
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
            line.close()

    def _cut_both(self) -> None:
        _cut(self._client)
        _cut(self._server)
        self._proxy.broke.set()


def _read(line: socket.socket) -> bytes:
    """Wait for what one side says: by looks, since who waits in a read keeps a line from being reset."""
    while not select.select([line], [], [], LOOK)[0]:
        pass
    return line.recv(1 << 20)


def _cut(line: socket.socket) -> None:
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
    line.close()


@contextmanager
def network(url: str) -> Iterator[Proxy]:
    """Give a network in front of a server."""
    proxy = Proxy(url)
    try:
        yield proxy
    finally:
        proxy.close()
