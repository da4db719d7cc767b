"""A service that gives one answer, byte for byte as it is told, and is gone."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

PATIENCE = 30.0
EARLY = b'HTTP/1.0 200 OK\r\nContent-Length: 50\r\n\r\n{"room": 7'
"""An answer that ends before it should."""


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """Give the port of a service that answers one call so, whatever it is asked."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE)

        def serve() -> None:
            caller, _ = server.accept()
            with caller, caller.makefile("rb") as asked:
                length = 0
                while line := asked.readline().strip().lower():
                    if line.startswith(b"content-length:"):
                        length = int(line.partition(b":")[2])
                asked.read(length)
                caller.sendall(answer)

        thread = Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join()
