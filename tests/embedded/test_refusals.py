"""What can't work is refused with one line that says what to do, and nothing is changed."""

import fcntl
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.embedded.callers import NEEDS_ROOT, ORDINARY
from tests.embedded.statements import execute
from tests.services.embedded import embedded_server, temporary_home
from txsaga.embedded import launch as port
from txsaga.embedded.account import server_account
from txsaga.embedded.binaries import find_binaries, reachable
from txsaga.embedded.server import EmbeddedServer
from txsaga.errors import EmbeddedDatabaseError

pytestmark = pytest.mark.postgres


@pytest.fixture
def home() -> Iterator[Path]:
    with temporary_home() as folder:
        yield folder


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    with embedded_server() as running:
        yield running


def refusal(call: Callable[[], object]) -> str:
    """Return the line of the refusal; anything else that is raised fails the test."""
    with pytest.raises(EmbeddedDatabaseError) as raised:
        call()
    text = str(raised.value)
    assert "\n" not in text and len(text) < 500
    return text


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def fake_data(home: Path, **files: str) -> Path:
    data = home / "data"
    (data / "global").mkdir(parents=True)
    for name, text in files.items():
        (data / name.replace("__", "/")).write_text(text)
    if os.geteuid() == 0:
        shutil.chown(data, "nobody")
    return data


