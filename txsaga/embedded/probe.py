"""
Whether the server of a home is alive, and whether it is ours: by its processes, and by its own answer.

A pid or an open port proves nothing. After kill -9 or a container restart the pid in `postmaster.pid` may be a zombie's
or another program's. A server process is recognised by its name and its working directory. This module must not signal
any other process. Without /proc (macOS) it sees none and reports that; the life lock then decides alone.

A stranger may listen on the port. So this module connects and compares the data folder. It must not reveal the password
to a stranger: only a scram exchange is accepted.
"""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Any

import psycopg
import psycopg.sql

from txsaga.embedded.account import Account
from txsaga.embedded.error_messages import complaint, serious_line
from txsaga.embedded.home import USER, Secret, ServerHome
from txsaga.errors import EmbeddedDatabaseError

# A postmaster that starts or ends has no pid file for some milliseconds; that is no orphan yet.
_GRACE = 0.3
PROC = Path("/proc")
_LIST = """
for process in /proc/[0-9]*; do
  read -r name < "$process/comm" && [ "$name" = postgres ] && [ "$process/cwd" -ef "$1" ] &&
    echo "${process##*/}"
done 2>/dev/null
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PidFile:
    """What `postmaster.pid` claims."""

    pid: int
    port: int | None
    ready: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes:
    """The server processes of one data folder, as far as they can be seen."""

    everyone: frozenset[int]
    postmaster: int | None
    port: int | None


def create_database(connection: psycopg.Connection[Any], name: str) -> None:
    """Create a database on the server of a connection that commits by itself, unless it exists."""
    if not connection.execute("select from pg_database where datname = %s", [name]).rowcount:
        with suppress(psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation):  # another process was first
            connection.execute(psycopg.sql.SQL("create database {}").format(psycopg.sql.Identifier(name)))


def pid_file(data: Path) -> Path:
    """Return the path of the postmaster's pid file."""
    return data / "postmaster.pid"


def read_pid_file(data: Path) -> PidFile | None:
    """Read the pid file; return None if it is absent or unfinished."""
    try:
        lines = pid_file(data).read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return None
    if not lines or not lines[0].strip().isdigit():
        return None
    port = lines[3].strip() if len(lines) > 3 else ""
    ready = len(lines) > 7 and lines[7].strip() == "ready"
    return PidFile(pid=int(lines[0]), port=int(port) if port.isdigit() else None, ready=ready)


def can_look() -> bool:
    """Return whether this system shows where processes work."""
    return (PROC / "self" / "cwd").exists()


def working_in(data: Path, account: Account) -> Processes:
    """List the server processes whose working directory is `data`."""
    claim = read_pid_file(data)
    visible = can_look()
    everyone = _list(data, account) if visible else frozenset[int]()
    present = claim is not None and (claim.pid in everyone if visible else _exists(claim.pid))
    return Processes(
        everyone=everyone,
        postmaster=claim.pid if claim and present else None,
        port=claim.port if claim and present else None,
    )


@dataclass(slots=True, kw_only=True)
class OrphanWatch:
    """Ends backends whose postmaster is dead: a busy one would run on for minutes."""

    data: Path
    account: Account
    _since: float | None = field(default=None, init=False)

    def look(self) -> Processes:
        """List the processes, and end those that have had no postmaster for a while."""
        found = working_in(self.data, self.account)
        if found.postmaster is not None or not found.everyone:
            self._since = None
            return found
        self._since = self._since or time.monotonic()
        if time.monotonic() - self._since > _GRACE:
            for pid in found.everyone:
                tell(pid, signal.SIGQUIT)
        return found


