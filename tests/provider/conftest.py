"""
An Airflow of the session, without processes: a migrated database, and what `dag.test()` needs.

The environment is set before Airflow is first imported. The migrated database is made once for each version of Airflow
and copied: that takes a moment, a migration takes seconds.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.provider.house import Databases, House

if TYPE_CHECKING:
    from tests.services.databases import DatabaseServer

try:
    AIRFLOW = version("apache-airflow-core")
except PackageNotFoundError:
    AIRFLOW = ""
    collect_ignore_glob = ["test_*.py"]

assert "airflow" not in sys.modules, (
    "Airflow was imported before its home is named; import it in the test that needs it"
)
HOME = Path(tempfile.mkdtemp(prefix="txsaga-airflow-"))
DATABASE = HOME / "airflow.db"
os.environ.update(
    {
        "AIRFLOW_HOME": str(HOME),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{DATABASE}",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(HOME / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(HOME / "plugins"),
        "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(HOME / "logs"),
    }
)


def pytest_sessionfinish() -> None:
    shutil.rmtree(HOME, ignore_errors=True)


@pytest.fixture(scope="session")
def migrated_database() -> Path:
    """Give the database of an Airflow in which nothing has happened, to be copied."""
    return _migrated()


@pytest.fixture(scope="session")
def airflow_home(migrated_database: Path) -> Path:
    """Give the home of an Airflow whose database is migrated."""
    (HOME / "dags").mkdir(parents=True, exist_ok=True)
    if not DATABASE.exists():
        shutil.copy(migrated_database, DATABASE)
    return HOME


def _migrated() -> Path:
    folder = Path(tempfile.gettempdir()) / f"txsaga-airflow-template-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    template = folder / f"{AIRFLOW}.db"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not template.exists():
            made = folder / "being-made.db"
            made.unlink(missing_ok=True)
            asked = {**os.environ, "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{made}"}
            command = [sys.executable, "-m", "airflow", "db", "migrate"]
            subprocess.run(command, env=asked, check=True, capture_output=True, timeout=120)
            made.rename(template)
    return template


@pytest.fixture(scope="session")
def databases(server: "DatabaseServer") -> Databases:
    """Give the databases of all tests here, by connection; each test makes its tables anew."""
    return Databases(server)


@pytest.fixture
def house(
    airflow_home: Path,
    home_url: str,
    databases: Databases,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[House]:
    """Give a store with databases behind Airflow connections, and an Airflow to run DAGs in."""
    from txsaga.provider.connections import AMBIENT
    from txsaga.wiring.connecting import open_store

    open_store(home_url).close()
    monkeypatch.setattr("time.sleep", _shorter(__import__("time").sleep))
    made = House(home_url=home_url, folder=tmp_path, database=databases.url)

    def connect(name: str, **said: object) -> None:
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(said))

    made.connect = connect
    connect("txsaga_default", conn_type="txsaga", extra={"url": home_url})
    yield made
    AMBIENT.close()
    made.close()


def _shorter(sleep: Callable[[float], None]) -> Callable[[float], None]:
    """Let Airflow's test runner wait a moment where it waits a second."""
    return lambda seconds: sleep(min(seconds, 0.01))
