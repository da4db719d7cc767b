"""The folder of one embedded server: its layout and its permissions.

    home/             0711 when root starts the server (its account passes through), else 0700
      pgpass          0600, of the caller: port and password, all that a client needs
      lock            flocked by the process that starts, stops or resets
      life            flocked by every server process until the last one is gone
      data/ sock/ log  0700/0700/0600, of the server account
      pg/             a copy of the binaries, if that account can't reach the originals

This module must not change a folder that existed before, least of all one above the home.
If a process dies between two lines here, `data.new`, `data.gone` and `*.new` files stay; they hold
nothing that is needed, and the next start or reset removes them.
"""

import fcntl
import os
import re
import secrets
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import quote

from txsaga.embedded.error_messages import complaint


class ServerHome:
    """The paths inside one home."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / "data"
        self.unborn = root / "data.new"  # where a data folder is created before it is renamed into place
        self.discarded = root / "data.gone"  # where one is moved before it is deleted
        self.sockets = root / "sock"
        self.log = root / "log"
        self.pgpass = root / "pgpass"  # port and password, in the format of libpq and JDBC
        self.lock = root / "lock"
        self.life = root / "life"
        self.copies = root / "pg"

    @contextmanager
    def locked(self, deadline: float) -> Iterator[bool]:
        """Hold `lock`, to start, stop or reset; yield whether another process held it first."""
        descriptor = _open(self.lock)
        waited = False
        try:
            while not _flock(descriptor):
                waited = True
                if time.monotonic() > deadline:
                    raise complaint(
                        f"another process starts or stops the server for too long: see which one holds {self.lock}"
                    )
                time.sleep(_PAUSE)
            try:
                yield waited
            finally:
                # Explicitly: a child forked meanwhile shares the open file and would keep the lock.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)

    def take_life(self) -> int | None:
        """Return `life`, open and locked, for server processes to inherit, or None while any of them runs."""
        descriptor = _open(self.life)
        if _flock(descriptor):
            return descriptor
        os.close(descriptor)
        return None

    def is_over(self) -> bool:
        """Return whether no server process holds `life`."""
        if (descriptor := self.take_life()) is not None:
            os.close(descriptor)
        return descriptor is not None

    def create(self, mode: int) -> None:
        """Create the home and the folders missing above it, with `mode` under any umask."""
        missing = [folder for folder in (self.root, *self.root.parents) if not folder.exists()]
        for folder in reversed(missing):
            _make_folder(folder, mode)

    def write_private(self, name: str, text: str) -> Path:
        """Write a new 0600 file durably, replacing a leftover of that name."""
        path = self.root / name
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        return path

    def sync(self) -> None:
        """Make renames inside the home durable."""
        descriptor = os.open(self.root, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


_PAUSE = 0.02


def _open(path: Path) -> int:
    # 0600: no other account may flock it and block every start.
    return os.open(path, os.O_CREAT | os.O_RDWR, 0o600)


def _flock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _make_folder(folder: Path, mode: int) -> None:
    # By rename, so that a racing process never sees the folder before it has its mode.
    try:
        fresh = Path(tempfile.mkdtemp(prefix=".txsaga-", dir=folder.parent))
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder)) from error
    try:
        fresh.chmod(mode)
        fresh.rename(folder)
    except OSError:
        fresh.rmdir()
        if not folder.is_dir():
            raise


USER = "txsaga"
_LINE = re.compile(rf"\*:(\d+):\*:{USER}:([\w-]+)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """The port of the server and its password."""

    port: int
    password: str = field(repr=False)

    @classmethod
    def new(cls, port: int) -> Self:
        """Generate a password of 256 random bits."""
        return cls(port=port, password=secrets.token_urlsafe(32))

    @classmethod
    def read(cls, home: ServerHome) -> Self | None:
        """Read the file; return None if it is absent or garbled."""
        try:
            found = _LINE.fullmatch(home.pgpass.read_text(errors="replace"))
        except FileNotFoundError:
            return None
        return cls(port=int(found[1]), password=found[2]) if found else None

    def write(self, home: ServerHome) -> None:
        """Replace the file atomically."""
        fresh = home.write_private("pgpass.new", f"*:{self.port}:*:{USER}:{self.password}\n")
        fresh.replace(home.pgpass)
        home.sync()


def database_url(home: ServerHome, secret: Secret, database: str, *, driver: str | None, socket: bool) -> str:
    """Build the URL for `driver`: jdbc, a SQLAlchemy driver, or None for libpq."""
    name = quote(database, safe="")
    if driver == "jdbc":
        if socket:
            raise complaint("JDBC can't connect through a unix socket: leave socket out")
        return f"jdbc:postgresql://127.0.0.1:{secret.port}/{name}"
    scheme = f"postgresql+{driver}" if driver else "postgresql"
    if not socket:
        return f"{scheme}://{USER}:{secret.password}@127.0.0.1:{secret.port}/{name}"
    folder = home.sockets
    if not (folder / f".s.PGSQL.{secret.port}").exists():
        raise complaint(
            f"there is no socket in {folder}: start the server, or use TCP "
            "(the path may be too long for a socket, or hold a comma)"
        )
    return f"{scheme}://{USER}:{secret.password}@/{name}?host={quote(str(folder), safe='')}&port={secret.port}"
