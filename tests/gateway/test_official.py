"""RocketMQ's official clients, as published, against a gateway."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gateway.calling import listening
from tests.gateway.test_checks import answering
from tests.services.absent import ci_or_skip
from txsaga.broker import Broker
from txsaga.gateway.access_keys import AccessKey

pytestmark = pytest.mark.postgres
PROGRAMS = Path(__file__).parent / "clients"
FETCHED = Path(__file__).parents[2] / ".clients"


def fetched(pattern: str, tool: str, needed: str) -> Path:
    """Return what `.ci/clients` fetched; without it end the test, as a failure only where its tool is."""
    found = sorted(FETCHED.glob(pattern))
    if found and shutil.which(tool):
        return found[-1]
    line = f"run .ci/clients, which needs {needed}"
    if shutil.which(tool):
        ci_or_skip("the official client", line)
    pytest.skip(f"this client needs {tool}, which is not installed: {line}")


def python(_home: Path) -> list[object]:
    return [sys.executable, "-W", "ignore", PROGRAMS / "official.py"]


def java(home: Path) -> list[object]:
    jar = fetched("rocketmq-client-java-*.jar", "java", "Maven and a JDK")
    return ["java", f"-Duser.home={home}", "-XX:TieredStopAtLevel=1", "-cp", jar, PROGRAMS / "Official.java"]


def go(_home: Path) -> list[object]:
    return [fetched("official-go", "go", "Go")]


def node(_home: Path) -> list[object]:
    fetched("node/node_modules/rocketmq-client-nodejs", "node", "npm and Node.js")
    return ["node", PROGRAMS / "official.cjs"]


def rust(_home: Path) -> list[object]:
    return [fetched("official-rust", "cargo", "Cargo 1.88")]


SHOWN = [
    pytest.mark.req("RMQ-46", "RMQ-48", "RMQ-59", "RMQ-65"),
    pytest.mark.conf("INT-05", "CLI-01", "PRX-22", "RC-P1"),
]
"""By the client that is always here; the others need tools that a laptop may lack."""
LINES = {"sent": 3, "recalled": 1, "refused": 1, "half": 4, "received": 5, "pushed": 2}
"""How often a client says what; each tells of every check, too."""
LACKING: dict[Callable[[Path], list[object]], set[str]] = {rust: {"recalled", "pushed"}}
"""What a client cannot do."""


@pytest.mark.timeout(180)
@pytest.mark.parametrize("program", [pytest.param(python, marks=SHOWN), java, go, node, rust])
def test_a_client_sends_ends_checks_and_receives(
    broker: Broker, program: Callable[[Path], list[object]], tmp_path: Path
) -> None:
    command = [str(each) for each in program(tmp_path)]
    env = {**os.environ, "HOME": str(tmp_path), "NODE_PATH": str(FETCHED / "node/node_modules")}  # logs go home
    with listening(broker, {"anna": AccessKey("secret")}) as address, answering(broker):
        ran = subprocess.run(
            [*command, address, "anna", "secret"], env=env, capture_output=True, text=True, timeout=150
        )
    said: dict[str, list[list[str]]] = defaultdict(list)
    for line in ran.stdout.splitlines():
        what, *words = line.split("\t")
        said[what].append(words)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-3000:]
    lacking = LACKING.get(program, set())
    assert {what: len(said[what]) for what in LINES} == LINES | dict.fromkeys(lacking, 0)
    assert re.search("not match|CONFLICT_WITH_TYPE", said["refused"][0][0])  # by the client itself, or by the gateway
    received = {body: (id, color) for body, id, color in said["received"]}
    assert received.keys() == {"normal", "ordered", "delayed", "committed", "left, committed"}
    assert {color for _, color in received.values()} == {"blue"}
    assert {id for id, _ in received.values()} <= {id for (id,) in [*said["sent"], *said["half"]]}
    assert {"left, committed", "left, rolled back"} == {body for (body,) in said["checked"]}
    assert said["pushed"] == [["normal", "1"], ["normal", "2"]][: len(said["pushed"])]
