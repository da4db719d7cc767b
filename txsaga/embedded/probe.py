"""Ask the server itself whether it is alive, and whether it is ours.

A pid or an open port proves nothing: a stranger may listen there. So this module connects and compares the
data folder. It must not reveal the password to a stranger: only a scram exchange is accepted.
"""

import re
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

import psycopg

from txsaga.embedded.account import Account
from txsaga.embedded.complaint import complaint, serious_line
from txsaga.embedded.home import USER, Secret, ServerHome
from txsaga.embedded.processes import working_in
from txsaga.errors import EmbeddedDatabaseError

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
    return complaint(f"the server at {home.root} refuses connections ({why}): look at {home.log}")
