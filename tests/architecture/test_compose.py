"""Everything that docker-compose.yml and its Dockerfile name is there: services, volumes, files, commands."""

import re
from collections.abc import Iterator

import pytest

from tests.architecture.compose import Value, parse
from tests.architecture.sources import PACKAGE, ROOT
from txsaga.config import Settings

COMPOSE = parse((ROOT / "docker-compose.yml").read_text("utf-8"))
DOCKERFILE = ROOT / ".ci" / "docker" / "engine.Dockerfile"
CONDITIONS = {"service_started", "service_healthy", "service_completed_successfully"}


def mapping(value: Value) -> dict[str, Value]:
    """Return a value that must be a mapping; nothing counts as an empty one."""
    assert value is None or isinstance(value, dict)
    return value or {}


def strings(value: Value) -> list[str]:
    """Return a value that must be a list."""
    assert value is None or isinstance(value, list)
    return value or []


SERVICES = {name: mapping(service) for name, service in mapping(COMPOSE["services"]).items()}


def test_the_services_are_a_database_and_an_engine() -> None:
    assert {"postgres", "engine"} <= set(SERVICES)
    assert SERVICES["postgres"]["image"] == "postgres:18"


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_waits_for_services_that_are_there(name: str) -> None:
    for other, how in mapping(SERVICES[name].get("depends_on")).items():
        assert other in SERVICES
        condition = mapping(how)["condition"]
        assert condition in CONDITIONS
        assert condition != "service_healthy" or "healthcheck" in SERVICES[other]


@pytest.mark.parametrize("name", SERVICES)
def test_the_volumes_of_a_service_are_there(name: str) -> None:
    declared = set(mapping(COMPOSE.get("volumes")))
    for volume in strings(SERVICES[name].get("volumes")):
        source = volume.partition(":")[0]
        assert source in declared or (ROOT / source).exists()


def test_every_declared_volume_is_used() -> None:
    used = {volume.partition(":")[0] for s in SERVICES.values() for volume in strings(s.get("volumes"))}
    assert set(mapping(COMPOSE.get("volumes"))) <= used


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_built_or_named(name: str) -> None:
    build = mapping(SERVICES[name].get("build"))
    assert bool(build) != ("image" in SERVICES[name])
    if build:
        context = ROOT / str(build["context"])
        assert context.is_dir()
        assert (context / str(build["dockerfile"])).is_file()


@pytest.mark.parametrize("name", [name for name, service in SERVICES.items() if "build" in service])
def test_what_txsaga_is_told_is_understood(name: str) -> None:
    told = {key: str(value) for key, value in mapping(SERVICES[name].get("environment")).items()}
    host = re.search(r"@(\w+):\d+/", Settings.from_env(told).url or "")
    assert host and host[1] in SERVICES
    source = "".join(path.read_text("utf-8") for path in PACKAGE.rglob("*.py"))
    assert not [key for key in told if key not in source]


@pytest.mark.parametrize("name", [name for name, service in SERVICES.items() if "build" in service])
def test_the_commands_of_a_container_exist(name: str) -> None:
    from txsaga.cli.__main__ import main

    check = strings(mapping(SERVICES[name].get("healthcheck")).get("test"))
    words = [strings(SERVICES[name].get("command")) or ["engine"], check[2:]]
    for command in filter(None, words):
        assert main([*command, "--help"]) == 0


def copied() -> Iterator[str]:
    """Yield what the Dockerfile takes from the checkout."""
    for line in DOCKERFILE.read_text("utf-8").splitlines():
        if line.startswith("COPY "):
            yield from line.split()[1:-1]


def test_the_dockerfile_copies_what_is_there_and_what_a_build_needs() -> None:
    assert not [source for source in copied() if not (ROOT / source).exists()]
    assert {"pyproject.toml", "README.md", "LICENSE", "txsaga"} <= set(copied())


def test_a_file_that_is_not_plain_is_refused() -> None:
    assert parse('a:\n  b: "1"\n  c:\n    - x\n  d: ["y"]\ne:\n') == {
        "a": {"b": "1", "c": ["x"], "d": ["y"]},
        "e": None,
    }
    for text in ("a: 1\na: 2\n", "- x\n", "a:\n  b: 1\n   c: 2\n"):
        with pytest.raises(ValueError, match=r"can't read|stands twice"):
            parse(text)
