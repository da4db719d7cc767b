"""What Airflow is told of the package, held against Airflow's own schema, and what importing it costs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import import_module
from importlib.resources import files
from pathlib import Path

import pytest

import txsaga.provider
from tests.provider.examples import FOLDER
from tests.provider.house import House
from txsaga.provider.info import get_provider_info
from txsaga.provider.options import OPTIONS

HEAVY = {"great_expectations", "pandas", "psycopg", "pyarrow", "pyiceberg", "pymysql", "pyspark"}


def test_the_entries_are_what_airflow_takes() -> None:
    schema = json.loads((files("airflow") / "provider_info.schema.json").read_text("utf-8"))
    import_module("jsonschema").validate(get_provider_info(), schema)


def test_every_module_and_class_of_the_entries_is_there() -> None:
    info = json.loads(json.dumps(get_provider_info()))
    for part in ("operators", "hooks", "sensors", "triggers"):
        for each in info.get(part, ()):
            for module in each["python-modules"]:
                import_module(module)
    named = [each.get("hook-class-name", each.get("class-name")) for each in info["connection-types"]]
    named += [each["class-name"] for each in info["task-decorators"]] + info["queues"] + info["notifications"]
    for each in named:
        module, _, name = each.rpartition(".")
        assert hasattr(import_module(module), name)


def test_the_options_of_the_section_are_those_of_the_reference() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "airflow.md").read_text("utf-8")
    told = re.findall(
        r"^\| `(\w+)` \| .* \| `([^`]*)` \|$", page.partition("## Configuration")[2].partition("##")[0], re.M
    )
    assert told == [(each.name, each.default) for each in OPTIONS]


def test_every_public_name_is_there() -> None:
    for name in txsaga.provider.__all__:
        assert getattr(txsaga.provider, name) is not None


@pytest.mark.req("CARD-08")
def test_dags_are_parsed_without_drivers_and_data_packages(airflow_home: Path) -> None:
    files = [str(each) for each in sorted(FOLDER.glob("*.py"))]
    code = (
        f"import runpy, sys; [runpy.run_path(each) for each in {files!r}];"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert sorted(HEAVY & set(done.stdout.splitlines()[-1].split())) == []


def test_importing_the_package_does_not_load_airflow() -> None:
    code = "import sys, txsaga.provider; txsaga.provider.get_provider_info(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"airflow", "sqlalchemy", "psycopg"} & {name.partition(".")[0] for name in done.stdout.split()}


def test_a_connection_can_be_tried(house: House) -> None:
    from txsaga.provider.connections import TxSagaHook

    good, told = TxSagaHook().test_connection()
    assert good
    assert "this is store" in told
    house.connect("elsewhere", conn_type="txsaga", host="127.0.0.1", port=1, schema="none")
    good, told = TxSagaHook("elsewhere").test_connection()
    assert not good
    assert "\n" not in told.strip()
    assert TxSagaHook("nowhere").test_connection() == (
        False,
        "ConfigError: Airflow connection 'nowhere' does not exist; create it under Admin, Connections, "
        "or set AIRFLOW_CONN_NOWHERE",
    )
