"""`txsaga producer` through the entry point: who answers for a group, and what it says about checks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cli.conftest import Cli
from tests.services.databases import fresh_name
from txsaga.broker import Broker
from txsaga.checkback.heartbeat import Heartbeat

pytestmark = pytest.mark.core


@pytest.fixture
def group(broker: Broker) -> str:
    """Give a fresh producer group whose checker never knows."""
    name = fresh_name("shop")
    broker.producer(name, checker=lambda _: None)
    return name


@pytest.fixture
def checks(cli: Cli, group: str) -> Callable[..., object]:
    """Give a way to alter a group; it returns what the group says from then on."""
    return lambda *words: cli("producer", "alter", group, *words, "--json").document["checks"]


@pytest.mark.req("RMQ-85", "RMQ-70")
def test_a_group_is_shown_with_its_members_and_its_backlog(cli: Cli, broker: Broker, group: str, flow: str) -> None:
    broker.producer(group, checker=lambda _: None).prepare_now(flow, b"a")
    Heartbeat(broker.kernel).run_once()
    shown = cli("producer", "show", group, "--json").document
    assert (shown["group"], shown["members"]) == (group, [broker.kernel.member])
    assert (shown["undecided"], shown["parked"], shown["asked"]) == (1, 0, 0)
    assert shown["answers"] == {"COMMIT": 0, "ROLLBACK": 0, "UNKNOWN": 0, "NO_ANSWER": 0}
    assert (shown["checks"], 0 <= shown["oldest_seconds"] < 3600) == ({}, True)
    told = {words[0]: words[1:] for line in cli("producer", "show", group).lines if (words := line.split())}
    assert (told["members"], told["max-checks"]) == ([broker.kernel.member], ["as", "the", "engine"])


def test_groups_are_listed_with_their_settings(cli: Cli, broker: Broker, group: str) -> None:
    plain = fresh_name("plain")
    broker.producer(plain)
    cli("producer", "alter", group, "--max-checks", "3", "--on-exhausted", "rollback")
    found = {each["group"]: each for each in cli("producer", "list", "--json").documents}
    assert found[plain] == {"group": plain, "kind": "plain", "checks": {}}
    lines = {line.split()[0]: line.split() for line in cli("producer", "list").lines}
    assert lines[group][-2:] == ["max-checks=3", "on-exhausted=rollback"]
    assert lines[plain][-1:] == ["-"]


def test_the_kind_of_a_group_is_changed(cli: Cli, group: str) -> None:
    assert cli("producer", "alter", group, "--kind", "plain", "--json").document["kind"] == "plain"
    assert cli("producer", "show", group, "--json").document["kind"] == "plain"


@pytest.mark.req("RMQ-26", "RMQ-28", "RMQ-67")
def test_what_a_group_says_is_kept_part_by_part_and_taken_back(checks: Callable[..., object]) -> None:
    assert checks("--check-interval", "90s", "--max-checks", "3") == {"interval": 90.0, "max_checks": 3}
    assert checks() == {"interval": 90.0, "max_checks": 3}
    times = ("--min-age", "1m", "--total-limit", "12h", "--reply-timeout", "5")
    assert checks(*times, "--on-exhausted", "rollback", "--reset", "check-interval") == {
        "max_checks": 3,
        "min_age": 60.0,
        "total_limit": 43_200.0,
        "reply_timeout": 5.0,
        "on_exhausted": "rollback",
    }
    words = ("max-checks", "min-age", "total-limit", "reply-timeout")
    left = checks(*(word for name in words for word in ("--reset", name)))
    assert left == {"on_exhausted": "rollback"}
    assert checks("--reset", "on-exhausted") == {}


def test_a_group_without_a_checker_has_settings_too(cli: Cli, broker: Broker) -> None:
    name = fresh_name("silent")
    broker.producer(name)
    assert cli("producer", "alter", name, "--min-age", "1m", "--json").document["checks"] == {"min_age": 60.0}


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("show", "nobody"), 4, "producer group 'nobody' does not exist"),
        (("alter", "nobody", "--max-checks", "3"), 4, "producer group 'nobody' does not exist"),
        (("alter", "shop", "--check-interval", "0"), 2, "the least is 0.1s"),
        (("alter", "shop", "--max-checks", "0"), 2, "--max-checks"),
        (("alter", "shop", "--total-limit", "soon"), 2, "not a length of time"),
        (("alter", "shop", "--on-exhausted", "commit"), 2, "--on-exhausted"),
        (("alter", "shop", "--reset", "everything"), 2, "--reset"),
        (("alter", "shop", "--max-checks", "3", "--reset", "max-checks"), 2, "can't be set and reset at once"),
    ],
)
def test_a_mistake_is_one_line(cli: Cli, words: tuple[str, ...], code: int, told: str) -> None:
    said = cli("producer", *words)
    assert (said.code, said.out) == (code, "")
    assert told in said.complaint