def start_by_hand(server: EmbeddedServer) -> int:
    """Start the server as an administrator would, without any lock of ours and on no TCP port."""
    data, folder = server.home / "data", server.home / "sock"
    account = server_account(wanted=None, data=data)
    found = reachable(find_binaries(wanted=None, major=None), account, server.home / "pg")
    options = f"-c listen_addresses='' -c max_prepared_transactions=200 -c unix_socket_directories='{folder}'"
    done = account.run(
        found.folder / "pg_ctl", "-w", "-D", data, "-l", server.home / "log", "-o", options, "start",
        cwd=server.home,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return int((data / "postmaster.pid").read_text().split()[0])


@pytest.mark.parametrize(
    ("files", "line"),
    [
        pytest.param({"base": "rows"}, "PG_VERSION is missing", id="no version"),
        pytest.param({"PG_VERSION": "\0\0"}, "PG_VERSION is damaged", id="garbled version"),
        pytest.param({"PG_VERSION": "18\n"}, "global/pg_control is missing", id="no control file"),
        pytest.param(
            {"PG_VERSION": "9\n", "global__pg_control": "x"},
            "is of PostgreSQL 9 and there is 18 in .*TXSAGA_PG_BIN, or run pg_upgrade",
            id="other major version",
        ),
    ],
)
def test_a_damaged_or_foreign_data_folder_is_left_as_it_is(home: Path, files: dict[str, str], line: str) -> None:
    data = fake_data(home, **files)
    before = contents(data)
    with pytest.raises(EmbeddedDatabaseError, match=line):
        EmbeddedServer(home=home).ensure()
    assert "\n" not in refusal(EmbeddedServer(home=home).ensure)
    assert contents(data) == before


def test_a_lost_write_ahead_log_is_told_at_once_and_the_rest_is_kept() -> None:
    with embedded_server() as server:
        server.stop()
        for segment in (server.home / "data" / "pg_wal").glob("0*"):
            segment.unlink()
        kept = contents(server.home / "data" / "base")

        line = refusal(server.ensure)

        assert "could not locate a valid checkpoint record" in line and str(server.home / "log") in line
        assert contents(server.home / "data" / "base") == kept


def test_a_damaged_database_is_told_at_once() -> None:
    with embedded_server() as server:
        server.stop()
        for found in (server.home / "data" / "base").glob("*/pg_filenode.map"):
            found.write_bytes(b"\0" * 524)
        assert "refuses connections" in refusal(server.ensure)
        server.stop()


def test_a_silent_stranger_on_the_port_makes_the_server_move(server: EmbeddedServer) -> None:
    server.ensure()
    server.stop()
    taken = server.status().port
    assert taken is not None
    with socket.create_server(("127.0.0.1", taken)):
        assert server.ensure().status().port not in (None, taken)
    assert (server.home / "pgpass").read_text().split(":")[1] == str(server.status().port)


def test_no_free_port_at_all_is_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        taken = stranger.getsockname()[1]
        monkeypatch.setattr(port, "PORTS", range(taken, taken + 1))
        assert f"no port from {taken} to {taken} is free" in refusal(EmbeddedServer(home=home).ensure)
    assert not (home / "data").exists()


def test_a_folder_without_binaries_is_named(home: Path, tmp_path: Path) -> None:
    server = EmbeddedServer(home=home, binaries=tmp_path)
    assert f"no PostgreSQL in TXSAGA_PG_BIN={tmp_path}" in refusal(server.ensure)


def test_binaries_that_do_not_run_are_named(home: Path, tmp_path: Path) -> None:
    for name in ("postgres", "initdb"):
        (tmp_path / name).write_text("#!/bin/sh\necho this system lacks libfoo.so\nexit 127\n")
        (tmp_path / name).chmod(0o755)
    line = refusal(EmbeddedServer(home=home, binaries=tmp_path).ensure)
    assert "does not run here (this system lacks libfoo.so" in line


def test_a_file_in_the_place_of_the_home_is_named(home: Path) -> None:
    (home / "pg").write_text("mine")
    assert "a file is in the way" in refusal(EmbeddedServer(home=home / "pg").ensure)
    assert (home / "pg").read_text() == "mine"


def test_a_call_to_a_stopped_server_says_how_to_start_it(server: EmbeddedServer) -> None:
    server.ensure().stop()
    assert "does not answer: `txsaga db start`" in refusal(lambda: server.database("late"))


def test_an_address_is_refused_before_the_first_start(home: Path) -> None:
    assert "`txsaga db start`" in refusal(EmbeddedServer(home=home).url)


@NEEDS_ROOT
def test_the_home_of_another_account_is_named(server: EmbeddedServer) -> None:
    server.ensure()
    line = ORDINARY.start(server.home).error
    assert str(server.home) in line and "it belongs to another account" in line
    inside = ORDINARY.start(server.home / "below" / "it").error
    assert str(server.home) in inside and "set TXSAGA_PG_HOME to a folder of your own" in inside


@NEEDS_ROOT
def test_a_home_that_the_server_account_cannot_enter_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    line = refusal(EmbeddedServer(home=tmp_path / "pg").ensure)
    assert f"can't enter {tmp_path / 'pg'}" in line and "/var/lib/txsaga" in line
    assert tmp_path.stat().st_mode & 0o777 == 0o700


@NEEDS_ROOT
@pytest.mark.parametrize(
    ("account", "line"),
    [("no-such-account", "account 'no-such-account' does not exist"), ("root", "refuses to run as 'root'")],
)
def test_an_account_that_cannot_run_the_server_is_named(home: Path, account: str, line: str) -> None:
    assert line in refusal(EmbeddedServer(home=home, account=account).ensure)


@NEEDS_ROOT
@pytest.mark.parametrize(("owner", "line"), [("root", "belongs to root"), ("daemon", "chown -R nobody")])
def test_data_of_another_account_is_named_with_the_remedy(home: Path, owner: str, line: str) -> None:
    data = fake_data(home, PG_VERSION="18", global__pg_control="x")
    shutil.chown(data, owner)
    assert line in refusal(EmbeddedServer(home=home, account="nobody").ensure)


def test_a_server_started_by_hand_is_left_alone_and_named(server: EmbeddedServer) -> None:
    server.ensure()
    server.stop()
    pid = start_by_hand(server)
    try:
        assert f"(pid {pid}): `txsaga db stop`" in refusal(server.ensure)
    finally:
        server.stop()
    assert server.ensure().status().pid not in (None, pid)


def test_a_server_that_cannot_be_seen_from_here_is_waited_for_and_named(home: Path) -> None:
    fake_data(home, PG_VERSION="18", global__pg_control="x")
    with (home / "life").open("w") as life:
        fcntl.flock(life, fcntl.LOCK_EX)
        assert "another container" in refusal(lambda: EmbeddedServer(home=home).ensure(timeout=0.2))
        assert "another container" in refusal(lambda: EmbeddedServer(home=home).stop(timeout=0.2))


def test_another_process_that_takes_too_long_is_told(home: Path) -> None:
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        line = refusal(lambda: EmbeddedServer(home=home).ensure(timeout=0.2))
    assert f"see which one holds {home / 'lock'}" in line


def test_a_lost_password_file_is_told_while_the_server_runs_and_replaced_when_it_does_not(
    server: EmbeddedServer,
) -> None:
    execute(server.ensure(), "begin; create table held (n int); prepare transaction 'held'")
    pgpass = server.home / "pgpass"
    old = pgpass.read_text()
    pgpass.unlink()
    try:
        assert "`txsaga db stop`, then `txsaga db start` sets a new password" in refusal(server.ensure)
    finally:
        server.stop()
    assert execute(server.ensure(), "select gid from pg_prepared_xacts") == [("held",)]
    assert pgpass.read_text() != old


def test_a_password_file_of_another_time_is_told_with_the_way_out(server: EmbeddedServer) -> None:
    server.ensure()
    pgpass = server.home / "pgpass"
    pgpass.write_text(pgpass.read_text().rpartition(":")[0] + ":another-password\n")
    assert "delete that file" in refusal(server.ensure)
    server.stop()
    pgpass.unlink()
    assert server.ensure().status().running
