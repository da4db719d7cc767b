"""A proxy in front of a good catalog that does one thing wrong: what the kit must find."""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import urlsplit
from urllib.request import url2pathname

Json = dict[str, Any]
KEY = "idempotency-key"
KNOWN = {
    *("assert-create", "assert-table-uuid", "assert-ref-snapshot-id", "assert-last-assigned-field-id"),
    *("assert-current-schema-id", "assert-last-assigned-partition-id", "assert-default-spec-id"),
    "assert-default-sort-order-id",
}
HOP = {"connection", "transfer-encoding", "content-length", "date", "server", "keep-alive"}
"""Headers of one connection: they are not passed on."""


@dataclass(frozen=True)
class Asked:
    """A request on its way to the catalog."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    line: socket.socket

    @property
    def commits(self) -> bool:
        """Whether it commits several tables."""
        return self.method == "POST" and self.path.endswith("/transactions/commit")

    @property
    def loads(self) -> bool:
        """Whether it loads a table."""
        return self.method == "GET" and "/tables/" in self.path

    @property
    def changes(self) -> list[Json]:
        """The changes of a commit."""
        return list(self.body["table-changes"])

    def of(self, changes: Sequence[Json]) -> Asked:
        """Return the same commit of other changes."""
        return replace(self, body={"table-changes": list(changes)})

    def without_key(self) -> Asked:
        """Return the same request without its key."""
        return replace(self, headers={name: value for name, value in self.headers.items() if name != KEY})

    def without(self, *kinds: str) -> Asked:
        """Return the same commit without some kinds of requirements."""
        return self.of([{**each, "requirements": _left(each, kinds)} for each in self.changes])

    def alone(self, change: Json) -> Asked:
        """Return the commit of one change by itself, as a client of one table sends it."""
        return replace(self.without_key(), path=self._path(change), body=change)

    def load(self, change: Json) -> Asked:
        """Return the load of the table that a change names."""
        return replace(self, method="GET", path=self._path(change), body=None)

    def gone(self) -> bool:
        """Return whether the client has closed the connection."""
        return bool(select.select([self.line], [], [], 0)[0]) and not self.line.recv(1, socket.MSG_PEEK)

    def _path(self, change: Json) -> str:
        place = change["identifier"]
        return self.path.replace("transactions/commit", f"namespaces/{place['namespace'][0]}/tables/{place['name']}")


def _left(change: Json, kinds: Sequence[str]) -> list[Json]:
    return [each for each in change["requirements"] if each["type"] not in kinds]


@dataclass(frozen=True)
class Told:
    """An answer on its way to the client."""

    status: int
    headers: dict[str, str]
    body: bytes = b""

    @property
    def parsed(self) -> Any:
        """The answer's JSON."""
        return json.loads(self.body)


DONE = Told(204, {})


def failure(status: int) -> Told:
    """Return an answer that says that something went wrong."""
    told = {"error": {"message": "told by the proxy", "type": "CommitFailedException", "code": status}}
    return Told(status, {"content-type": "application/json"}, json.dumps(told).encode())


class Defect:
    """No defect: everything is passed on."""

    found_by: ClassVar[Sequence[str]] = ()

    def __init__(self, url: str) -> None:
        self._host = urlsplit(url)
        self.lock = threading.Lock()

    def answer(self, asked: Asked) -> Told:
        """Answer a request."""
        return self.commit(asked) if asked.commits else self.load(asked) if asked.loads else self.send(asked)

    def commit(self, asked: Asked) -> Told:
        """Answer a commit of several tables."""
        return self.send(asked)

    def load(self, asked: Asked) -> Told:
        """Answer the load of a table."""
        return self.send(asked)

    def send(self, asked: Asked) -> Told:
        """Ask the catalog."""
        line = HTTPConnection(self._host.hostname or "", self._host.port, timeout=20)
        try:
            content = None if asked.body is None else json.dumps(asked.body).encode()
            line.request(asked.method, self._host.path.rstrip("/") + asked.path, content, asked.headers)
            answer = line.getresponse()
            headers = {name.lower(): value for name, value in answer.getheaders() if name.lower() not in HOP}
            return Told(answer.status, headers, answer.read())
        finally:
            line.close()

    def one_by_one(self, asked: Asked) -> Told:
        """Commit each table by itself until one is refused."""
        for change in asked.changes:
            told = self.send(asked.alone(change))
            if told.status >= 300:
                return told
        return DONE


