"""The data folder: create it, check it, clean up after a killed server.

This module must never create a data folder over one that holds anything, and never delete one. All of it
runs under both locks. The programs it runs inherit the life lock, so the next starter waits for one that
outlives a killed starter. If a starter dies while it creates a folder, `data.new` is left, never an
incomplete `data`.
"""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from txsaga.embedded.account import Account
from txsaga.embedded.binaries import Binaries
from txsaga.embedded.error_messages import complaint, disk_full, disk_full_complaint, serious_line
from txsaga.embedded.home import USER, Secret, ServerHome
from txsaga.embedded.probe import pid_file
from txsaga.errors import DataFolderDamaged, EmbeddedDatabaseError

_REMEDY = "restore it from a backup, or empty it with `txsaga db reset` (that deletes the data)"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFolder:
    """The data folder of a home and the account it belongs to."""

    home: ServerHome
    account: Account

    def create(self, binaries: Binaries, secret: Secret, life: int) -> None:
        """Create the data folder under another name and rename it when it is complete."""
        unborn = self.home.unborn
        for leftover in (unborn, self.home.discarded):
            shutil.rmtree(leftover, ignore_errors=True)
        unborn.mkdir(0o700)
        try:
            self._initdb(binaries, secret, self.account.give(unborn), life)
            unborn.rename(self.home.data)
            self.home.sync()
        finally:
            shutil.rmtree(unborn, ignore_errors=True)

    def _initdb(self, binaries: Binaries, secret: Secret, folder: Path, life: int) -> None:
        password = self.account.give(self.home.write_private("pw.new", secret.password))
        # The password is 256 random bits and needs no stretching, but some drivers (Go's pq, JDBC) refuse to
        # log in below 4096 iterations, which is the default.
        try:
            done = self.account.run(
                binaries.initdb, "-A", "scram-sha-256", f"--pwfile={password}", "-U", USER,
                "-E", "UTF8", "--no-locale", "-D", folder, cwd=self.home.root, keep=[life],
            )  # fmt: skip
        finally:
            password.unlink(missing_ok=True)
        if done.returncode:
            raise self._command_failed("initdb", done.stdout)

    def set_password(self, binaries: Binaries, secret: Secret, settings: Iterable[str], life: int) -> None:
        """Set a new password in a stopped server, if the file with the old one was lost."""
        done = self.account.run(
            binaries.postgres, "--single", "-D", self.home.data, *settings, "postgres",
            cwd=self.home.root, text=f"ALTER ROLE {USER} PASSWORD '{secret.password}'\n", keep=[life],
        )  # fmt: skip
        if done.returncode or "ERROR" in done.stdout:
            raise self._command_failed("setting a new password", done.stdout)

    def clear_leftovers(self) -> None:
        """Delete the files of a dead server; the pid in them may now be a zombie's or another program's."""
        pid_file(self.home.data).unlink(missing_ok=True)
        for leftover in self.home.sockets.iterdir():
            leftover.unlink(missing_ok=True)

    def check_owner(self) -> None:
        """Refuse a data folder that belongs to another account, before PostgreSQL does."""
        if not self.home.data.exists():
            return
        owner = self.home.data.stat().st_uid
        if owner == 0:
            raise complaint(
                f"{self.home.data} belongs to root, and PostgreSQL refuses that: "
                "chown -R it to the account that is to run the server"
            )
        if owner != self.account.user:
            raise complaint(
                f"{self.home.data} does not belong to {self.account.name}, the account of the server: "
                f"chown -R {self.account.name} {self.home.data}, or set TXSAGA_PG_USER to its owner"
            )

    def _command_failed(self, what: str, output: str) -> EmbeddedDatabaseError:
        if disk_full(self.home.root, output):
            return disk_full_complaint(self.home.root)
        return complaint(f"{what} failed in {self.home.root}: {serious_line(output)}")


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
