"""The embedded PostgreSQL of this account: one server per home, shared by every process that asks.

`ensure()` finds it or starts it; only `stop()` stops it, because schedulers, workers and notebooks
share it. If this process dies, the server keeps running. This module must not lose data: only
`reset()` deletes any, and only after the server is gone.
"""

import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from txsaga.config import PG_BIN, PG_HOME, PG_USER
from txsaga.embedded import probe
from txsaga.embedded.account import Account, home_of_the_caller, server_account
from txsaga.embedded.error_messages import complaint, explained
from txsaga.embedded.home import USER, Secret, ServerHome, database_url
from txsaga.embedded.probe import DATABASE, ProbeAnswer
from txsaga.errors import EmbeddedDatabaseError


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus:
    """What is known about the server now; a stopped one has no pid."""

    running: bool
    home: Path
    pid: int | None = None
    port: int | None = None
    version: str | None = None
    url: str | None = None
    """Without the password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedServer:
    """A PostgreSQL server that lives in one folder."""

    home: Path
    binaries: Path | None = None
    account: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    """Server settings beyond the usual ones, used if this process starts it."""

    def __post_init__(self) -> None:
        """Make the home absolute: the server changes its working directory."""
        object.__setattr__(self, "home", Path(os.path.realpath(self.home)))

    @classmethod
    def from_env(cls, environment: Mapping[str, str]) -> Self:
        """Read TXSAGA_PG_HOME, TXSAGA_PG_BIN and TXSAGA_PG_USER; the default home depends on the account."""
        binaries = PG_BIN.of(environment)
        return cls(
            home=PG_HOME.of(environment) or _default_home(environment),
            binaries=Path(binaries) if binaries else None,
            account=PG_USER.of(environment),
        )

    def ensure(self, *, timeout: float = 90) -> Self:
        """Ensure that the server runs, whichever process started it, with the default database."""
        deadline = time.monotonic() + timeout
        with explained(self.home):
            answer = self._ask()
            if not answer.is_ours:
                answer = self._start(deadline)
            if not answer.has_database:
                self.database(DATABASE)
        return self

    def revive(self, *, timeout: float = 30) -> Self:
        """Start the server again if it was killed; one that was stopped stays stopped."""
        deadline = time.monotonic() + timeout
        with explained(self.home):
            if self._was_killed():
                with self._paths.locked(deadline):
                    if self._was_killed():
                        self._launch(deadline)
        return self

    def stop(self, mode: str = "fast", *, timeout: float = 60) -> None:
        """Stop the server and return when its last process is gone; one killed before counts as stopped."""
        from txsaga.embedded.launch import StopMode  # not above: whoever finds a server running needs none of it

        if mode not in [*StopMode]:
            raise complaint(f"unknown stop mode {mode!r}: use one of {', '.join(StopMode)}")
        with explained(self.home):
            if self.home.exists():
                with self._paths.locked(time.monotonic() + timeout):
                    life = self._halt(mode, timeout)
                    if probe.can_look():
                        probe.pid_file(self._paths.data).unlink(missing_ok=True)
                    os.close(life)

    def reset(self, *, timeout: float = 60) -> None:
        """Stop the server and DELETE ITS DATA; port and password stay. The caller has asked the user."""
        with explained(self.home):
            if self.home.exists():
                with self._paths.locked(time.monotonic() + timeout):
                    life = self._halt("immediate", timeout)
                    try:
                        self._discard()
                    finally:
                        os.close(life)

    def status(self) -> ServerStatus:
        """Return what is known, without starting or changing anything."""
        with explained(self.home):
            secret = Secret.read(self._paths) if self.home.exists() else None
            answer = probe.serving(self._paths, self._account) if self._paths.data.exists() else None
            claim = probe.read_pid_file(self._paths.data) if answer else None
            version = answer.version if answer else None
            return ServerStatus(
                running=answer is not None,
                home=self.home,
                pid=claim.pid if claim else None,
                port=secret.port if secret else None,
                version=version or self._stored_version(),
                url=f"postgresql://{USER}@127.0.0.1:{secret.port}/{DATABASE}" if secret else None,
            )

    def url(self, database: str = DATABASE, driver: str | None = "psycopg", *, socket: bool = False) -> str:
        """Return the URL of `database` for `driver`: jdbc, a SQLAlchemy driver, or None for libpq."""
        with explained(self.home):
            return database_url(self._paths, self._secret(), database, driver=driver, socket=socket)

    def store_url(self) -> str:
        """Return the URL of the store, through the unix socket unless its path is too long for one."""
        try:
            return self.url(socket=True)
        except EmbeddedDatabaseError:
            return self.url()

    def database(self, name: str) -> Self:
        """Create a database unless it exists."""
        with explained(self.home), probe.connect(self._secret()) as connection:
            probe.create_database(connection, name)
        return self

    def _start(self, deadline: float) -> ProbeAnswer:
        self._paths.create(self._account.home_mode)
        with self._paths.locked(deadline) as waited:
            if waited and (answer := self._ask()).is_ours:
                return answer
            return self._launch(deadline)

    def _launch(self, deadline: float) -> ProbeAnswer:
        from txsaga.embedded.binaries import find_binaries, reachable
        from txsaga.embedded.launch import Launch, major_of

        account = self._account
        if not account.reaches(self.home):
            raise complaint(
                f"account {account.name}, which runs PostgreSQL, can't enter {self.home}: choose a "
                "TXSAGA_PG_HOME whose parent folders are open to others, such as /var/lib/txsaga/pg"
            )
        found = find_binaries(wanted=self.binaries, major=major_of(self._paths.data))
        launch = Launch(
            home=self._paths,
            account=account,
            binaries=reachable(found, account, self._paths.copies),
            settings=self.settings,
            deadline=deadline,
        )
        return launch.start()

    def _was_killed(self) -> bool:
        """Return whether the server was killed: one that is stopped removes its pid file."""
        data = self._paths.data
        return probe.read_pid_file(data) is not None and probe.working_in(data, self._account).postmaster is None

    def _halt(self, mode: str, timeout: float) -> int:
        from txsaga.embedded.launch import StopMode, halt

        return halt(self._paths, self._account, StopMode(mode), deadline=time.monotonic() + timeout)

    def _discard(self) -> None:
        data, discarded = self._paths.data, self._paths.discarded
        if not (self._paths.pgpass.exists() or (data / "PG_VERSION").exists()):
            raise complaint(f"{data} was not made by txsaga: nothing was deleted, see to it by hand")
        # Renamed first: a deletion that is cut short must not look like a damaged data folder.
        shutil.rmtree(discarded, ignore_errors=True)
        if data.exists():
            data.rename(discarded)
            shutil.rmtree(discarded)
        self._paths.log.unlink(missing_ok=True)

    def _ask(self) -> ProbeAnswer:
        return probe.ask(Secret.read(self._paths), self._paths.data)

    def _secret(self) -> Secret:
        secret = Secret.read(self._paths)
        if secret is None:
            raise complaint(f"there is no embedded database in {self.home} yet: run `txsaga db start`")
        return secret

    def _stored_version(self) -> str | None:
        try:
            return (self._paths.data / "PG_VERSION").read_text(errors="replace").strip()
        except FileNotFoundError:
            return None

    @property
    def _paths(self) -> ServerHome:
        return ServerHome(self.home)

    @property
    def _account(self) -> Account:
        return server_account(wanted=self.account, data=self._paths.data)


def _default_home(environment: Mapping[str, str]) -> Path:
    if os.geteuid() == 0:
        return Path("/var/lib/txsaga/pg")
    folder = environment.get("XDG_DATA_HOME")
    own = environment.get("HOME") or home_of_the_caller()
    return (Path(folder) if folder else Path(own) / ".local" / "share") / "txsaga" / "pg"
