"""`txsaga topic` through the entry point."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Cli
from tests.services.databases import fresh_name
from txsaga.broker import Broker

pytestmark = pytest.mark.core


def test_a_topic_is_created_once_and_found_again(cli: Cli) -> None:
    name = fresh_name("orders")
    words = ("topic", "create", name, "--type", "transaction", "--queues", "3")
    for _ in range(2):
        said = cli(*words)
        assert (said.code, said.err) == (0, "")
        assert said.out == f"topic {name} of type transaction has 3 queues\n"
    assert cli(*words, "--json").document == {"name": name, "type": "transaction", "queues": 3}


def test_topics_are_listed_and_shown(cli: Cli, topic: str) -> None:
    cli("send", topic, "hello", "--key", "a")
    (mine,) = [each for each in cli("topic", "list", "--json").documents if each["name"] == topic]
    assert (mine["type"], mine["messages"], len(mine["heads"])) == ("normal", 1, 2)
    assert cli("topic", "show", topic, "--json").document == mine
    shown = cli("topic", "show", topic)
    assert shown.lines[0].split() == ["name", topic]
    assert [line.split() for line in cli("topic", "list").lines if topic in line] == [[topic, "normal", "2", "1"]]


def test_other_settings_of_an_existing_topic_are_refused(cli: Cli, topic: str) -> None:
    said = cli("topic", "create", topic, "--queues", "5")
    assert said.code == 3
    assert "exists as normal with 2 queues" in said.complaint


@pytest.mark.req("RMQ-97")
@pytest.mark.parametrize("name", ["RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_mine", "TRANS_CHECK_MAX_TIME_TOPIC"])
def test_a_system_name_can_neither_be_created_nor_used(cli: Cli, name: str) -> None:
    for words in (("topic", "create", name), ("send", name, "x"), ("tail", name)):
        said = cli(*words)
        assert (said.code, said.out) == (3, ""), words
        assert "system name" in said.complaint


@pytest.mark.parametrize("value", ["inf", "1e300", "nan", "-1", "3153600001"])
def test_a_retention_has_an_end(cli: Cli, broker: Broker, value: str) -> None:
    name = fresh_name("orders")
    said = cli("topic", "create", name, "--retention", value)
    assert (said.code, said.out) == (2, "")
    assert "--retention" in said.complaint
    assert name not in [topic.name for topic in broker.kernel.store.registry.topics()]


def test_what_is_kept_is_told(cli: Cli) -> None:
    name = fresh_name("orders")
    assert cli("topic", "create", name, "--retention", "3600", "--retention-bytes", "1000000").code == 0
    shown = cli("topic", "show", name, "--json").document
    assert (shown["retention_seconds"], shown["retention_bytes"]) == (3600, 1_000_000)
    again = cli("topic", "create", name, "--retention", "1h")
    assert again.code == 3
    assert "exists as normal with 8 queues, retention 3600 s and 1000000 bytes" in again.complaint


@pytest.mark.parametrize("words", [("a b",), ("a", "--queues", "0"), ("a", "--type", "loud"), ()])
def test_a_malformed_topic_is_refused(cli: Cli, words: tuple[str, ...]) -> None:
    said = cli("topic", "create", *words)
    assert (said.code, said.out) == (3 if words == ("a b",) else 2, "")
    assert said.complaint.startswith("txsaga: ")


def test_a_topic_is_purged_and_deleted_after_a_look_at_what_goes(cli: Cli, topic: str) -> None:
    cli("send", topic, "one")
    said = cli("topic", "purge", topic)
    assert (said.code, said.out) == (0, f"messages in {topic}: 1; nothing was changed; pass --yes to do it\n")
    assert cli("topic", "delete", topic, "--json").document == {"name": topic, "messages": 1, "done": False}
    assert cli("topic", "purge", topic, "--yes").out == f"messages dropped from {topic}: 1\n"
    assert cli("tail", topic).out == ""
    cli("send", topic, "two")
    assert cli("topic", "delete", topic, "--yes", "--json").document == {"name": topic, "messages": 1, "done": True}
    for words in (("show",), ("purge", "--yes"), ("delete", "--yes")):
        gone = cli("topic", words[0], topic, *words[1:])
        assert (gone.code, gone.out) == (3, "")
        assert f"topic '{topic}' does not exist" in gone.complaint
    assert cli("topic", "create", topic).code == 0
    assert cli("tail", topic).out == ""


def test_a_topic_that_is_needed_stays_and_says_what_to_do(cli: Cli, broker: Broker, topic: str, flow: str) -> None:
    name = fresh_name("billing")
    cli("send", topic, "one")
    cli("consume", name, topic)
    said = cli("topic", "delete", topic, "--yes")
    assert (said.code, said.out) == (5, "")
    assert f"is read by group {name}; remove each with" in said.complaint
    assert cli("group", "leave", name, "--topic", topic, "--yes").code == 0
    producer = broker.producer("cli-tests", checker=lambda _: None)
    receipt = producer.prepare_now(flow, b"a")
    said = cli("topic", "delete", flow, "--yes")
    assert said.code == 5
    assert f"transaction {receipt.txid}, which is undecided" in said.complaint
    producer.roll_back(receipt)
    for each in (topic, flow):
        assert cli("topic", "delete", each, "--yes").out == f"deleted {each}\n"


def test_the_type_of_an_empty_topic_is_altered(cli: Cli, topic: str) -> None:
    cli("topic", "alter", topic, "--retention", "1h")
    cli("send", topic, "one")
    said = cli("topic", "alter", topic, "--type", "fifo")
    assert said.code == 5
    assert f"has messages (1); drop them with `txsaga topic purge {topic} --yes`" in said.complaint
    cli("topic", "purge", topic, "--yes")
    altered = cli("topic", "alter", topic, "--type", "fifo", "--json").document
    assert (altered["type"], altered["retention_seconds"]) == ("fifo", 3600)
    assert cli("topic", "alter", topic).code == 2
    assert cli("topic", "alter", topic, "--keep", "--retention", "1h").code == 2