class TableByTable(Defect):
    """It commits one table after the other."""

    found_by = ("torn-read", "partial-commit")

    def commit(self, asked: Asked) -> Told:
        return self.one_by_one(asked)


class OneCommitAtATime(Defect):
    """It lets one commit in at a time, and commits one table after the other: readers are not kept out."""

    found_by = ("torn-read",)

    def commit(self, asked: Asked) -> Told:
        with self.lock:
            return self.one_by_one(asked)


class SkipsRequirements(Defect):
    """It applies changes whatever they require."""

    found_by = ("same-base", "zombie-commit", "partial-commit")

    def commit(self, asked: Asked) -> Told:
        return self.send(asked.without(*KNOWN - {"assert-create"}))


class AnswersWithoutDoing(Defect):
    """It says that a commit is done, and does nothing."""

    found_by = ("torn-read", "idempotent-retry", "opposite-orders")

    def commit(self, asked: Asked) -> Told:
        return DONE


class AppliesRepeats(Defect):
    """It does a request again that is repeated with its key."""

    found_by = ("idempotent-retry", "unknown-outcome")

    def commit(self, asked: Asked) -> Told:
        return self.send(asked.without_key())


class TakesOtherBodies(Defect):
    """It answers another request under a key as it answered the first one."""

    found_by = ("idempotent-retry",)

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._done: dict[str, Told] = {}

    def commit(self, asked: Asked) -> Told:
        key = asked.headers.get(KEY)
        if key is None:
            return self.send(asked)
        with self.lock:
            if key not in self._done:
                self._done[key] = self.send(asked)
            return self._done[key]


class StaleLoad(Defect):
    """It answers some loads as it answered the load of the same table before."""

    found_by = ("torn-read",)

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._before: dict[str, Told] = {}
        self._count = Counter[str]()

    def load(self, asked: Asked) -> Told:
        told, before = self.send(asked), self._before.get(asked.path)
        if told.status != 200:
            return told
        with self.lock:
            self._before[asked.path] = told
            self._count[asked.path] += 1
            return before if before and self._count[asked.path] % 3 == 0 else told


class NeverModified(Defect):
    """It says that no table has changed to who asks by ETag."""

    found_by = ("torn-read",)

    def load(self, asked: Asked) -> Told:
        if "if-none-match" in asked.headers:
            return Told(304, {})
        told = self.send(asked)
        return replace(told, headers={"etag": 'W/"1"', **told.headers})


class DropsOneChange(Defect):
    """It forgets the last of several changes."""

    found_by = ("torn-read", "same-base", "create-with-change")

    def commit(self, asked: Asked) -> Told:
        return self.send(asked.of(asked.changes[:-1] if len(asked.changes) > 1 else asked.changes))


class SwallowsConflicts(Defect):
    """It answers a conflict with success."""

    found_by = ("partial-commit", "same-base", "zombie-commit")

    def commit(self, asked: Asked) -> Told:
        told = self.send(asked)
        return DONE if told.status == 409 else told


class RetriesWithoutRequirements(Defect):
    """It repeats what conflicts without what it requires."""

    found_by = ("opposite-orders", "same-base")

    def commit(self, asked: Asked) -> Told:
        told = self.send(asked)
        return self.send(asked.without(*KNOWN)) if told.status == 409 else told


class RefusesWhatIsDone(Defect):
    """It answers a commit that is done with a conflict."""

    found_by = ("same-base", "opposite-orders")

    def commit(self, asked: Asked) -> Told:
        told = self.send(asked)
        return failure(409) if told.status < 300 else told


class FailsInsteadOfRefusing(Defect):
    """It answers a conflict as a failure of the server, after which no client knows what happened."""

    found_by = ("partial-commit", "zombie-commit")

    def commit(self, asked: Asked) -> Told:
        told = self.send(asked)
        return failure(500) if told.status == 409 else told


class DeletesOldMetadata(Defect):
    """It deletes the metadata file that a commit replaces at once."""

    found_by = ("metadata-kept",)

    def commit(self, asked: Asked) -> Told:
        with self.lock:
            before = [self.send(asked.load(change)) for change in asked.changes]
            told = self.send(asked)
        if told.status < 300:
            for each in before:
                delete(each.parsed["metadata-location"])
        return told


class CleansUpTheWinner(Defect):
    """After a conflict it deletes the manifest list that the table has now."""

    found_by = ("metadata-kept",)

    def commit(self, asked: Asked) -> Told:
        told = self.send(asked)
        if told.status == 409:
            for metadata in (self.send(asked.load(change)).parsed["metadata"] for change in asked.changes):
                for snapshot in metadata.get("snapshots") or ():
                    if snapshot["snapshot-id"] == metadata["current-snapshot-id"]:
                        delete(snapshot["manifest-list"])
        return told


