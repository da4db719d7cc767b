"""The embedded PostgreSQL for tests that need a real server.

It runs in a temporary home of its own, on a port of its own, with fsync on as for users. If the block is
left by an error it is stopped all the same; if it is never left, the leftover check of the session ends it.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import sql
from sqlalchemy import make_url

from txsaga.embedded.launch import StopMode
from txsaga.embedded.server import EmbeddedServer


def removed(folder: Path) -> None:
    """Remove a folder, however much of it is there."""
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def temporary_home(owner: int | None = None, leave: Callable[[Path], None] = removed) -> Iterator[Path]:
    """Give a folder that the server's account may pass through; what runs in it is stopped, then it goes."""
    # Not pytest's tmp_path: that is 0700, and under root the server runs as another account.
    folder = Path(tempfile.mkdtemp(prefix="txsaga-pg-"))
    folder.chmod(0o711)
    if owner is not None:
        os.chown(folder, owner, -1)
    try:
        yield folder
    finally:
        try:
            for life in [*folder.glob("life"), *folder.glob("*/life")]:
                EmbeddedServer(home=life.parent).stop(StopMode.IMMEDIATE)
        finally:
            leave(folder)


@contextmanager
def embedded_server(
    settings: Mapping[str, str] | None = None, *, leave: Callable[[Path], None] = removed
) -> Iterator[EmbeddedServer]:
    """Give a running server of one's own; `settings` are PostgreSQL's, `leave` takes the folder of one that stopped."""
    with temporary_home(leave=leave) as home:
        yield EmbeddedServer(home=home, settings=settings or {}).ensure()


def stretch_password(server: EmbeddedServer, iterations: int) -> None:
    """Store the password anew, stretched so often; a login takes as long."""
    url = make_url(server.url("postgres"))
    with psycopg.connect(url.set(drivername="postgresql").render_as_string(False), autocommit=True) as connection:
        connection.execute(sql.SQL("SET scram_iterations = {}").format(iterations))
        connection.execute(sql.SQL("ALTER ROLE CURRENT_USER PASSWORD {}").format(url.password))
