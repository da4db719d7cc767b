"""Stopping, by order or by kill -9, starting again, resetting: what stays and what goes."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.embedded.callers import ME, NEEDS_ROOT
from tests.embedded.statements import execute, keep_a_backend_busy, prepare_a_transaction
from tests.services.embedded import embedded_server, temporary_home
from txsaga.embedded import probe
from txsaga.embedded.launch import StopMode
from txsaga.embedded.server import EmbeddedServer, ServerStatus
from txsaga.errors import EmbeddedDatabaseError

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    with embedded_server() as running:
        yield running


@contextmanager
def process_of_the_same_account(server: EmbeddedServer) -> Iterator[int]:
    """Run something harmless as the account of the server: the worst that a stale pid can name."""
    owner = (server.home / "data").stat()
    lent = os.geteuid() == 0
    with subprocess.Popen(
        ["sleep", "60"], cwd="/", user=owner.st_uid if lent else None, group=owner.st_gid if lent else None
    ) as process:
        try:
            yield process.pid
        finally:
            process.kill()


@pytest.mark.parametrize("mode", list(StopMode))
def test_a_stop_ends_every_process_and_a_start_finds_the_data(server: EmbeddedServer, mode: StopMode) -> None:
    server.ensure()
    execute(server, f"create table kept_{mode} as select 42 as n")

    server.stop(mode)

    assert not server.status().running
    assert not (server.home / "data" / "postmaster.pid").exists() or mode is StopMode.IMMEDIATE
    assert execute(server.ensure(), f"select n from kept_{mode}") == [(42,)]


def test_a_smart_stop_waits_for_clients_and_a_fast_one_does_not(server: EmbeddedServer) -> None:
    server.ensure()
    with psycopg.connect(server.url(driver=None)):
        with pytest.raises(EmbeddedDatabaseError, match="wait for its clients to leave"):
            server.stop(StopMode.SMART, timeout=0.3)
        server.stop(StopMode.FAST)
    assert not server.status().running


def test_a_stop_where_nothing_runs_does_nothing(server: EmbeddedServer, tmp_path: Path) -> None:
    server.stop()
    server.stop()
    nowhere = EmbeddedServer(home=tmp_path / "nowhere")
    nowhere.stop()
    nowhere.reset()
    assert not nowhere.home.exists()


def test_where_processes_cannot_be_seen_the_life_lock_decides(
    server: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.ensure()
    monkeypatch.setattr(probe, "PROC", tmp_path)
    server.stop()
    assert not server.status().running
    assert server.ensure().status().running
    server.stop()


def test_an_unknown_stop_mode_is_named_with_the_known_ones(server: EmbeddedServer) -> None:
    with pytest.raises(EmbeddedDatabaseError, match="'hard': use one of smart, fast, immediate"):
        server.stop("hard")


def test_a_pid_file_that_names_a_living_stranger_does_not_stop_a_start(server: EmbeddedServer) -> None:
    pid_file = server.ensure().home / "data" / "postmaster.pid"
    _, _, rest = pid_file.read_text().partition("\n")
    server.stop()
    with process_of_the_same_account(server) as stranger:
        pid_file.write_text(f"{stranger}\n{rest}")
        assert server.ensure(timeout=10).status().pid not in (None, stranger)


@NEEDS_ROOT
def test_without_the_right_to_look_into_processes_root_still_ends_orphans(server: EmbeddedServer) -> None:
    prepare_a_transaction(server.ensure(), "orphaned")
    orphan = keep_a_backend_busy(server)
    os.kill(server.status().pid or 0, signal.SIGKILL)
    in_a_container = ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]

    assert ME.start(server.home, before=in_a_container).error == ""

    orphan.join(timeout=30)
    assert execute(server, "select gid from pg_prepared_xacts") == [("orphaned",)]


def test_the_status_tells_a_running_server_from_a_stopped_one(server: EmbeddedServer) -> None:
    running = server.ensure().status()
    assert running.running
    assert running.pid == int((server.home / "data" / "postmaster.pid").read_text().split()[0])
    assert running.url == f"postgresql://txsaga@127.0.0.1:{running.port}/txsaga"
    assert running.version is not None and running.version.count(".") == 1

    server.stop()

    stopped = server.status()
    assert (stopped.running, stopped.pid, stopped.port) == (False, None, running.port)
    assert stopped.version == running.version.split(".")[0]


def test_the_status_of_no_home_at_all_changes_nothing(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    assert EmbeddedServer(home=nowhere).status() == ServerStatus(running=False, home=nowhere)
    assert not nowhere.exists()


def test_a_reset_deletes_the_data_and_keeps_port_and_password(server: EmbeddedServer) -> None:
    execute(server.ensure(), "create table doomed (n int)")
    before = (server.home / "pgpass").read_text()

    server.reset()

    assert not server.status().running
    assert not (server.home / "data").exists()
    assert execute(server.ensure(), "select to_regclass('doomed')::text") == [(None,)]
    assert (server.home / "pgpass").read_text() == before


def test_a_reset_of_a_damaged_home_makes_it_usable_again(server: EmbeddedServer) -> None:
    server.ensure().stop()
    (server.home / "data" / "global" / "pg_control").unlink()
    server.reset()
    assert server.ensure().status().running


def test_a_reset_leaves_alone_what_txsaga_did_not_make() -> None:
    with temporary_home() as home:
        (home / "data").mkdir()
        (home / "data" / "thesis.txt").write_text("years of work")
        with pytest.raises(EmbeddedDatabaseError, match="was not made by txsaga"):
            EmbeddedServer(home=home).reset()
        assert (home / "data" / "thesis.txt").read_text() == "years of work"
