"""A service that gives one answer, byte for byte as it is told, and is gone."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

PATIENCE, A_MOMENT = 30.0, 0.2
EARLY = b'HTTP/1.0 200 OK\r\nContent-Length: 50\r\n\r\n{"room": 7'
"""An answer that ends before it should."""


@contextmanager
def answering(answer: bytes, *, broken_off: bool = False) -> Iterator[int]:
    """Give the port of a service that answers one call so, whatever it is asked; it may break the connection off."""
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
                if broken_off:
                    time.sleep(A_MOMENT)  # what is sent behind it would be lost with it
                    caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

        thread = Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            thread.join(PATIENCE)
