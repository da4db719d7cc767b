"""
Start and stop the server of a home, under its two locks.

`lock` serialises starting, stopping and resetting; the caller holds it. Every server process inherits `life`, so it is
free exactly when the last one is gone; only its holder may touch the data folder. `life` must not be unlocked after a
successful start: the open file is shared with the server. If a holder is killed, the kernel frees `lock`; `life` stays
with the server processes.

States: a server answers (join it) → server processes run without answering (wait: the server recovers, or they are
orphans, which are ended) → no process runs (hold `life`, clean up, start). `life` is authoritative; `postmaster.pid`
never is. A starter that is killed at any line leaves either nothing, or a server that the next starter waits for and
joins.

This module must not change data: every refusal and every failed start leaves the folder as it was. It never creates a
data folder over one that holds anything, and never deletes one. The programs it runs inherit `life`, so the next
starter waits for one that outlives a killed starter. If a starter dies while it creates a folder, `data.new` is left,
never an incomplete `data`.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from txsaga.embedded.account import Account
from txsaga.embedded.binaries import Binaries
from txsaga.embedded.error_messages import complaint, disk_full, disk_full_complaint, serious_line
from txsaga.embedded.home import USER, Secret, ServerHome
from txsaga.embedded.probe import OrphanWatch, ProbeAnswer, Processes, can_look, pid_file, read_pid_file, serving, tell
from txsaga.errors import DataFolderDamaged, EmbeddedDatabaseError

PORTS = range(27000, 28000)


def is_free(port: int) -> bool:
    """Return whether a server could listen on `port` now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """Find a free port, at random so that two homes seldom meet."""
    for port in random.sample(PORTS, len(PORTS)):
        if is_free(port):
            return port
    raise complaint(f"no port from {PORTS[0]} to {PORTS[-1]} is free on 127.0.0.1: stop a process that listens there")


