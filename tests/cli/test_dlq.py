"""`txsaga dlq` and `txsaga consume` through the entry point."""

from __future__ import annotations

import base64
import json
from datetime import timedelta

import pytest

from tests.cli.conftest import Cli
from tests.services.databases import fresh_name
from txsaga.broker import Broker
from txsaga.consume.claim import Burial
from txsaga.consume.dead_letter import Copy


@pytest.fixture
def group(cli: Cli, broker: Broker, topic: str) -> str:
    """Give a group with one dead letter."""
    name = fresh_name("billing")
    broker.create_group(name, max_attempts=1, first_retry=timedelta(0))
    cli("send", topic, "broken\x1b[2J", "--key", "7")
    with broker.consumer(name, [topic]) as consumer:
        (message,) = consumer.receive()
        message.nack("no such product")
    return name


def test_a_letter_is_listed_shown_replayed_and_gone(cli: Cli, group: str, topic: str) -> None:
    (listed,) = cli("dlq", "list", "--group", group, "--json").documents
    assert (listed["cause"], listed["attempts"], listed["message"]["topic"]) == ("no such product", 1, topic)
    assert [line for line in cli("dlq", "list", "--group", group).lines if "no such product" in line]
    shown = cli("dlq", "show", str(listed["id"]))
    assert any(line.endswith("key=7 broken\\x1b[2J") for line in shown.lines)
    assert (shown.code, shown.lines[-1].split()[-3:]) == (0, ["no", "such", "product"])
    assert cli("status", "--json").document["dead_letters"][group] == 1
    assert cli("dlq", "replay", str(listed["id"])).out == "1 replayed\n"
    again = json.loads(cli("consume", group, topic, "--json").out)
    assert (again["id"], again["body"]) == (listed["message"]["id"], "broken\x1b[2J")
    assert cli("dlq", "list", "--group", group, "--json").documents == []


def test_a_letter_that_nobody_can_read_is_shown_with_its_bytes(cli: Cli, broker: Broker, topic: str) -> None:
    name = fresh_name("billing")
    cli("send", topic, "lost", "--key", "7")
    with broker.consumer(name, [topic]) as consumer:
        (message,) = consumer.receive()
        copy = Copy(message.id, message.delivered.born, b"\xffdamaged")
        broker.kernel.store.claims.bury(message.claim, Burial(copy, topic, "a disk", None))
    (listed,) = cli("dlq", "list", "--group", name, "--json").documents
    assert (listed["message"]["id"], listed["message"]["topic"]) == (message.id, topic)
    assert base64.b64decode(listed["message"]["stored"]) == copy.body
    shown = cli("dlq", "show", str(listed["id"]))
    assert (shown.code, [line for line in shown.lines if "can't be read" in line]) == (0, [shown.lines[6]])
    assert cli("dlq", "show", str(listed["id"]), "--json").document["message"] == listed["message"]


def test_all_letters_of_a_group_are_purged(cli: Cli, group: str) -> None:
    assert cli("dlq", "purge", "--group", group, "--all", "--json").document == {"purged": 1}
    assert cli("dlq", "purge", "--group", group, "--all").out == "0 purged\n"


def test_a_letter_of_another_group_than_the_one_named_stays(cli: Cli, group: str) -> None:
    (letter,) = cli("dlq", "list", "--group", group, "--json").documents
    for command in ("purge", "replay"):
        said = cli("dlq", command, str(letter["id"]), "--group", "another")
        assert (said.code, said.out, f"belongs to group '{group}'" in said.complaint) == (2, "", True)
    assert cli("dlq", "purge", str(letter["id"]), "--group", group).out == "1 purged\n"


