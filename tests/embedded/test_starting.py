"""Starting: any number of callers, any account, any place, and whatever was left by a crash."""

import os
import signal
import subprocess
import time
from pathlib import Path

import psycopg
import pytest

from tests.embedded.callers import CALLERS, ME, NEEDS_ROOT, Caller, Outcome
from tests.embedded.private_binaries import copy_of_the_binaries
from tests.embedded.statements import execute, keep_a_backend_busy, prepare_a_transaction
from tests.services.embedded import temporary_home
from txsaga.embedded.home import ServerHome
from txsaga.embedded.server import EmbeddedServer

pytestmark = pytest.mark.postgres
STRANGE = "my 'home' is not \"$HOME\""


def the_one_server(outcomes: list[Outcome]) -> int:
    """Return the pid that every starter was given."""
    assert [outcome.error for outcome in outcomes] == [""] * len(outcomes)
    assert len({(outcome.pid, outcome.port) for outcome in outcomes}) == 1
    assert outcomes[0].pid is not None
    return outcomes[0].pid


@pytest.mark.parametrize("caller", CALLERS)
def test_racing_starters_share_one_server_and_after_kill_9_another_with_the_prepared_transaction(
    caller: Caller,
) -> None:
    with temporary_home(caller.user) as folder:
        server = EmbeddedServer(home=folder / "pg")
        first = the_one_server(caller.race(server.home))
        prepare_a_transaction(server, "t1")
        orphan = keep_a_backend_busy(server)
        os.kill(first, signal.SIGKILL)

        second = the_one_server(caller.race(server.home))
        orphan.join(timeout=30)

        assert second != first
        assert execute(server, "select gid from pg_prepared_xacts") == [("t1",)]


def test_a_starter_killed_while_it_makes_the_data_folder_does_not_disturb_the_next() -> None:
    with temporary_home() as home:
        starter = ME.spawn(home)
        while not (home / "data.new" / "PG_VERSION").exists():
            assert starter.poll() is None
            time.sleep(0.001)
        starter.kill()
        starter.wait()

        assert not ServerHome(home).is_over()  # its initdb works on
        assert EmbeddedServer(home=home).ensure().status().running
        assert not (home / "data.new").exists()
        starter.communicate()


@pytest.mark.parametrize("caller", CALLERS)
def test_a_home_may_have_spaces_quotes_and_dollars_in_its_path(caller: Caller) -> None:
    with temporary_home(caller.user) as folder:
        outcome = caller.start(folder / STRANGE)
        assert outcome.error == ""
        server = EmbeddedServer(home=folder / STRANGE)
        with psycopg.connect(server.url(driver=None, socket=True)) as connection:
            row = connection.execute("show data_directory").fetchone()
        assert row == (str(folder.resolve() / STRANGE / "data"),)


def test_a_home_and_its_copy_have_servers_of_their_own_side_by_side() -> None:
    with temporary_home() as folder:
        one = EmbeddedServer(home=folder / "one").ensure()
        one.stop()
        subprocess.run(["cp", "-a", folder / "one", folder / "two"], check=True)
        one.ensure()  # both want the same port and the same password

        two = EmbeddedServer(home=folder / "two").ensure()

        assert two.status().pid not in (None, one.status().pid)
        assert two.status().port != one.status().port
        execute(one, "create table only_here (n int)")
        assert execute(two, "select to_regclass('only_here')::text") == [(None,)]


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
