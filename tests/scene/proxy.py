"""A wire between client and server that loses answers, when a test tells it to.

It knows of the protocol only where an answer ends. If it were gone, the tests that use it could not connect.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

READY = b"Z\x00\x00\x00\x05"  # the last message of every answer


class Proxy:
    """Passes bytes on; loses the answer to a statement, cuts clients off, refuses them."""

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._needle: bytes | None = None
        self._skip = self._refused = 0
        self.lost = threading.Event()
        self._wires: list[Wire] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_answer(self, needle: bytes = b"", *, skip: int = 0) -> None:
        """Lose the answer to the next statement that holds some bytes, `skip` answers later, and hang up."""
        self._needle, self._skip = needle, skip
        self.lost.clear()

    def refuse(self, count: int) -> None:
        """Hang up on the next clients at once."""
        self._refused = count

    def cut_clients(self) -> None:
        """Hang up on every client; the server does not hear of it."""
        for wire in self._wires:
            wire.cut()

    def close(self) -> None:
        """Hang up on everybody."""
        self._listener.close()
        for wire in self._wires:
            wire.close()

    def loses(self, data: bytes) -> int | None:
        """Tell whether the answer to this is to be lost, and how many answers before it are not."""
        if self._needle is None or self._needle not in data:
            return None
        self._needle = None
        return self._skip

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._refused:
                    self._refused -= 1
                    client.close()
                else:
                    self._wires.append(Wire(self, client, socket.create_connection(self._target)))


class Wire:
    """One client and its backend."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._lose: int | None = None
        for way in (self._up, self._down):
            threading.Thread(target=way, daemon=True).start()

    def cut(self) -> None:
        """Hang up on the client only."""
        hang_up(self._client)

    def close(self) -> None:
        """Hang up on both."""
        for end in (self._client, self._server):
            hang_up(end)
            end.close()

    def _up(self) -> None:
        with suppress(OSError):
            while data := self._client.recv(65536):
                lose = self._proxy.loses(data)
                self._lose = self._lose if lose is None else lose
                self._server.sendall(data)

    def _down(self) -> None:
        answer = b""
        with suppress(OSError):
            while data := self._server.recv(65536):
                answer += data
                if self._lose == 0:
                    if READY in answer:
                        self.close()
                        self._proxy.lost.set()
                    continue
                if READY in answer:
                    answer = b""
                    self._lose = None if self._lose is None else self._lose - 1
                self._client.sendall(data)
        hang_up(self._client)


def hang_up(end: socket.socket) -> None:
    """End a connection that may have ended already."""
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxied(port: int) -> Iterator[Proxy]:
    """Open a wire to a port of this host."""
    proxy = Proxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