def test_a_letter_whose_copy_waits_already_is_said_to_stay(cli: Cli, broker: Broker, group: str, topic: str) -> None:
    (letter,) = cli("dlq", "list", "--group", group, "--json").documents
    broker.reset_group(group, "earliest", dry_run=False)
    with broker.consumer(group, [topic]) as consumer:
        (message,) = consumer.receive()
        assert cli("dlq", "replay", str(letter["id"])).out == "1 replayed\n"
        message.nack("again")
    (again,) = cli("dlq", "list", "--group", group, "--json").documents
    said = cli("dlq", "replay", str(again["id"]), str(again["id"]))
    assert said.lines == [
        "0 replayed",
        "1 stayed: an earlier replay is still waiting, or the group no longer exists",
    ]
    assert cli("dlq", "replay", "--group", group, "--all", "--json").document == {"replayed": 0, "stayed": 1}
    assert len(cli("consume", group, topic).lines) == 1
    assert cli("dlq", "replay", str(again["id"])).out == "1 replayed\n"


def test_all_letters_are_replayed_page_by_page_and_those_that_die_meanwhile_wait(
    cli: Cli, broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txsaga.consume.groups.PAGE", 2)
    name = fresh_name("billing")
    broker.create_group(name, max_attempts=1)
    for body in map(str, range(5)):
        cli("send", topic, body, "--key", "same")
    with broker.consumer(name, [topic]) as consumer:

        def fail(count: int) -> None:
            for _ in range(count):
                (message,) = consumer.receive()
                message.nack("again")

        fail(5)
        pages = broker.dead_letters.pages(name)
        assert len(ids := next(pages)) == 2
        assert broker.dead_letters.replay(ids) == 2
        fail(2)
        assert [len(page) for page in pages] == [2, 1]
    assert cli("dlq", "replay", "--group", name, "--all").out == "5 replayed\n"
    assert len(cli("consume", name, topic).lines) == 5


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("show", "987654321"), 4, "dead letter 987654321 does not exist"),
        (("replay", "987654321"), 4, "dead letter 987654321 does not exist"),
        (("show", "9" * 30), 2, "is not a whole number from 0"),
        (("purge", "9" * 30), 2, "is not a whole number from 0"),
        (("replay", "٣"), 2, "is not a whole number from 0"),
        (("replay", "--group", "nobody", "--all"), 4, "'nobody' does not exist"),
        (("purge", "--group", "nobody", "--all"), 4, "'nobody' does not exist"),
        (("purge",), 2, "IDS"),
        (("replay", "--all"), 2, "needs --group, and takes no ids"),
        (("replay", "1", "--all", "--group", "x"), 2, "needs --group, and takes no ids"),
        (("list", "--limit", "0"), 2, "--limit"),
    ],
)
def test_a_mistake_is_one_line(cli: Cli, words: tuple[str, ...], code: int, told: str) -> None:
    said = cli("dlq", *words)
    assert (said.code, said.out) == (code, "")
    assert told in said.complaint


def test_consume_takes_so_many_and_leaves_the_rest(cli: Cli, topic: str) -> None:
    group = fresh_name("reader")
    for body in ("one", "two", "three"):
        cli("send", topic, body, "--key", "same")
    first = cli("consume", group, topic, "--count", "1")
    assert [line.split()[-1] for line in first.lines] == ["one"]
    assert [line.split()[-1] for line in cli("consume", group, topic).lines] == ["two", "three"]
    assert cli("consume", group, topic).out == ""


def test_a_group_reads_in_one_way_only(cli: Cli, topic: str) -> None:
    group = fresh_name("reader")
    cli("tail", topic, "--group", group)
    said = cli("consume", group, topic)
    assert (said.code, said.out) == (3, "")
    assert "is read as a stream in this store and can't also be processed message by message" in said.complaint


def test_a_topic_is_altered(cli: Cli, topic: str) -> None:
    kept = cli("topic", "alter", topic, "--retention", "60", "--json").document
    assert (kept["retention_seconds"], kept["retention_bytes"]) == (60, None)
    kept = cli("topic", "alter", topic, "--retention-bytes", "1000", "--json").document
    assert (kept["retention_seconds"], kept["retention_bytes"]) == (60, 1000)
    assert cli("topic", "alter", topic, "--keep", "--json").document["retention_seconds"] is None
    assert cli("topic", "alter", "nowhere", "--keep").code == 3
    assert cli("topic", "alter", topic).code == 2