SETTINGS: Mapping[str, str] = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "max_prepared_transactions": "200",
    "shared_buffers": "64MB",
    "max_wal_size": "512MB",
    "jit": "off",
    # One syncfs instead of an fsync per file: recovery after kill -9 takes 0.3 s instead of seconds.
    **({"recovery_init_sync_method": "syncfs"} if sys.platform == "linux" else {}),
}
# What another try may solve: the port was taken meanwhile, or a dead server's memory is still attached.
_PASSING = re.compile(r"could not bind|create any TCP/IP|pre-existing shared memory|lock file .* already exists")
_TRIES = 2
_PAUSE = 0.02
_LOG_LIMIT = 16 * 1024 * 1024
_SOCKET_PATH_LIMIT = 103
# The command is in arguments, so no path can break out of the shell. The shell exits at once, so the
# server is no child of the caller, whose clean-up leaves it alone.
_DETACH = 'log=$1; shift; "$@" </dev/null >>"$log" 2>&1 &'


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One attempt to get a running server before `deadline`."""

    home: ServerHome
    account: Account
    binaries: Binaries
    settings: Mapping[str, str]
    deadline: float

    def start(self) -> ProbeAnswer:
        """Return the first answer of the server, whichever process started it."""
        self._check_owner()
        failures = 0
        while True:
            found = self._serving_or_gone()
            if isinstance(found, ProbeAnswer):
                return found
            before, output = self._spawn(found)
            if (answer := self._wait_until_ready()) is not None:
                return answer
            output += self._log_since(before)
            failures += not _PASSING.search(output)
            if failures == _TRIES or self._is_late():
                advice = f"; see {self.home.log}; no data was changed"
                raise self._failure(f"PostgreSQL did not start in {self.home.root}", output, advice)
            time.sleep(_PAUSE)

    def _serving_or_gone(self) -> ProbeAnswer | int:
        """Wait for a server that answers, or until none is left; then return the held life lock."""
        watch = OrphanWatch(data=self.home.data, account=self.account)
        while True:
            processes = watch.look()
            descriptor = None if processes.everyone else self.home.take_life()
            if descriptor is not None:
                return descriptor
            if (answer := serving(self.home, self.account)) is not None:
                return answer
            # Checked twice: a server of ours that just ended also leaves the lock free.
            if processes.postmaster and self.home.is_over() and watch.look().postmaster:
                raise complaint(
                    f"a server that txsaga did not start works in {self.home.data} "
                    f"(pid {processes.postmaster}): `txsaga db stop`, then start again"
                )
            if self._is_late():
                raise self._stuck(seen=bool(processes.everyone))
            time.sleep(_PAUSE)

    def _spawn(self, life: int) -> tuple[int, str]:
        """Start a server that inherits `life`; return where its log begins and the shell's output."""
        try:
            self._prepare(life)
            secret = self._usable_secret(life)
            before = self._ready_log()
            started = self.account.run(
                "sh", "-c", _DETACH, "sh", self.home.log,
                self.binaries.postgres, "-D", self.home.data, *self._options(secret),
                cwd=self.home.root, keep=[life],
            )  # fmt: skip
            return before, started.stdout
        finally:
            os.close(life)

    def _prepare(self, life: int) -> None:
        """Create missing folders and clean up after a dead server."""
        if major_of(self.home.data) is None:
            secret = Secret.read(self.home) or Secret.new(free_port())
            secret.write(self.home)
            self._create(secret, life)
        self.home.sockets.mkdir(0o700, exist_ok=True)
        self.account.give(self.home.sockets)
        if can_look():
            self._clear_leftovers()

    def _usable_secret(self, life: int) -> Secret:
        secret = Secret.read(self.home)
        if secret is None:
            secret = Secret.new(free_port())
            self._set_password(secret, life)
            secret.write(self.home)
        elif not is_free(secret.port):
            secret = replace(secret, port=free_port())
            secret.write(self.home)
        return secret

    def _check_owner(self) -> None:
        """Refuse a data folder that belongs to another account, before PostgreSQL does."""
        data, name = self.home.data, self.account.name
        if not data.exists():
            return
        owner = data.stat().st_uid
        if owner == 0:
            raise complaint(
                f"{data} belongs to root, and PostgreSQL refuses that: "
                "chown -R it to the account that is to run the server"
            )
        if owner != self.account.user:
            raise complaint(
                f"{data} does not belong to {name}, the account of the server: "
                f"chown -R {name} {data}, or set TXSAGA_PG_USER to its owner"
            )

    def _create(self, secret: Secret, life: int) -> None:
        """Create the data folder under another name and rename it when it is complete."""
        unborn = self.home.unborn
        for leftover in (unborn, self.home.discarded):
            shutil.rmtree(leftover, ignore_errors=True)
        unborn.mkdir(0o700)
        try:
            self._initdb(secret, self.account.give(unborn), life)
            unborn.rename(self.home.data)
            self.home.sync()
        finally:
            shutil.rmtree(unborn, ignore_errors=True)

    def _initdb(self, secret: Secret, folder: Path, life: int) -> None:
        password = self.account.give(self.home.write_private("pw.new", secret.password))
        # The password is 256 random bits and needs no stretching, but some drivers (Go's pq, JDBC) refuse to
        # log in below 4096 iterations, which is the default.
        try:
            done = self.account.run(
                self.binaries.initdb, "-A", "scram-sha-256", f"--pwfile={password}", "-U", USER,
                "-E", "UTF8", "--no-locale", "-D", folder, cwd=self.home.root, keep=[life],
            )  # fmt: skip
        finally:
            password.unlink(missing_ok=True)
        if done.returncode:
            raise self._failure(f"initdb failed in {self.home.root}", done.stdout)

    def _set_password(self, secret: Secret, life: int) -> None:
        """Set a new password in a stopped server, if the file with the old one was lost."""
        done = self.account.run(
            self.binaries.postgres, "--single", "-D", self.home.data, *self._options(secret), "postgres",
            cwd=self.home.root, text=f"ALTER ROLE {USER} PASSWORD '{secret.password}'\n", keep=[life],
        )  # fmt: skip
        if done.returncode or "ERROR" in done.stdout:
            raise self._failure(f"setting a new password failed in {self.home.root}", done.stdout)

    def _clear_leftovers(self) -> None:
        """Delete the files of a dead server; the pid in them may now be a zombie's or another program's."""
        pid_file(self.home.data).unlink(missing_ok=True)
        for leftover in self.home.sockets.iterdir():
            leftover.unlink(missing_ok=True)

    def _options(self, secret: Secret) -> list[str]:
        chosen = {**SETTINGS, **self.settings, "port": str(secret.port)}
        chosen["unix_socket_directories"] = self._socket_folder(secret.port)
        return [word for name, value in chosen.items() for word in ("-c", f"{name}={value}")]

    def _socket_folder(self, port: int) -> str:
        """Return the quoted socket folder; empty if its path is too long, or no client could name it."""
        folder = os.fspath(self.home.sockets)
        if len(os.fsencode(folder)) + len(f"/.s.PGSQL.{port}") > _SOCKET_PATH_LIMIT or "," in folder:
            return ""
        return '"' + folder.replace('"', '""') + '"'

    def _wait_until_ready(self) -> ProbeAnswer | None:
        """Wait until the server answers; return None if it ended instead."""
        while not self._is_late():
            claim = read_pid_file(self.home.data)
            if claim is not None and claim.ready:
                answer = serving(self.home, self.account)
                if answer is not None:
                    return answer
            if self.home.is_over():
                return None
            time.sleep(_PAUSE / 2)
        raise self._stuck(seen=True)

    def _ready_log(self) -> int:
        log = self.home.log
        if log.exists() and log.stat().st_size > _LOG_LIMIT:
            log.replace(log.with_name("log.old"))
        log.touch(0o600)
        self.account.give(log)
        return log.stat().st_size

    def _log_since(self, before: int) -> str:
        with self.home.log.open("rb") as log:
            log.seek(before)
            return log.read().decode(errors="replace")

    def _failure(self, what: str, output: str, advice: str = "") -> EmbeddedDatabaseError:
        if disk_full(self.home.root, output):
            return disk_full_complaint(self.home.root)
        return complaint(f"{what}: {serious_line(output)}{advice}")

    def _stuck(self, *, seen: bool) -> EmbeddedDatabaseError:
        if seen:
            return complaint(
                f"the server at {self.home.root} is not ready in time, it may still be recovering: see "
                f"{self.home.log} and try again"
            )
        return complaint(
            f"{self.home.data} is in use by a server that can't be seen from here (another container or "
            "machine?): stop it there, or set TXSAGA_PG_HOME to another folder"
        )

    def _is_late(self) -> bool:
        return time.monotonic() > self.deadline


