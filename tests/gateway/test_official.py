"""RocketMQ's official clients, as published, against a gateway."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

import txsaga
from tests.gateway.calling import listening
from tests.gateway.test_checks import NOW, answering
from tests.services.absent import ci_or_skip
from tests.store.logins import logins
from txsaga.broker import Broker
from txsaga.consume.consumer import UNACKNOWLEDGED
from txsaga.gateway.access_keys import AccessKey
from txsaga.store.right import Right

pytestmark = pytest.mark.postgres
PROGRAMS = Path(__file__).parent / "clients"
KEYS = {"anna": AccessKey("secret")}
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
SOON = timedelta(seconds=0.5)


@pytest.fixture
def address(broker: Broker, home_url: str) -> Iterator[str]:
    """Serve with a login that has no more than the rights of a gateway."""
    with logins(home_url) as made:
        url = made.url_with(Right.PRODUCER, Right.CONSUMER)
        with txsaga.connect(url, roles=False, env={}) as limited, listening(limited, KEYS) as address:
            yield address


Said = Mapping[str, list[list[str]]]
"""What a client says, by the first word of the line."""


def said_by(program: Callable[[Path], list[object]], address: str, folder: Path) -> Said:
    """Run a client to its end."""
    command = [*program(folder), address, *KEYS, "secret"]
    env = {**os.environ, "HOME": str(folder), "NODE_PATH": str(FETCHED / "node/node_modules")}  # logs go home
    ran = subprocess.run([*map(str, command)], env=env, capture_output=True, text=True, timeout=150)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-3000:]
    said: dict[str, list[list[str]]] = defaultdict(list)
    for line in ran.stdout.splitlines():
        what, *words = line.split("\t")
        said[what].append(words)
    return said


@pytest.mark.timeout(180)
@pytest.mark.parametrize("program", [pytest.param(python, marks=SHOWN), java, go, node])
def test_a_client_sends_ends_checks_and_receives(
    broker: Broker,
    address: str,
    program: Callable[[Path], list[object]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("txsaga.gateway.checks.PATIENCE", 1.0)  # a client that does not know may say nothing
    broker.create_group("pushers", max_attempts=2, first_retry=SOON)
    with answering(broker, replace(NOW, interval=SOON)):
        said = said_by(program, address, tmp_path)
    assert [len(said[what]) for what in ("sent", "recalled", "refused", "half")] == [4, 1, 1, 4]
    assert "not match" in said["refused"][0][0]
    assert_received(said)
    assert Counter(body for (body,) in said["checked"]) == {"left, committed": 2, "left, rolled back": 1}
    assert sorted(said["pushed"]) == [["failing", "1"], ["failing", "2"], ["normal", "1"], ["normal", "2"]]
    assert_done_with(broker)


def assert_received(said: Said) -> None:
    """Compare what the simple consumer got with what was sent: the changed message twice, the delayed one in time."""
    received = {(body, int(attempt)): (id, color, int(at)) for body, id, color, attempt, at in said["received"]}
    once = ("ordered", "delayed", "committed", "left, committed")
    assert received.keys() == {("normal", 1), ("normal", 2), *((body, 1) for body in once)}
    assert len(said["received"]) == 6
    assert {color for _, color, _ in received.values()} == {"blue"}
    assert {id for id, _, _ in received.values()} <= {id for (id,) in [*said["sent"], *said["half"]]}
    assert received["delayed", 1][2] >= int(said["due"][0][0])
    assert 1_000 <= received["normal", 2][2] - received["normal", 1][2] < 15_000  # it was to be invisible for 15 s


def assert_done_with(broker: Broker) -> None:
    """Look into the store: what was acknowledged is processed, the failing message a letter, the recalled one gone."""
    with broker.consumer("pushers", ["news"]) as pushers:
        end = time.monotonic() + 20
        while not broker.dead_letters.list("pushers") and time.monotonic() < end:
            assert [*pushers.messages(wait=0.1)] == []
    (letter,) = broker.dead_letters.list("pushers")
    assert (letter.message.body, letter.attempts, letter.cause) == (b"failing", 2, UNACKNOWLEDGED)
    readings = [each for each in broker.kernel.store.overview.readings() if each.group in ("readers", "pushers")]
    assert len(readings) == 5
    assert {(each.lag, each.held, each.retrying) for each in readings} == {(0, 0, 0)}
    with broker.stream("auditors", ["later"]) as later:
        assert [each.body for each in later.messages(wait=0)] == [b"delayed"]


@pytest.mark.timeout(180)
def test_the_client_for_rust_sends_ends_checks_and_receives(broker: Broker, address: str, tmp_path: Path) -> None:
    """It has no recall, no push consumer and no change of the invisible duration."""
    with answering(broker, replace(NOW, interval=SOON)):
        said = said_by(rust, address, tmp_path)
    assert [len(said[what]) for what in ("sent", "refused", "half", "received")] == [3, 1, 4, 5]
    assert "CONFLICT_WITH_TYPE" in said["refused"][0][0]
    received = {body: (id, color) for body, id, color in said["received"]}
    assert received.keys() == {"normal", "ordered", "delayed", "committed", "left, committed"}
    assert {color for _, color in received.values()} == {"blue"}
    assert {id for id, _ in received.values()} <= {id for (id,) in [*said["sent"], *said["half"]]}
    assert {"left, committed", "left, rolled back"} == {body for (body,) in said["checked"]}
