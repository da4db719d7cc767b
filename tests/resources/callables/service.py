"""
A service with a till: it keeps what is reserved and taken in a folder, so that it may be killed at any time.

    python -m tests.resources.callables.service FOLDER PORT SECRET     prints a line once it listens
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from txsaga.errors import SignatureRefused
from txsaga.resources.http import CallPhase, SignedCall, verify

SECRET = "a secret of the tests, long enough"


class Till(ThreadingHTTPServer):
    """The service of one folder."""

    daemon_threads = True

    def __init__(self, folder: Path, port: int = 0, secret: str = SECRET) -> None:
        super().__init__(("127.0.0.1", port), Desk)
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.secret = folder, secret
        self.answers: list[int] = []  # what the next calls are answered with, whatever they ask
        self.padding = ""  # behind each answer
        self.seen: list[SignedCall] = []
        self.headers: list[dict[str, str]] = []

    def items(self) -> set[int]:
        """Return the items that are taken."""
        return {int(path.read_text()) for path in self.folder.glob("*.taken")}

    def answer(self, called: SignedCall, item: int) -> int:
        """Do what is asked; return a status."""
        reserved, taken, cancelled = (
            self.folder / f"{called.id}.{state}" for state in ("reserved", "taken", "cancelled")
        )
        match called.phase:
            case CallPhase.TRY if not cancelled.exists():
                reserved.write_text(str(item))
                return 200
            case CallPhase.TRY:
                return 409
            case CallPhase.CONFIRM:
                if reserved.exists():
                    reserved.rename(taken)
                return 200 if taken.exists() else 404
            case _:
                cancelled.touch()
                reserved.unlink(missing_ok=True)
                return 200


class Desk(BaseHTTPRequestHandler):
    """Answers one call."""

    server: Till

    def do_POST(self) -> None:
        """Verify, do, answer."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.headers.append(dict(self.headers.items()))
        try:
            called = verify(dict(self.headers.items()), body, self.server.secret, path=self.path)
        except SignatureRefused as refused:
            return self._answer(401, str(refused))
        self.server.seen.append(called)
        forced = self.server.answers.pop(0) if self.server.answers else None
        status = forced or self.server.answer(called, json.loads(body)["item"])
        return self._answer(status, json.dumps({"did": called.phase}) + self.server.padding)

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


if __name__ == "__main__":
    with Till(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]) as till:
        print("listens", flush=True)
        till.serve_forever()