class StopsWithTheClient(Defect):
    """It stops in the middle of a commit when the client is gone."""

    found_by = ("unknown-outcome",)

    def commit(self, asked: Asked) -> Told:
        for change in asked.changes:
            told = self.send(asked.alone(change))
            if told.status >= 300:
                return told
            time.sleep(0.03)
            if asked.gone():
                return failure(503)
        return DONE


class CreatesFirst(Defect):
    """It creates tables by themselves before the rest of a commit."""

    found_by = ("create-with-change",)

    def commit(self, asked: Asked) -> Told:
        new = [each for each in asked.changes if each["requirements"] and not _left(each, ["assert-create"])]
        for change in new:
            told = self.send(asked.alone(change))
            if told.status >= 300:
                return told
        return self.send(asked.of([each for each in asked.changes if each not in new])) if new else self.send(asked)


class IgnoresUnknownRequirements(Defect):
    """It takes a requirement that it does not know for fulfilled."""

    found_by = ("unknown-requirement",)

    def commit(self, asked: Asked) -> Told:
        unknown = {each["type"] for change in asked.changes for each in change["requirements"]} - KNOWN
        return self.send(asked.without(*unknown))


class ForgetsUuids(Defect):
    """It does not notice that a table was dropped and created again."""

    found_by = ("zombie-commit",)

    def commit(self, asked: Asked) -> Told:
        return self.send(asked.without("assert-table-uuid"))


class ForgetsSnapshots(Defect):
    """It does not look at the snapshot that a change requires."""

    found_by = ("zombie-commit",)

    def commit(self, asked: Asked) -> Told:
        return self.send(asked.without("assert-ref-snapshot-id"))


class LastOfOneTable(Defect):
    """Of several changes of one table it applies the last."""

    found_by = ("table-twice",)

    def commit(self, asked: Asked) -> Told:
        return self.send(asked.of(list({each["identifier"]["name"]: each for each in asked.changes}.values())))


class LocksInOrder(Defect):
    """It locks the tables of a commit in the order of the request, and waits."""

    found_by = ("opposite-orders",)

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._locks: dict[str, threading.Lock] = defaultdict(threading.Lock)

    def commit(self, asked: Asked) -> Told:
        held = list[threading.Lock]()
        try:
            for change in asked.changes:
                lock = self._locks[change["identifier"]["name"]]
                if not lock.acquire(timeout=6):
                    return failure(503)
                held.append(lock)
                time.sleep(0.02)
            return self.send(asked)
        finally:
            for lock in held:
                lock.release()


class FailsOnNothing(Defect):
    """It fails on a commit of no changes."""

    found_by = ("empty-request",)

    def commit(self, asked: Asked) -> Told:
        return self.send(asked) if asked.changes else failure(500)


DEFECTS = sorted(Defect.__subclasses__(), key=lambda kind: kind.__name__)


def delete(location: str) -> None:
    """Delete a file of a table."""
    from pathlib import Path

    Path(url2pathname(urlsplit(location).path)).unlink(missing_ok=True)


class Passing(BaseHTTPRequestHandler):
    """Passes requests on through a defect."""

    protocol_version, disable_nagle_algorithm = "HTTP/1.1", True
    defect: Defect

    def answer(self) -> None:
        """Read a request, and answer it."""
        content = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items() if name.lower() not in {*HOP, "host"}}
        asked = Asked(self.command, self.path, headers, json.loads(content) if content else None, self.connection)
        told = self.defect.answer(asked)
        with suppress(OSError):  # the client is gone
            self.send_response(told.status)
            for name, value in told.headers.items():
                self.send_header(name, value)
            if told.status not in (204, 304):
                self.send_header("content-length", str(len(told.body)))
            self.end_headers()
            self.wfile.write(told.body)

    do_GET = do_POST = do_DELETE = do_HEAD = answer

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


class Passage(ThreadingHTTPServer):
    """The proxy's server; a client that is cut off is no error."""

    daemon_threads, request_queue_size = True, 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that is gone."""


@contextmanager
def through(defect: Defect) -> Iterator[str]:
    """Give the URL of a proxy with a defect."""
    server = Passage(("127.0.0.1", 0), type("Handler", (Passing,), {"defect": defect}))
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        serving.join()
