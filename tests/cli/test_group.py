"""`txsaga group` through the entry point."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.cli.conftest import Cli
from tests.services.databases import fresh_name
from txsaga.broker import Broker


def test_a_group_is_created_once_altered_and_shown(cli: Cli, topic: str) -> None:
    name = fresh_name("billing")
    words = ("group", "create", name, "--max-attempts", "3", "--first-retry", "0.5", "--ordered")
    for _ in range(2):
        made = cli(*words, "--json").document
        assert (made["style"], made["max_attempts"], made["first_retry"], made["ordered"]) == ("work", 3, 0.5, True)
    changed = cli("group", "alter", name, "--backout", topic, "--max-attempts", "0", "--json").document
    assert (changed["backout"], changed["max_attempts"], changed["first_retry"]) == (topic, None, 0.5)
    assert cli("group", "alter", name, "--backout", "", "--json").document["backout"] is None
    shown = cli("group", "show", name)
    assert shown.lines[0].split() == ["group", name]
    assert [line.split()[:2] for line in cli("group", "list").lines if name in line] == [[name, "work"]]


@pytest.mark.parametrize("command", ["create", "alter"])
def test_every_option_of_a_group_says_what_it_is_for(cli: Cli, command: str) -> None:
    text = " ".join(cli("group", command, "--help").out.replace("│", " ").split())
    assert "Name of the group." in text
    assert ("can't be changed later" in text) is (command == "create")
    for words in ("Maximum deliveries", "Topic for messages", "Keep messages", "second delivery", "Longest delay"):
        assert words in text
    assert "--no-ordered" not in text


def test_a_group_expires_when_it_is_told_to(cli: Cli) -> None:
    name = fresh_name("brief")
    assert cli("group", "create", name, "--json").document["expires"] == 30 * 86_400
    assert cli("group", "alter", name, "--expires", "3600", "--json").document["expires"] == 3600
    assert cli("group", "alter", name, "--max-attempts", "2", "--json").document["expires"] == 3600
    assert cli("group", "alter", name, "--expires", "0", "--json").document["expires"] is None


@pytest.mark.req("IBM-63")
def test_a_group_that_loses_what_fails_is_warned_of(cli: Cli) -> None:
    said = cli("group", "create", fresh_name("careless"), "--no-dead-letters", "--max-attempts", "2")
    assert said.code == 0
    assert "neither a backout topic nor dead letters: a message that fails 2 times is lost" in said.complaint


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("show", "nobody"), 4, "does not exist"),
        (("alter", "nobody", "--max-attempts", "1"), 4, "does not exist"),
        (("reset", "nobody", "--to", "latest"), 4, "does not exist"),
        (("reset", "nobody", "--to", "yesterday"), 2, "--to"),
        (("reset", "nobody", "--to", "2026-01-01T00:00:00"), 2, "no time zone"),
        (("leave", "nobody", "--topic", "nowhere"), 4, "does not exist"),
        (("create", "a b"), 3, "a b"),
        (("create", "ok", "--backout", "nowhere"), 3, "'nowhere' does not exist"),
        (("create", "ok", "--max-attempts", "-1"), 2, "--max-attempts"),
        (("create", "ok", "--expires", "599"), 3, "expires is 0:09:59; give a timedelta from 10 minutes on"),
        (("create", "ok", "--first-retry", "nan"), 2, "--first-retry"),
        (
            ("create", "ok", "--first-retry", "86401"),
            3,
            "first_retry is 1 day, 0:00:01; give a timedelta of at most 1 day",
        ),
    ],
)
def test_a_mistake_is_one_line(cli: Cli, words: tuple[str, ...], code: int, told: str) -> None:
    said = cli("group", *words)
    assert (said.code, said.out) == (code, "")
    assert told in said.complaint


def test_a_group_is_reset_after_a_look_at_what_would_move(cli: Cli, broker: Broker, topic: str) -> None:
    name = fresh_name("again")
    cli("send", topic, "one")
    assert len(cli("consume", name, topic).lines) == 1
    planned = cli("group", "reset", name, "--to", "earliest", "--json").document
    assert (planned["done"], sum(move["before"] - move["after"] for move in planned["moves"])) == (False, 1)
    assert cli("consume", name, topic).out == ""
    assert cli("group", "reset", name, "--to", "earliest").lines[-1].startswith("nothing was changed")
    assert cli("group", "reset", name, "--to", "earliest", "--yes").lines[-1] == f"{name} was moved"
    assert len(cli("consume", name, topic).lines) == 1


def test_a_group_at_work_is_not_reset(cli: Cli, broker: Broker, topic: str) -> None:
    name = fresh_name("busy")
    cli("send", topic, "one")
    with broker.consumer(name, [topic], invisible=timedelta(seconds=30)) as consumer:
        (held,) = consumer.receive()
        said = cli("group", "reset", name, "--to", "latest", "--yes")
        assert said.code == 5
        assert "has active members" in said.complaint
        held.ack()
    assert cli("group", "reset", name, "--to", "latest", "--yes").code == 0


def test_a_group_leaves_a_topic_after_a_look_at_what_it_would_miss(cli: Cli, broker: Broker, topic: str) -> None:
    name = fresh_name("leaving")
    for body in ("one", "two"):
        cli("send", topic, body, "--key", "same")
    with broker.consumer(name, [topic]) as consumer:
        (held,) = consumer.receive(1)
        said = cli("group", "leave", name, "--topic", topic, "--yes")
        assert (said.code, "has active members" in said.complaint) == (5, True)
        held.ack()
    planned = cli("group", "leave", name, "--topic", topic, "--json").document
    assert (planned["done"], sum(queue["lag"] for queue in planned["queues"])) == (False, 1)
    assert cli("group", "leave", name, "--topic", topic).lines[-1].startswith("nothing was changed")
    assert cli("group", "show", name, "--json").document["topics"]
    assert cli("group", "leave", name, "--topic", topic, "--yes").lines[-1] == f"{name} left {topic}"
    assert cli("group", "show", name, "--json").document["topics"] == []
    said = cli("group", "leave", name, "--topic", topic, "--yes")
    assert (said.code, said.out, f"does not read topic '{topic}'" in said.complaint) == (4, "", True)


def test_a_group_is_moved_in_topics_that_it_reads_and_in_no_other(cli: Cli, topic: str) -> None:
    name = fresh_name("elsewhere")
    cli("group", "create", name)
    said = cli("group", "reset", name, "--topic", topic, "--to", "earliest", "--yes")
    assert (said.code, said.out, f"does not read topic '{topic}'" in said.complaint) == (4, "", True)
    assert cli("group", "reset", name, "--topic", "nowhere", "--to", "earliest").code == 3
    assert cli("group", "reset", name, "--to", "earliest").code == 0


def test_where_a_group_stands_is_shown_queue_by_queue(cli: Cli, broker: Broker, topic: str) -> None:
    name = fresh_name("counting")
    for body in ("one", "two", "three"):
        cli("send", topic, body, "--key", "same")
    with broker.consumer(name, [topic], batch=2) as consumer:
        first, second = consumer.receive()
        second.nack(delay=timedelta(minutes=1))
        (reading,) = cli("group", "show", name, "--json").document["topics"]
        assert (reading["lag"], reading["held"], reading["retrying"], reading["members"]) == (1, 1, 1, 1)
        (queue,) = [each for each in reading["queues"] if each["head"]]
        assert (queue["offset"], queue["lowest"], queue["lag"]) == (2, 0, 1)
        first.ack()
    (reading,) = [each for each in cli("status", "--json").document["groups"] if each["group"] == name]
    assert (reading["held"], reading["retrying"]) == (0, 1)


def test_a_group_is_deleted_after_a_look_at_what_it_would_miss(cli: Cli, broker: Broker, topic: str) -> None:
    name = fresh_name("gone")
    cli("send", topic, "one")
    with broker.consumer(name, [topic]) as consumer:
        (held,) = consumer.receive()
        said = cli("group", "delete", name, "--yes")
        assert said.code == 5
        assert "has active members" in said.complaint
        held.ack()
    cli("send", topic, "two")
    looked = cli("group", "delete", name, "--json").document
    assert (looked["done"], [reading["lag"] for reading in looked["topics"]]) == (False, [1])
    assert cli("group", "delete", name).lines[-1].startswith("nothing was changed")
    assert cli("group", "delete", name, "--yes").lines[-1] == f"{name} was deleted"
    for words in (("--yes",), ()):
        assert cli("group", "delete", name, *words).code == 4
    assert len(cli("consume", name, topic).lines) == 2


def test_a_group_is_paused_and_resumed(cli: Cli, topic: str) -> None:
    name = fresh_name("paused")
    cli("send", topic, "one")
    cli("group", "create", name)
    assert cli("group", "pause", name).out == f"group {name} takes no more messages\n"
    assert cli("group", "show", name, "--json").document["paused"] is True
    (row,) = [line.split() for line in cli("group", "list").lines if line.startswith(name)]
    assert row == [name, "work", "yes", "0"]
    assert cli("consume", name, topic).out == ""
    assert cli("group", "resume", name, "--json").document == {"group": name, "paused": False}
    assert len(cli("consume", name, topic).lines) == 1
    assert cli("group", "pause", "nobody").code == 4
