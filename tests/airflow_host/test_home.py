"""The folder of an Airflow: its keys are kept, its mistakes are told in one line."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from txsaga.airflow_host.home import MARK, AirflowHome, environment
from txsaga.airflow_host.host import Host
from txsaga.airflow_host.processes import AirflowPart, PartRecord, RunningPart
from txsaga.embedded.server import EmbeddedServer
from txsaga.errors import ConfigError, HostFailed


@pytest.fixture
def home(tmp_path: Path) -> AirflowHome:
    """Give a home that is not made yet."""
    return AirflowHome(root=tmp_path / "home")


def settings(home: AirflowHome, store: str | None = None, **given: str) -> dict[str, str]:
    metadata = "postgresql://u:p@127.0.0.1:27001/airflow"
    return environment(home, home.prepared(), metadata=metadata, store=store, pg_home=home.root, given=given)


def host(home: AirflowHome) -> Host:
    return Host(home, EmbeddedServer(home=home.root / "pg"))


def start(home: AirflowHome, *, port: int | None = None, dags: Path | None = None) -> None:
    host(home).up(store=None, port=port, dags=dags, patience=1, env={}, tell=lambda text: None)


def test_keys_are_made_once_and_are_nobody_elses(home: AirflowHome) -> None:
    first = home.prepared(port=8099)
    assert home.prepared() == first
    assert home.keys_file.stat().st_mode & 0o077 == 0
    assert home.root.stat().st_mode & 0o077 == 0
    assert json.loads(home.passwords.read_text()) == {"admin": first.password}
    assert first.password not in repr(first)


def test_a_damaged_home_is_told_and_not_mended(home: AirflowHome) -> None:
    home.prepared()
    home.keys_file.write_text("{")
    with pytest.raises(HostFailed, match=r"keys\.json is damaged: restore it"):
        home.prepared()
    home.keys_file.write_text('{"port": 1}')
    with pytest.raises(HostFailed, match="damaged"):
        home.keys()


def test_a_home_in_the_place_of_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HostFailed, match="set TXSAGA_AIRFLOW_HOME to a folder of your own"):
        AirflowHome(root=tmp_path / "file").create()


def test_the_home_is_the_one_that_is_named(tmp_path: Path) -> None:
    assert AirflowHome.from_env({"TXSAGA_AIRFLOW_HOME": str(tmp_path)}).root == tmp_path
    assert AirflowHome.from_env({"XDG_DATA_HOME": str(tmp_path)}).root.name == "airflow"


def test_a_port_that_is_taken_is_refused_when_it_was_asked_for(home: AirflowHome) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(HostFailed, match=f"port {port} of 127.0.0.1 is in use"):
            start(home, port=port)


def test_dags_that_are_not_there_are_refused(home: AirflowHome, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a folder"):
        start(home, dags=tmp_path / "nothing")


def test_nothing_runs_in_a_fresh_home(home: AirflowHome) -> None:
    assert host(home).down() == 0
    assert [part.healthy for part in host(home).status()] == [False] * len(AirflowPart)


def test_the_record_of_a_dead_supervisor_counts_for_nothing(home: AirflowHome) -> None:
    home.create()
    PartRecord(pid=os.getpid(), parts={"engine": RunningPart(pid=1, since=1.0)}).write(home)
    assert PartRecord.read(home) is not None
    assert host(home).supervisor() is None  # that process lives, but it is none of this home
    home.record_file.write_text("[]")
    assert PartRecord.read(home) is None


def test_the_parts_agree_on_address_database_and_keys(home: AirflowHome) -> None:
    found = settings(home, AIRFLOW__API__PORT="1", AIRFLOW__CORE__PARALLELISM="9", PYTHONDONTWRITEBYTECODE="1")
    port = found["AIRFLOW__API__PORT"]
    assert port == "8080"
    assert found["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"] == f"http://127.0.0.1:{port}/execution/"
    assert found["AIRFLOW__CORE__PARALLELISM"] == "9"
    assert found["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"].startswith("postgresql+psycopg://")
    assert found[MARK] == str(home.root)
    assert "PYTHONDONTWRITEBYTECODE" not in found  # each start would compile everything anew


def test_a_resource_is_a_connection_of_the_same_name(home: AirflowHome) -> None:
    found = settings(home, TXSAGA_RESOURCE_PG_CURRENT="postgresql+psycopg://u:p@h/db")
    assert json.loads(found["AIRFLOW_CONN_PG_CURRENT"]) == {
        "conn_type": "postgres",
        "extra": {"sqlalchemy_url": "postgresql+psycopg://u:p@h/db"},
    }
    assert json.loads(found["AIRFLOW_CONN_TXSAGA_DEFAULT"]) == {"conn_type": "txsaga"}


def test_a_store_elsewhere_is_handed_on(home: AirflowHome) -> None:
    assert settings(home, store="postgresql://u:p@h/db")["TXSAGA_URL"] == "postgresql://u:p@h/db"
    assert "TXSAGA_URL" not in settings(home)


def test_a_folder_that_holds_other_things_is_left_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "letters.txt").write_text("mine")
    with pytest.raises(HostFailed, match="is not empty: set TXSAGA_AIRFLOW_HOME to an empty or new folder"):
        AirflowHome(root=tmp_path).create()
    assert tmp_path.stat().st_mode & 0o777 == 0o755
    assert [entry.name for entry in tmp_path.iterdir()] == ["letters.txt"]


def test_an_airflow_keeps_its_name_when_its_port_changes(home: AirflowHome) -> None:
    first, second = home.prepared(port=8081), home.prepared(port=8082)
    assert first.name == second.name != ""
    assert settings(home)["TXSAGA_AIRFLOW_NAME"] == first.name
    assert settings(home, TXSAGA_AIRFLOW_NAME="mine")["TXSAGA_AIRFLOW_NAME"] == "mine"
    old = json.loads(home.keys_file.read_text())
    del old["name"]
    home.write(home.keys_file, old)
    assert home.prepared().name  # of a home that was made before Airflows had names


def test_no_part_serves_its_logs_to_the_network() -> None:
    for part in (AirflowPart.SCHEDULER, AirflowPart.TRIGGERER):
        assert part.command == ("airflow", part.value, "--skip-serve-logs")
