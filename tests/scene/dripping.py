"""
A service that answers a byte at a time, and a certificate for one that speaks TLS.

It ends with its block, however much is left to be dripped.
"""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

from tests.services.absent import ci_or_skip

LASTS = 15.0
"""Seconds that an answer takes which drips."""
PARTS = {
    "status": b"HTTP/1.1 200 OK\r\n",
    "headers": b"X-Slow: yes\r\nX-Slower: very\r\nContent-Length: 50\r\n\r\n",
    "body": b'{"did": 1}'.ljust(50),
}


class _Service(ThreadingHTTPServer):
    def __init__(self, where: str) -> None:
        super().__init__(("127.0.0.1", 0), _Desk)
        self.where, self.over = where, Event()


class _Desk(BaseHTTPRequestHandler):
    server: _Service

    def do_POST(self) -> None:
        """Answer; the part that drips goes out byte by byte."""
        self.rfile.read(int(self.headers["Content-Length"]))
        with suppress(OSError):  # who called has left
            for part, data in PARTS.items():
                if part == self.server.where:
                    self._drip(data)
                else:
                    self.wfile.write(data)

    def _drip(self, data: bytes) -> None:
        for at in range(len(data)):
            self.wfile.write(data[at : at + 1])
            if self.server.over.wait(LASTS / len(data)):
                return

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def dripping(where: str, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """Give the port of a service of which one part drips: status, headers, body or nothing."""
    service = _Service(where)
    if tls is not None:
        service.socket = tls.wrap_socket(service.socket, server_side=True)
    thread = Thread(target=service.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield service.server_port
    finally:
        service.over.set()
        service.shutdown()
        thread.join()
        service.server_close()


def certified(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the context of a server on this machine, and that of who trusts it."""
    if shutil.which("openssl") is None:
        ci_or_skip("a certificate", "apt-get install -y --no-install-recommends openssl")
    certificate, key = folder / "server.crt", folder / "server.key"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    subprocess.run([*command.split(), *names, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    return server, ssl.create_default_context(cafile=str(certificate))
