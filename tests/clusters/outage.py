"""A network in front of a broker that can be down for a while, and come back."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from sqlalchemy.engine import make_url


class Outage:
    """Passes connections on to a server, unless it is down."""

    def __init__(self, url: str) -> None:
        self._target = make_url(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lines: list[socket.socket] = []
        self._lock = threading.Lock()
        self.is_down = False
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """The URL that leads through here."""
        port = self._listener.getsockname()[1]
        return self._target.set(host="127.0.0.1", port=port).render_as_string(hide_password=False)

    def down(self) -> None:
        """Cut every line, and take no new ones."""
        with self._lock:
            self.is_down = True
            lines, self._lines = self._lines, []
        for line in lines:
            cut(line)

    def up(self) -> None:
        """Take new lines again."""
        self.is_down = False

    def close(self) -> None:
        """Give the port back."""
        self.down()
        cut(self._listener)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with self._lock:
                    if self.is_down:
                        cut(client)
                        continue
                    server = socket.create_connection((self._target.host, self._target.port))
                    self._lines += [client, server]
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=pump, args=(source, sink), daemon=True).start()


def pump(source: socket.socket, sink: socket.socket) -> None:
    """Pass on what one side says until one of them is gone."""
    with suppress(OSError):
        while said := source.recv(1 << 16):
            sink.sendall(said)
    cut(source)
    cut(sink)


def cut(line: socket.socket) -> None:
    """Close one line at once."""
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
    line.close()
