"""`txsaga send` through the entry point: what it sends arrives, what is wrong is not stored."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Cli
from tests.scene.stored import Stored
from tests.services.databases import fresh_name
from txsaga.broker import Broker
from txsaga.core.message import MAX_BODY, MAX_KEY
from txsaga.rocketmq import TransactionMQProducer

pytestmark = pytest.mark.core


def test_a_message_arrives_as_it_was_sent(cli: Cli, topic: str) -> None:
    words = ("--key", "k", "--tag", "t", "--header", "a=b=c", "--header", "d=", "--ordering-key", "o")
    sent = cli("send", topic, "grüß [red]dich", *words, "--json").document
    assert (sent["topic"], sent["bytes"]) == (topic, len("grüß [red]dich".encode()))
    (message,) = cli("tail", topic, "--json").documents
    assert message["body"] == "grüß [red]dich"
    assert (message["key"], message["tag"], message["ordering_key"]) == ("k", "t", "o")
    assert message["headers"] == {"a": "b=c", "d": ""}
    assert message["tx_id"] == sent["id"]


@pytest.mark.parametrize("words", [(), ("-",)])
def test_the_body_may_come_from_standard_input(cli: Cli, topic: str, words: tuple[str, ...]) -> None:
    said = cli("send", topic, *words, stdin=b"\xff\x00line\n")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith(f"sent 7 bytes to {topic} as ")
    (message,) = cli("tail", topic, "--json").documents
    assert (message["body"], message["encoding"]) == ("/wBsaW5lCg==", "base64")


def test_an_empty_body_and_one_that_looks_like_an_option_are_bodies(cli: Cli, topic: str) -> None:
    assert cli("send", topic, "").code == 0
    assert cli("send", topic, "--", "--json").code == 0
    messages = cli("tail", topic, "--json").documents
    assert sorted(message["body"] for message in messages) == ["", "--json"]


@pytest.mark.req("RMQ-33")
@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("x", "--key", "k" * (MAX_KEY + 1)), 3, "the key has 1,025 bytes"),
        (("x", "--header", "nonsense"), 2, "name=value"),
        (("x", "--group", "a b"), 3, "producer group name"),
        (("x", "--group", "rmq_sys_me"), 3, "system name"),
    ],
)
def test_a_bad_message_is_refused_before_anything_is_stored(
    cli: Cli, topic: str, stored: Stored, words: tuple[str, ...], code: int, told: str
) -> None:
    before = stored.value("SELECT count(*) FROM half")
    said = cli("send", topic, *words)
    assert (said.code, said.out) == (code, "")
    assert told in said.complaint
    assert stored.value("SELECT count(*) FROM half") == before


@pytest.mark.req("RMQ-33")
def test_a_body_that_is_too_big_is_refused(cli: Cli, topic: str, stored: Stored) -> None:
    before = stored.value("SELECT count(*) FROM half")
    said = cli("send", topic, stdin=b"x" * (MAX_BODY + 1))
    assert said.code == 3
    assert "4,194,305 bytes" in said.complaint
    assert stored.value("SELECT count(*) FROM half") == before


class Listener:
    """RocketMQ's shape: its group takes no plain producers."""

    def execute_local_transaction(self, message: object, arg: object) -> None:
        """Not called here."""

    def check_local_transaction(self, question: object) -> None:
        """Not called here."""


@pytest.mark.req("RMQ-65", "RMQ-76")
def test_topics_and_groups_for_transactions_are_not_for_plain_messages(
    cli: Cli, broker: Broker, flow: str, topic: str
) -> None:
    wrong_topic = cli("send", flow, "x")
    assert wrong_topic.code == 3
    assert "of type transaction" in wrong_topic.complaint
    TransactionMQProducer(broker, f"shop-{flow}", Listener())
    wrong_group = cli("send", topic, "x", "--group", f"shop-{flow}")
    assert wrong_group.code == 3
    assert "transactional in this store" in wrong_group.complaint


def test_an_ordered_topic_asks_for_an_ordering_key(cli: Cli, broker: Broker, topic: str) -> None:
    fifo = broker.create_topic(f"{topic}-fifo", "fifo").name
    said = cli("send", fifo, "x")
    assert said.code == 3
    assert "ordering_key" in said.complaint
    assert cli("send", fifo, "x", "--ordering-key", "o").code == 0


@pytest.fixture
def later(broker: Broker) -> str:
    """Give a fresh topic for messages for later."""
    return broker.create_topic(fresh_name("later"), "delay", queues=1).name


def test_a_message_for_later_waits_and_comes_where_no_engine_runs(cli: Cli, later: str, stored: Stored) -> None:
    moment = "2100-01-31T12:00:00+02:00"
    for words in (("--delay", "12h"), ("--deliver-at", moment), ("--deliver-at", "2000-01-31T12:00:00Z")):
        said = cli("send", later, words[1], *words)
        assert (said.code, said.err) == (0, "")
        assert said.out.endswith(", for later\n")
    (message,) = cli("tail", later, "--json").documents
    assert message["body"] == "2000-01-31T12:00:00Z"
    views = [view for view in cli("tx", "list", "--json").documents if view["state"] == "scheduled"]
    assert next(view["due"][:19] for view in views) == "2100-01-31T10:00:00"
    assert cli("status", "--json").document["scheduled"] == 2
    stored.rows("UPDATE scheduled SET at = now()")
    assert [message["body"] for message in cli("tail", later, "--json").documents][1:] == ["12h", moment]


def test_a_message_for_later_is_taken_back_by_hand(cli: Cli, later: str, stored: Stored) -> None:
    id = cli("send", later, "x", "--delay", "1h", "--json").document["id"]
    assert cli("tx", "rollback", id, "--reason", "sent by mistake").code == 0
    assert cli("tx", "show", id, "--json").document["state"] == "rolled_back"
    stored.rows("UPDATE scheduled SET at = now()")
    assert cli("tail", later, "--json").documents == []


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("--delay", "soon"), 2, "not a length of time"),
        (("--delay", "41d"), 3, "40 days"),
        (("--delay", "0"), 3, "between 0"),
        (("--deliver-at", "tomorrow"), 2, "is not a time"),
        (("--deliver-at", "2030-01-01"), 2, "add one, like 2030-01-01T00:00:00Z"),
        (("--deliver-at", "2030-01-01T00:00:00Z", "--delay", "1m"), 3, "give one"),
        ((), 3, "delayed messages only"),
    ],
)
def test_a_time_that_means_nothing_is_refused(
    cli: Cli, later: str, stored: Stored, words: tuple[str, ...], code: int, told: str
) -> None:
    before = stored.value("SELECT count(*) FROM half")
    said = cli("send", later, "x", *words)
    assert (said.code, said.out) == (code, "")
    assert told in said.complaint
    assert stored.value("SELECT count(*) FROM half") == before
