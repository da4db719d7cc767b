"""The manifests for Kubernetes are valid there, and what they name is in txsaga."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.architecture.test_compose import VERSION
from tests.docs.test_snippets import ROOT
from tests.services.absent import ci_or_skip
from txsaga.cli.__main__ import main
from txsaga.config import RESOURCE, Settings
from txsaga.store.right import Right

FOLDER = ROOT / "docs" / "how-to" / "kubernetes"
FILES = sorted(FOLDER.glob("*.yaml"))
PAGE = (FOLDER.parent / "kubernetes.md").read_text("utf-8")
OBJECTS: dict[str, Mapping[str, Any]] = {
    f"{found['kind']} {found['metadata']['name']}": found
    for path in FILES
    for found in yaml.safe_load_all(path.read_text("utf-8"))
}
SECRETS = {found["metadata"]["name"]: found["stringData"] for found in OBJECTS.values() if found["kind"] == "Secret"}
ENGINE, MIGRATE, BUDGET = (
    OBJECTS[name] for name in ("Deployment txsaga-engine", "Job txsaga-migrate", "PodDisruptionBudget txsaga-engine")
)
PODS = {
    name: found["spec"]["template"]["spec"] for name, found in OBJECTS.items() if "template" in found.get("spec", ())
}
OLDEST, NEWEST = "1.27", "1.34"


def containers() -> Iterator[Mapping[str, Any]]:
    """Yield the containers of every pod."""
    for pod in PODS.values():
        yield from (*pod.get("initContainers", ()), *pod["containers"])


def commands(words: list[str]) -> Iterator[list[str]]:
    """Yield the commands of txsaga in the arguments of a container, loops of a shell unrolled."""
    if len(words) > 1:
        yield words
    for names, loop in re.findall(r"for right in ([\w ]+); do txsaga (.*?); done", words[0]):
        yield from (loop.replace("$right", name).split() for name in names.split())


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("name", OBJECTS)
def test_a_manifest_has_the_form_that_kubernetes_asks_for(name: str, version: str) -> None:
    if find_spec("kubernetes_validate") is None:
        ci_or_skip("kubernetes-validate, which has the schemas,", "make venv")
    from kubernetes_validate import validate

    validate(OBJECTS[name], version, strict=True)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_page_names_each_file(path: Path) -> None:
    assert f"](kubernetes/{path.name})" in PAGE


@pytest.mark.parametrize("name", PODS)
def test_a_pod_is_restricted(name: str) -> None:
    pod, user = PODS[name], re.search(r"--uid (\d+) ", (ROOT / ".ci/docker/engine.Dockerfile").read_text("utf-8"))
    assert user is not None
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == int(user[1])
    assert pod["automountServiceAccountToken"] is pod["enableServiceLinks"] is False
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        security = container["securityContext"]
        assert (security["readOnlyRootFilesystem"], security["allowPrivilegeEscalation"]) == (True, False)
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"].keys() == {"memory"}


def test_images_are_of_this_version_and_have_the_secrets_that_are_there() -> None:
    assert {found["image"].rpartition(":")[2] for found in containers()} == {VERSION}
    asked = {source["secretRef"]["name"] for found in containers() for source in found["envFrom"]}
    assert asked | {"txsaga-airflow"} == set(SECRETS)
    assert "name: txsaga-airflow" in PAGE


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_has_settings_that_txsaga_reads(name: str) -> None:
    settings = {key: value for key, value in SECRETS[name].items() if not key.startswith("AIRFLOW_CONN_")}
    Settings.from_env(settings)
    source = "".join(path.read_text("utf-8") for path in (ROOT / "txsaga").rglob("*.py"))
    assert not [key for key in settings if key not in source and not key.startswith(RESOURCE)]


def test_the_engine_has_each_database_of_airflow_and_only_the_job_has_the_owner() -> None:
    engine, airflow = SECRETS["txsaga-engine"], SECRETS["txsaga-airflow"]
    assert engine["TXSAGA_AIRFLOW_NAME"] == airflow["TXSAGA_AIRFLOW_NAME"]
    named = {key.removeprefix("AIRFLOW_CONN_") for key in airflow if key.startswith("AIRFLOW_CONN_")}
    assert named - {"TXSAGA_DEFAULT"} == {key.removeprefix(RESOURCE) for key in engine if key.startswith(RESOURCE)}
    assert not [name for name, pod in PODS.items() if "txsaga-owner" in str(pod) and "migrate" not in name]


@pytest.mark.parametrize("container", list(containers()), ids=lambda container: container["name"])
def test_the_commands_of_a_container_exist(container: Mapping[str, Any]) -> None:
    found = list(commands(container["args"]))
    assert found
    for words in found:
        assert main([*words, "--help"]) == 0
    granted = {(words[2], words[4]) for words in found if words[:2] == ["db", "grant"]}
    assert {right for right, _ in granted} <= {*Right}
    assert all(f"://{login}:" in str(SECRETS) for _, login in granted)


def test_what_selects_the_engine_finds_it_and_its_metrics() -> None:
    pod, wanted = ENGINE["spec"]["template"], ENGINE["spec"]["selector"]["matchLabels"]
    assert wanted == BUDGET["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= pod["metadata"]["labels"].items()
    assert not wanted.items() <= MIGRATE["spec"]["template"]["metadata"]["labels"].items()
    assert BUDGET["spec"]["minAvailable"] < ENGINE["spec"]["replicas"]
    (engine,) = pod["spec"]["containers"]
    (port,) = engine["ports"]
    assert str(port["containerPort"]) == pod["metadata"]["annotations"]["prometheus.io/port"]
    assert str(port["containerPort"]) == engine["args"][engine["args"].index("--metrics") + 1]
    assert engine["readinessProbe"]["tcpSocket"]["port"] == port["name"]
