"""The wheel alone. In a clean home of Airflow a stranger's DAG finds its operators, and its run is all or nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.provider import stranger
from tests.provider.house import Databases, House
from tests.provider.stranger import ROOT, Stranger
from tests.services.absent import ci_or_skip
from tests.services.embedded import temporary_home

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

FOREIGN = '''
"""An airflow dag of somebody who has the package, and nothing else of the project."""

import txsaga
from airflow.sdk import DAG, Param, task
from txsaga.provider import FlowBegin, FlowEnd, Publish, SqlStep, enclose

with DAG("foreign", schedule=None, params={"works": Param(True, type="boolean")}):
    begin = FlowBegin(task_id="begin", coordinated=True, resources=["shop"])
    order = SqlStep(task_id="order", on="shop", sql="INSERT INTO orders VALUES ('one')")
    tell = Publish(task_id="tell", topic="ordered", body=txsaga.__file__)

    @task
    def check(params=None):
        if not params["works"]:
            raise ValueError("the stranger's own task does not work")

    order >> tell >> check()
    enclose(begin, FlowEnd(task_id="end"))
'''
FOUND = """
import json, sys
from importlib.metadata import distributions
from airflow.plugins_manager import get_plugin_info
from airflow.providers_manager import ProvidersManager
told = {
    "path": sys.path,
    "homes": [str(each.locate_file("")) for each in distributions() if each.metadata["Name"] == "txsaga"],
    "provider": ProvidersManager().providers["txsaga"].version,
    "plugins": [each["name"] for each in get_plugin_info()],
}
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the wheel of this checkout."""
    if find_spec("hatchling") is None:
        ci_or_skip("hatchling, which builds the wheel,", "make venv")
    return stranger.build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def shop(home_url: str, databases: Databases, tmp_path: Path) -> Iterator[tuple[House, dict[str, str]]]:
    """Give a store that nobody has made yet, a database with orders, and what they are to an Airflow."""
    house, said = House(home_url=home_url, folder=tmp_path, database=databases.url), dict[str, str]()
    house.connect = lambda name, **told: said.update({f"AIRFLOW_CONN_{name.upper()}": json.dumps(told)})
    house.connect("txsaga_default", conn_type="txsaga", extra={"url": home_url})
    house.postgres("shop", "CREATE TABLE orders (what text)")
    yield house, said | {"TXSAGA_URL": home_url}
    house.close()


@pytest.mark.req("CARD-08")
def test_a_stranger_s_dag_works_with_the_wheel_alone(
    wheel: Path, shop: tuple[House, dict[str, str]], migrated_database: Path, tmp_path: Path
) -> None:
    house, said = shop
    somebody = stranger.settle(wheel, tmp_path, said)
    shutil.copy(migrated_database, somebody.home / "airflow.db")
    assert_found_in_the_wheel(somebody)
    for words in ("db migrate", "topic create ordered --type transaction"):
        made = somebody.run("-m", "txsaga.cli", *words.split())
        assert made.returncode == 0, made.stderr
    somebody.dag("foreign", FOREIGN)
    for works, left in ((True, 1), (False, 1)):
        done = somebody.run("-m", "airflow", "dags", "test", "foreign", "--conf", json.dumps({"works": works}))
        assert (done.returncode == 0) is works, done.stdout[-4000:] + done.stderr[-4000:]
        assert len(house.rows("shop", "SELECT * FROM orders")) == left
        assert house.seen("ordered") == [str(somebody.site / "txsaga" / "__init__.py").encode()] * left


@pytest.mark.postgres
def test_the_demo_needs_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    with temporary_home() as folder:
        somebody = stranger.settle(wheel, tmp_path, {"TXSAGA_PG_HOME": str(folder / "pg")})
        done = somebody.run("-m", "txsaga", "demo", "--no-browser")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"page    {(somebody.home / 'txsaga-demo.html').as_uri()}" in done.stdout.splitlines()
    assert (somebody.home / "txsaga-demo.html").read_text("utf-8").count("<svg") == 3


def assert_found_in_the_wheel(somebody: Stranger) -> None:
    """See that this Airflow has the provider and the plugin, and that it has them of the wheel."""
    done = somebody.run("-c", FOUND)
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert [Path(each) for each in told["homes"]] == [somebody.site]
    assert not [each for each in told["path"] if stranger.inside(each or somebody.home, ROOT)]
    assert told["provider"] == "0.1.0"
    assert "txsaga" in told["plugins"]