def tell(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may be gone already."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _list(data: Path, account: Account) -> frozenset[int]:
    # As the account: in a container root may not inspect the processes of others.
    listing = account.run("sh", "-c", _LIST, "sh", data, cwd=Path("/")).stdout
    return frozenset(int(word) for word in listing.split() if word.isdigit())


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


DATABASE = "txsaga"
_QUESTION = (
    "select current_setting('data_directory'), current_setting('server_version'), "
    f"exists (select from pg_database where datname = '{DATABASE}')"
)
_BUSY = re.compile(r"too many clients|remaining connection slots")
_NOT_YET = re.compile(r"the database system is|not yet accepting connections")


class ServerReply(Enum):
    """How a connection attempt was answered."""

    OURS = auto()
    """The server of this home."""
    BUSY = auto()
    """A PostgreSQL whose connections are all taken."""
    REFUSED = auto()
    """A PostgreSQL that refused; `text` has the reason."""
    NOBODY = auto()
    """No server, a stranger, or a server that is starting or stopping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeAnswer:
    """A reply and what came with it."""

    reply: ServerReply
    text: str = ""
    version: str | None = None
    has_database: bool = True

    @property
    def is_ours(self) -> bool:
        """Return whether the server of this home answered."""
        return self.reply is ServerReply.OURS


def connect(secret: Secret, database: str = "postgres") -> psycopg.Connection[tuple[object, ...]]:
    """Open an autocommit connection that the caller's PG* variables can't affect."""
    fixed = (
        "sslmode=disable gssencmode=disable channel_binding=disable target_session_attrs=any "
        "client_encoding=utf8 options=''"
    )
    if psycopg.pq.version() >= 160000:
        # Older client libraries lack it; with them only the comparison of folders detects a stranger.
        fixed += " require_auth=scram-sha-256"
    return psycopg.connect(
        fixed, host="127.0.0.1", hostaddr="127.0.0.1", port=secret.port, dbname=database,
        user=USER, password=secret.password, connect_timeout=2, autocommit=True,
    )  # fmt: skip


def ask(secret: Secret | None, data: Path) -> ProbeAnswer:
    """Try to connect once."""
    if secret is None:
        return ProbeAnswer(reply=ServerReply.NOBODY)
    try:
        with connect(secret) as connection:
            row = connection.execute(_QUESTION).fetchone()
    except psycopg.OperationalError as error:
        return _refusal(str(error))
    assert row is not None
    if not _same_folder(str(row[0]), data):
        return ProbeAnswer(reply=ServerReply.NOBODY)
    return ProbeAnswer(reply=ServerReply.OURS, version=str(row[1]).split()[0], has_database=bool(row[2]))


def _refusal(text: str) -> ProbeAnswer:
    if "FATAL:" not in text or _NOT_YET.search(text):
        return ProbeAnswer(reply=ServerReply.NOBODY, text=text)
    return ProbeAnswer(reply=ServerReply.BUSY if _BUSY.search(text) else ServerReply.REFUSED, text=text)


def _same_folder(claimed: str, data: Path) -> bool:
    try:
        return data.samefile(claimed)
    except OSError:
        return False


def serving(home: ServerHome, account: Account) -> ProbeAnswer | None:
    """Return the answer of a serving server, None while there is none; raise if there never will be."""
    secret = Secret.read(home)
    answer = ask(secret, home.data)
    if answer.is_ours:
        return answer
    if secret is not None and answer.reply is ServerReply.NOBODY:
        return None
    processes = working_in(home.data, account)
    if processes.postmaster is None or (secret is not None and processes.port != secret.port):
        return None
    if answer.reply is ServerReply.BUSY:
        return answer
    raise _never(home, secret, answer)


def _never(home: ServerHome, secret: Secret | None, answer: ProbeAnswer) -> EmbeddedDatabaseError:
    if secret is None:
        return complaint(
            f"{home.pgpass} is missing or damaged while the server runs: "
            "`txsaga db stop`, then `txsaga db start` sets a new password"
        )
    if "password authentication failed" in answer.text:
        return complaint(
            f"the password in {home.pgpass} is not the server's: `txsaga db stop`, delete that file, "
            "then `txsaga db start` sets a new password"
        )
    why = serious_line(answer.text)
    return complaint(f"the server at {home.root} refuses connections ({why}): see {home.log}")
