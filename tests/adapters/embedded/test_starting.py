"""Starting: any number of callers, any account, any place, and whatever was left by a crash."""

import os
import signal
import subprocess
import threading
from pathlib import Path

import psycopg
import pytest

from tests.adapters.embedded.callers import CALLERS, ME, NEEDS_ROOT, Caller
from tests.adapters.embedded.private_binaries import copy_of_the_binaries
from tests.adapters.embedded.statements import execute
from tests.services.embedded import temporary_home
from txsaga.adapters.embedded import EmbeddedServer

pytestmark = pytest.mark.postgres
STRANGE = "my 'home' is not \"$HOME\""


def prepare_a_transaction(server: EmbeddedServer, gid: str) -> None:
    execute(server, f"begin; create table held_{gid} (n int); prepare transaction '{gid}'")


def keep_a_backend_busy(server: EmbeddedServer) -> threading.Thread:
    """Leave a query that would work on for hours when its postmaster is gone."""
    connection = psycopg.connect(server.url(driver=None), autocommit=True)

    def work() -> None:
        with pytest.raises(psycopg.OperationalError):
            connection.execute("select count(*) from generate_series(1, 1e12::bigint)")
        connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


@pytest.mark.parametrize("caller", CALLERS)
def test_six_racing_starters_share_one_server(caller: Caller) -> None:
    with temporary_home(caller.user) as folder:
        outcomes = caller.race(folder / "pg")
        assert [outcome.error for outcome in outcomes] == [""] * 6
        assert len({(outcome.pid, outcome.port) for outcome in outcomes}) == 1


@pytest.mark.parametrize("caller", CALLERS)
def test_after_kill_9_of_the_postmaster_racing_starters_find_the_prepared_transaction(caller: Caller) -> None:
    with temporary_home(caller.user) as folder:
        first = caller.start(folder / "pg")
        server = EmbeddedServer(home=folder / "pg")
        prepare_a_transaction(server, "t1")
        orphan = keep_a_backend_busy(server)
        assert first.pid is not None
        os.kill(first.pid, signal.SIGKILL)

        outcomes = caller.race(server.home)
        orphan.join(timeout=30)

        assert [outcome.error for outcome in outcomes] == [""] * 6
        assert len({outcome.pid for outcome in outcomes}) == 1
        assert outcomes[0].pid != first.pid
        assert execute(server, "select gid from pg_prepared_xacts") == [("t1",)]


@pytest.mark.parametrize("caller", CALLERS)
def test_a_home_may_have_spaces_quotes_and_dollars_in_its_path(caller: Caller) -> None:
    with temporary_home(caller.user) as folder:
        outcome = caller.start(folder / STRANGE)
        assert outcome.error == ""
        server = EmbeddedServer(home=folder / STRANGE)
        with psycopg.connect(server.url(driver=None, socket=True)) as connection:
            row = connection.execute("show data_directory").fetchone()
        assert row == (str(folder.resolve() / STRANGE / "data"),)


def test_two_homes_side_by_side_keep_apart_even_if_they_want_the_same_port() -> None:
    with temporary_home() as folder:
        one = EmbeddedServer(home=folder / "one").ensure()
        two = EmbeddedServer(home=folder / "two").ensure()
        two.stop()
        pgpass = two.home / "pgpass"
        pgpass.write_text(pgpass.read_text().replace(str(two.status().port), str(one.status().port)))

        two.ensure()

        assert one.status().port != two.status().port
        execute(one, "create table only_here (n int)")
        assert execute(two, "select to_regclass('only_here')::text") == [(None,)]


def test_a_copied_home_gets_a_server_of_its_own() -> None:
    with temporary_home() as folder:
        one = EmbeddedServer(home=folder / "one").ensure()
        one.stop()
        subprocess.run(["cp", "-a", folder / "one", folder / "two"], check=True)
        one.ensure()
        two = EmbeddedServer(home=folder / "two").ensure()
        assert two.status().pid not in (None, one.status().pid)
        assert two.status().port != one.status().port


def test_a_pid_file_that_names_a_living_stranger_does_not_stop_a_start() -> None:
    with temporary_home() as folder:
        stranger = EmbeddedServer(home=folder / "stranger").ensure().status().pid
        server = EmbeddedServer(home=folder / "pg").ensure()
        pid_file = server.home / "data" / "postmaster.pid"
        before = pid_file.read_text()
        server.stop()
        pid_file.write_text(f"{stranger}\n{before.partition(chr(10))[2]}")

        assert server.ensure(timeout=10).status().pid not in (None, stranger)


@NEEDS_ROOT
def test_without_the_right_to_look_into_processes_root_still_ends_orphans() -> None:
    drop = ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]
    with temporary_home() as home:
        server = EmbeddedServer(home=home).ensure()
        prepare_a_transaction(server, "t1")
        orphan = keep_a_backend_busy(server)
        os.kill(server.status().pid or 0, signal.SIGKILL)
        assert ME.start(home, before=drop).error == ""
        orphan.join(timeout=30)
        assert execute(server, "select gid from pg_prepared_xacts") == [("t1",)]


@NEEDS_ROOT
def test_binaries_below_a_private_folder_are_copied_and_the_folder_stays_private(tmp_path: Path) -> None:
    binaries = copy_of_the_binaries(tmp_path / "venv")
    tmp_path.chmod(0o700)
    with temporary_home() as home:
        server = EmbeddedServer(home=home, binaries=binaries).ensure()
        assert server.status().running
        assert list((home / "pg").glob("*/*/*/bin/postgres"))
        assert tmp_path.stat().st_mode & 0o777 == 0o700
        server.stop()
        assert server.ensure().status().running
