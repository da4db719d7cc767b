"""Everything that docker-compose.yml and its Dockerfiles name is there: services, volumes, commands, settings."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.architecture.sources import PACKAGE, ROOT
from tests.services.absent import ci_or_skip
from txsaga.airflow_host.home import CONNECTION, AirflowHome, environment
from txsaga.airflow_host.processes import AirflowPart
from txsaga.config import RESOURCE, Settings

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILES = sorted((ROOT / ".ci" / "docker").glob("*.Dockerfile"))
CONDITIONS = {"service_started", "service_healthy", "service_completed_successfully"}
KNOWN: dict[str, type | tuple[type, ...]] = {
    "build": dict,
    "image": str,
    "command": list,
    "depends_on": dict,
    "entrypoint": list,
    "environment": dict,
    "healthcheck": dict,
    "ports": list,
    "profiles": list,
    "restart": str,
    "volumes": list,
}
CHECK = {"test", "interval", "timeout", "retries", "start_period"}
ONCE = {"migrate", "grant", "prepare"}
AIRFLOW = {part.value for part in AirflowPart if part.is_airflow}
ALWAYS = {"postgres", "migrate", "grant"}
FIRST_START = ROOT / ".ci" / "docker" / "databases" / "first-start.sql"
VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]


def test_the_file_holds_nothing_but_services_volumes_and_what_they_share() -> None:
    assert set(COMPOSE) == {"x-airflow", "services", "volumes"}
    assert {"postgres", "spark-master", "spark-worker", "engine"} | AIRFLOW | ONCE == set(SERVICES)


def test_the_file_is_valid_by_the_schema_of_compose() -> None:
    if find_spec("check_jsonschema") is None:
        ci_or_skip("check-jsonschema, which has the schema of Compose,", "make venv")
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.compose-spec",
        "docker-compose.yml",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_says_only_what_compose_knows(name: str) -> None:
    for key, value in SERVICES[name].items():
        assert isinstance(value, KNOWN[key]), key
    assert all(isinstance(word, str) for word in SERVICES[name].get("command", []))
    assert all(isinstance(value, str) for value in SERVICES[name].get("environment", {}).values())
    assert SERVICES[name].get("restart", "no") in ("no", "unless-stopped")


@pytest.mark.parametrize("name", sorted(set(SERVICES) - ONCE))
def test_whatever_runs_on_is_looked_after(name: str) -> None:
    check = SERVICES[name]["healthcheck"]
    assert set(check) <= CHECK
    assert check["test"][0] == "CMD"
    assert all(re.fullmatch(r"\d+s", check[key]) for key in check if key not in ("test", "retries"))


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_waits_for_services_that_are_there(name: str) -> None:
    for other, how in SERVICES[name].get("depends_on", {}).items():
        assert other in SERVICES
        assert how["condition"] in CONDITIONS
        assert how["condition"] != "service_healthy" or "healthcheck" in SERVICES[other]
        assert (how["condition"] == "service_completed_successfully") == (other in ONCE)


@pytest.mark.parametrize("name", SERVICES)
def test_the_volumes_of_a_service_are_there(name: str) -> None:
    for volume in SERVICES[name].get("volumes", []):
        source = volume.partition(":")[0]
        assert source in COMPOSE["volumes"] or (ROOT / source).is_dir()


def test_every_declared_volume_is_used() -> None:
    used = {volume.partition(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])}
    assert set(COMPOSE["volumes"]) <= used


@pytest.mark.parametrize("name", SERVICES)
def test_an_image_has_a_tag_and_the_one_that_is_built_is_of_this_version(name: str) -> None:
    build, (image, _, tag) = SERVICES[name].get("build"), SERVICES[name]["image"].partition(":")
    assert tag and tag != "latest"
    assert bool(build) == image.startswith("txsaga-")
    if build:
        assert tag == VERSION
        assert build == {"context": ".", "dockerfile": f".ci/docker/{image.removeprefix('txsaga-')}.Dockerfile"}
        assert (ROOT / build["dockerfile"]).is_file()


def test_the_profile_of_the_generated_file_starts_everything_and_engine_the_store_and_its_engine() -> None:
    profiles = {name: set(service.get("profiles", ())) for name, service in SERVICES.items()}
    assert {name for name in profiles if "airflow" in profiles[name]} == set(SERVICES) - ALWAYS
    assert {name for name in profiles if "engine" in profiles[name]} == {"engine"}
    for name, service in SERVICES.items():
        assert all(profiles[name] <= profiles[other] or other in ALWAYS for other in service.get("depends_on", {}))


@pytest.mark.parametrize("name", SERVICES)
def test_only_what_is_run_once_knows_the_owner_of_the_store(name: str) -> None:
    urls = re.findall(r"postgresql[^ \"]*://(\w+):\$\{(\w+)[^@]*}@postgres", str(SERVICES[name].get("environment", "")))
    known = {"txsaga": "POSTGRES_PASSWORD"} if name in {"migrate", "grant"} else {
        login: f"{login.upper()}_DB_PASSWORD" for login in ("airflow", "engine", "flows")
    }  # fmt: skip
    assert set(urls) <= set(known.items())
    created = dict(re.findall(r"CREATE ROLE (\w+) LOGIN PASSWORD :'(\w+)';", FIRST_START.read_text("utf-8")))
    assert set(created) >= {login for login, _ in urls} - {"txsaga"}
    assert all(login == variable for login, variable in created.items())


@pytest.mark.parametrize("name", [name for name, service in SERVICES.items() if "environment" in service])
def test_what_txsaga_is_told_is_understood(name: str) -> None:
    told = {key: value for key, value in SERVICES[name]["environment"].items() if key.startswith("TXSAGA_")}
    assert told.pop("TXSAGA_AIRFLOW_NAME", "compose") == "compose"
    assert told.pop("TXSAGA_WAREHOUSE", "/warehouse") == "/warehouse"
    for value in told.values():
        host = re.search(r"(?:@|spark://)([\w-]+):\d+", value)
        assert host
        assert host[1] in SERVICES
    Settings.from_env(told)
    source = "".join(path.read_text("utf-8") for path in PACKAGE.rglob("*.py"))
    assert not [key for key in told if key not in source and not key.startswith(RESOURCE)]


@pytest.mark.parametrize(
    ("image", "needed"), [("engine", {"lake", "metrics"}), ("airflow", {"airflow", "spark", "lake", "gate"})]
)
def test_an_image_has_the_extras_of_what_runs_in_it(image: str, needed: set[str]) -> None:
    told = (ROOT / ".ci" / "docker" / f"{image}.Dockerfile").read_text("utf-8")
    extras = re.search(r'"\.\[([\w,]+)\]"', told)
    assert extras is not None
    assert needed <= set(extras[1].split(","))
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert set(extras[1].split(",")) <= set(declared)


@pytest.mark.parametrize("part", [part for part in AirflowPart if part.is_airflow])
def test_a_part_of_airflow_runs_by_the_command_that_the_supervisor_runs(part: AirflowPart) -> None:
    assert tuple(SERVICES[part.value]["command"]) == part.command


@pytest.mark.parametrize("part", [part for part in AirflowPart if part.is_airflow])
def test_the_parts_of_airflow_have_the_settings_of_an_airflow_here(part: AirflowPart, tmp_path: Path) -> None:
    home = AirflowHome(root=tmp_path)
    here = environment(home, home.prepared(), metadata="postgresql://u:p@h:1/d", store="x", pg_home=tmp_path, given={})
    told = SERVICES[part.value]["environment"]
    settings = {name for name in here if name.startswith("AIRFLOW")}
    assert settings - set(told) <= {"AIRFLOW__LOGGING__LOGGING_LEVEL", "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED"}
    assert {name for name in told if name.startswith("AIRFLOW") and not name.startswith(CONNECTION)} <= settings


def test_a_database_has_one_name_for_airflow_and_for_the_engine_and_is_made_at_the_first_start() -> None:
    told, engine = SERVICES["scheduler"]["environment"], SERVICES["engine"]["environment"]
    named = {name.removeprefix(CONNECTION): url for name, url in told.items() if name.startswith(CONNECTION)}
    named.pop("TXSAGA_DEFAULT")
    assert named == {name.removeprefix(RESOURCE): url for name, url in engine.items() if name.startswith(RESOURCE)}
    made = re.findall(r"CREATE DATABASE (\w+) OWNER flows;", FIRST_START.read_text("utf-8"))
    assert sorted(url.rpartition("/")[2] for url in named.values()) == sorted(made)
    dags = "".join(path.read_text("utf-8") for path in (ROOT / "dags").glob("*.py"))
    assert all(f'"{name}"' in dags for name in made)


def test_whoever_works_on_tables_sees_the_same_warehouse() -> None:
    named = {name for name, service in SERVICES.items() if "TXSAGA_WAREHOUSE" in service.get("environment", {})}
    there = {name for name, service in SERVICES.items() if "warehouse:/warehouse" in service.get("volumes", [])}
    assert named < there == named | {"spark-worker"}


def test_the_engine_runs_by_the_command_that_the_supervisor_runs() -> None:
    text = (ROOT / SERVICES["engine"]["build"]["dockerfile"]).read_text("utf-8")
    entry, command = re.findall(r'^(?:ENTRYPOINT|CMD) \["([\w-]+)"\]$', text, re.MULTILINE)
    assert (entry, command) == AirflowPart.ENGINE.command


@pytest.mark.parametrize("name", ["migrate", "engine"])
def test_the_commands_of_a_container_exist(name: str) -> None:
    from txsaga.cli.__main__ import main

    words = [SERVICES[name].get("command") or ["engine"], SERVICES[name].get("healthcheck", {}).get("test", [])[2:]]
    for command in filter(None, words):
        assert main([*command, "--help"]) == 0


def test_every_secret_is_in_the_one_generated_file(capsys: pytest.CaptureFixture[str]) -> None:
    from txsaga.cli.__main__ import main

    asked = set(re.findall(r"\$\{(\w+)", (ROOT / "docker-compose.yml").read_text("utf-8")))
    assert main(["airflow", "keys"]) == 0
    made = dict(line.split("=", 1) for line in capsys.readouterr().out.splitlines())
    assert made.pop("COMPOSE_PROFILES") == "airflow"
    assert set(made) == asked
    assert all(re.fullmatch(r"[\w=-]{12,}", value) for value in made.values())  # it stands in URLs as it is
    assert main(["airflow", "keys", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again.pop("COMPOSE_PROFILES") == "airflow"
    assert (set(again), set(made.values()) & set(again.values())) == (asked, set())


def copied(dockerfile: Path) -> Iterator[str]:
    """Yield what a Dockerfile takes from the checkout."""
    for line in dockerfile.read_text("utf-8").splitlines():
        if line.startswith("COPY "):
            yield from line.split()[1:-1]


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_a_dockerfile_copies_what_is_there_and_what_a_build_needs(dockerfile: Path) -> None:
    assert not [source for source in copied(dockerfile) if not (ROOT / source).exists()]
    assert {"pyproject.toml", "README.md", "LICENSE", "txsaga"} <= set(copied(dockerfile))
    assert "\nUSER txsaga\n" in dockerfile.read_text("utf-8")
