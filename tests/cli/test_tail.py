"""`txsaga tail` through the entry point."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Cli
from tests.cli.program import Said
from tests.scene.stored import Stored
from txsaga.broker import Broker

pytestmark = pytest.mark.core


@pytest.fixture
def letters(broker: Broker, topic: str) -> str:
    """Give a topic with the messages a to e in one queue, as one chunk of three and two single ones."""
    producer = broker.producer("letters")
    producer.send_many(topic, [b"a", b"b", b"c"], keys=["k"] * 3, tags=["odd", "even", "odd"])
    for letter, tag in (("d", "even"), ("e", "odd")):
        producer.send(topic, letter.encode(), key="k", tag=tag)
    return topic


def bodies(said: Said) -> str:
    """Return the bodies of a JSON answer, in order."""
    assert (said.code, said.err) == (0, "")
    return "".join(message["body"] for message in said.documents)


def test_everything_is_read_again_and_again_and_nothing_is_kept(cli: Cli, letters: str, stored: Stored) -> None:
    for _ in range(2):
        assert bodies(cli("tail", letters, "--json")) == "abcde"
    sql = "SELECT count(*) FROM cursor JOIN queue USING (qid) JOIN topic t ON t.id = topic WHERE t.name = :name"
    assert stored.value(sql, name=letters) == 0


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("--from", "latest"), ""),
        (("--from", "2"), "cde"),
        (("--from", "1", "--count", "2"), "bc"),
        (("--tag", "even"), "bd"),
        (("--tag", "even", "--count", "1"), "b"),
        (("--from", "2999-01-01T00:00:00Z"), ""),
        (("--from", "2001-01-01T00:00:00+02:00"), "abcde"),
    ],
)
def test_reading_begins_and_ends_where_it_is_told(cli: Cli, letters: str, words: tuple[str, ...], wanted: str) -> None:
    assert bodies(cli("tail", letters, *words, "--json")) == wanted


def test_a_line_for_people_cannot_move_the_cursor(cli: Cli, topic: str) -> None:
    cli("send", topic, "one\ntwo\x1b[2J", "--key", "k\tk", "--header", "a=b")
    (line,) = cli("tail", topic).lines
    place, rest = line.split(" ", 1)
    assert place.startswith(f"{topic}/")
    assert rest == r"key=k\tk a=b one\ntwo\x1b[2J"


def test_a_group_goes_on_where_it_stopped(cli: Cli, letters: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txsaga.cli.messages.QUIET", 0.1)
    words = ("tail", letters, "--group", f"readers-{letters}", "--json")
    assert [bodies(cli(*words, "--count", "2")), bodies(cli(*words)), bodies(cli(*words))] == ["ab", "cde", ""]


def test_following_prints_a_document_per_line(cli: Cli, letters: str) -> None:
    said = cli("tail", letters, "--follow", "--json", "--count", "5")
    assert [json.loads(line)["body"] for line in said.lines] == list("abcde")


def test_several_topics_are_read_together(cli: Cli, letters: str, broker: Broker) -> None:
    other = broker.create_topic(f"{letters}-2", queues=1).name
    cli("send", other, "x")
    assert sorted(bodies(cli("tail", letters, other, "--json"))) == list("abcdex")


@pytest.mark.req("RMQ-03")
def test_a_half_is_not_there_before_its_commit(cli: Cli, broker: Broker, flow: str) -> None:
    producer = broker.producer("shop", checker=lambda question: None)
    receipt = producer.prepare_now(flow, b"half")
    assert cli("tail", flow).out == ""
    producer.commit(receipt)
    assert bodies(cli("tail", flow, "--json")) == "half"


@pytest.mark.parametrize(
    ("start", "code", "told"),
    [
        ("2026-01-01T00:00:00", 2, "add one, like 2026-01-01T00:00:00Z"),
        ("2026-01-01", 2, "no time zone; add one, like 2026-01-01T00:00:00Z"),
        ("yesterday", 2, "is not earliest, latest"),
        ("-1", 2, "is not earliest, latest"),
        ("9" * 5000, 2, "is not earliest, latest"),
    ],
)
def test_a_start_that_means_nothing_certain_is_refused(cli: Cli, topic: str, start: str, code: int, told: str) -> None:
    said = cli("tail", topic, "--from", start)
    assert (said.code, said.out) == (code, "")
    assert told in said.complaint
