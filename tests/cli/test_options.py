"""The common options may stand anywhere; somebody's text behind `--` is left alone."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Cli
from txsaga.cli.options import in_front
from txsaga.config import with_namespace

pytestmark = pytest.mark.core


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("topic list --json", "--json topic list"),
        ("topic --url u list --namespace=n", "--url u --namespace=n topic list"),
        ("send t -- --json --url", "send t -- --json --url"),
        ("send t --key --tag x", "send t --key --tag x"),
        ("--debug topic list", "--debug topic list"),
        ("", ""),
    ],
)
def test_common_options_move_to_the_front(line: str, wanted: str) -> None:
    assert in_front(line.split()) == wanted.split()


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("postgresql://h/d", "postgresql://h/d?namespace=n"),
        ("postgresql://h/d?namespace=old", "postgresql://h/d?namespace=n"),
        ("postgresql:///d?host=%2Ftmp&namespace=old&port=1", "postgresql:///d?host=%2Ftmp&port=1&namespace=n"),
    ],
)
def test_a_namespace_takes_the_place_of_the_one_in_the_url(url: str, wanted: str) -> None:
    assert with_namespace(url, "n") == wanted
    assert with_namespace(url, None) == url


def test_an_option_without_its_value_is_a_usage_error(bare: Cli) -> None:
    said = bare("topic", "list", "--url")
    assert (said.code, said.out) == (2, "")
    assert "--url" in said.complaint


def test_the_url_on_the_line_wins_over_the_environment(bare: Cli, shared_url: str, topic: str) -> None:
    said = bare("topic", "show", topic, "--url", shared_url, TXSAGA_URL="postgresql://nobody@127.0.0.1:1/none")
    assert said.code == 0
    assert topic in said.out


def test_an_empty_url_is_not_taken_for_the_embedded_database(bare: Cli) -> None:
    assert bare("topic", "list", "--url", "").code == 3


NO_NUMBERS = ["٣", "²", "1_000", " 1 ", "+1", "-1", "1.0", "0x1", ""]


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_a_number_is_written_in_the_digits_0_to_9(cli: Cli, topic: str, text: str) -> None:
    for words in (
        ("tx", "list", f"--limit={text}"),
        ("tail", topic, f"--count={text}"),
        ("tail", topic, f"--from={text}"),
        ("topic", "create", "uncounted", f"--queues={text}"),
        ("dlq", "show", "--", text),
        ("tx", "show", "--", text),
        ("saga", "skip", "1", f"--step={text}", "--reason=r"),
        ("branch", "list", f"--after=1.1.{text}"),
    ):
        said = cli(*words)
        assert (said.code in (2, 3, 4), said.out) == (True, ""), (words, said)
        assert "unexpected" not in said.complaint


def test_numbers_that_are_too_long_lead_nowhere(cli: Cli) -> None:
    for number in ("9" * 19, "9" * 30, "9" * 5_000):
        said = cli("tx", "show", number)
        assert (said.code, "is not in this store" in said.complaint) == (4, True)
    assert cli("tx", "list", "--limit", "9" * 5_000).code == 2