_REMEDY = "restore it from a backup, or empty it with `txsaga db reset` (that deletes the data)"


def major_of(data: Path) -> int | None:
    """Return the major version of a data folder, None if there is none yet; raise for a damaged one."""
    if not data.exists() or not any(data.iterdir()):
        return None
    version = data / "PG_VERSION"
    if not version.exists():
        raise complaint(f"{data} holds something, but PG_VERSION is missing: {_REMEDY}", DataFolderDamaged)
    text = version.read_text(errors="replace").strip()
    if not text.isdigit():
        raise complaint(f"{version} is damaged: {_REMEDY}", DataFolderDamaged)
    if not (data / "global" / "pg_control").exists():
        raise complaint(f"{data} is damaged, global/pg_control is missing: {_REMEDY}", DataFolderDamaged)
    return int(text)


_STOP_PAUSE = 0.01


class StopMode(StrEnum):
    """How a stop treats connected clients, as in pg_ctl."""

    SMART = "smart"
    """Wait until they disconnect."""
    FAST = "fast"
    """Roll back their open transactions."""
    IMMEDIATE = "immediate"
    """Quit at once; the next start recovers."""


_SIGNALS = {StopMode.SMART: signal.SIGTERM, StopMode.FAST: signal.SIGINT, StopMode.IMMEDIATE: signal.SIGQUIT}


def halt(home: ServerHome, account: Account, mode: StopMode, *, deadline: float) -> int:
    """Stop the server and return the held life lock."""
    watch = OrphanWatch(data=home.data, account=account)
    told: int | None = None
    while True:
        processes = watch.look()
        descriptor = None if processes.everyone else home.take_life()
        if descriptor is not None:
            return descriptor
        if processes.postmaster is not None and processes.postmaster != told:
            told = processes.postmaster
            tell(told, _SIGNALS[mode])
        if time.monotonic() > deadline:
            raise complaint(_too_late(home, mode, processes))
        time.sleep(_STOP_PAUSE)


def _too_late(home: ServerHome, mode: StopMode, processes: Processes) -> str:
    if processes.postmaster is None and not processes.everyone:
        return f"a server that can't be seen from here (another container?) uses {home.data}: stop it there"
    smart = mode is StopMode.SMART
    advice = "wait for its clients to leave, or stop it in fast mode" if smart else f"see {home.log}"
    return f"the server at {home.root} did not stop in time ({mode} mode): {advice}"
