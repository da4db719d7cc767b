"""A MariaDB server of its own for tests of foreign participants.

Own folder, own port, a password for this run only; runs as `nobody` when the tests run as root. It reads no
configuration of the machine. If `stop` never runs, the leftover check of the session ends the server.
"""

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pymysql

from tests.services.absent import ci_or_skip
from tests.services.free_port import free_port

INSTALL_LINE = "apt-get install -y --no-install-recommends mariadb-server"
START_SECONDS = 60
STOP_SECONDS = 30
SMALL = ("--innodb-log-file-size=8M",)  # 38 MB of data instead of 114


@dataclass(slots=True)
class MariaServer:
    """A running server."""

    folder: Path
    port: int
    password: str
    command: Sequence[str]
    process: subprocess.Popen[bytes]

    def url(self, database: str) -> str:
        """Return the SQLAlchemy URL of a database."""
        return f"mysql+pymysql://root:{self.password}@127.0.0.1:{self.port}/{database}"

    def execute(self, statement: str) -> None:
        """Run one statement outside any database."""
        with self._connect() as connection, connection.cursor() as cursor:
            cursor.execute(statement)

    def await_ready(self) -> None:
        """Return after the first successful call; raise with the server's own words if it ends before."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                return self.execute("SELECT 1")
            except pymysql.err.OperationalError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    log = (self.folder / "run" / "error.log").read_text("utf-8", errors="replace")
                    raise RuntimeError(f"MariaDB did not start:\n{log[-2000:]}") from None
            time.sleep(0.05)

    def restart(self) -> None:
        """Kill the server, as a loss of power would, and start it again where it was."""
        self.process.kill()
        self.process.wait()
        self.process = _run(self.command)
        self.await_ready()

    def stop(self) -> None:
        """End the server and wait until it is gone."""
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _connect(self) -> "pymysql.connections.Connection[pymysql.cursors.Cursor]":
        return pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user="root",
            password=self.password,
            init_command="SET lock_wait_timeout = 30",  # a test that failed may have left its transaction open
        )


@contextmanager
def maria_server() -> Iterator[MariaServer]:
    """Start a server, give it out, stop it and remove its folder."""
    install_db, mariadbd = (found or ci_or_skip("MariaDB", INSTALL_LINE) for found in programs())
    folder = Path(tempfile.mkdtemp(prefix="txsaga-mariadb-"))
    try:
        server = _started(folder, install_db, mariadbd)
        try:
            server.await_ready()
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)


def programs() -> tuple[str | None, str | None]:
    """Find what makes a server's folder, and the server."""
    path = os.environ.get("PATH", os.defpath) + ":/usr/sbin"
    return shutil.which("mariadb-install-db", path=path), shutil.which("mariadbd", path=path)


def _started(folder: Path, install_db: str, mariadbd: str) -> MariaServer:
    account, port, password = _account(), free_port(), secrets.token_urlsafe(16)
    data, run = (_private(folder / name) for name in ("data", "run"))
    common = ("--no-defaults", *account, f"--datadir={data}", *SMALL)
    _check(install_db, *common, "--auth-root-authentication-method=normal", "--skip-test-db")
    words = _secret_words(run / "init.sql", password)
    own = {"port": port, "bind-address": "127.0.0.1", "socket": run / "s", "pid-file": run / "pid"}
    own |= {"log-error": run / "error.log", "init-file": words, "innodb-buffer-pool-size": "64M"}
    command = [mariadbd, *common, *(f"--{name}={value}" for name, value in own.items())]
    return MariaServer(folder=folder, port=port, password=password, command=command, process=_run(command))


def _run(command: Sequence[str]) -> subprocess.Popen[bytes]:
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)


def _account() -> Sequence[str]:
    return ("--user=nobody",) if os.geteuid() == 0 else ()


def _private(path: Path) -> Path:
    """Make a folder that only the server's account enters; it passes through the parent."""
    path.parent.chmod(0o711)
    path.mkdir(mode=0o700)
    return _given(path)


def _secret_words(path: Path, password: str) -> Path:
    path.touch(mode=0o600)
    path.write_text(
        f"ALTER USER root@localhost IDENTIFIED BY '{password}';\n"
        "DELETE FROM mysql.global_priv WHERE User='root' AND Host<>'localhost';\n"
        "FLUSH PRIVILEGES;\n",
        encoding="utf-8",
    )
    return _given(path)


def _given(path: Path) -> Path:
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
    return path


def _check(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed:\n{done.stdout}{done.stderr}")
