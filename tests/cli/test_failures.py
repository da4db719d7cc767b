"""Every failure is one line that says what to do, with the code of its kind; never a traceback."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.engine import make_url

from tests.cli.conftest import Cli
from tests.scene.stored import Stored
from tests.services.databases import fresh_name
from tests.services.free_port import free_port
from txsaga.cli import __main__ as program

pytestmark = pytest.mark.core

COMMANDS = (
    ("topic", "list"),
    ("topic", "create", "orders"),
    ("topic", "show", "orders"),
    ("send", "orders", "x"),
    ("tail", "orders"),
    ("tx", "list"),
    ("tx", "show", "1"),
    ("tx", "commit", "1", "--reason", "r"),
    ("tx", "settle"),
    ("status",),
    ("engine",),
    ("engine", "--once"),
)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
class TestEveryCommand:
    def test_without_a_schema_it_says_how_to_get_one(self, bare: Cli, home_url: str, words: tuple[str, ...]) -> None:
        said = bare(*words, TXSAGA_URL=home_url)
        assert (said.code, said.out) == (7, "")
        assert said.complaint.endswith(f"run `txsaga --namespace {Stored(home_url).namespace} db migrate`")

    def test_a_url_that_is_none_is_told(self, bare: Cli, words: tuple[str, ...]) -> None:
        said = bare(*words, TXSAGA_URL="nonsense")
        assert (said.code, said.out) == (3, "")
        assert "is not a database URL" in said.complaint


@pytest.mark.parametrize("words", [words for words in COMMANDS if words != ("engine",)], ids=" ".join)
def test_without_a_server_what_does_not_wait_for_one_says_that_nobody_answers(
    bare: Cli, words: tuple[str, ...]
) -> None:
    said = bare(*words, TXSAGA_URL=f"postgresql://anna@127.0.0.1:{free_port()}/home")
    assert (said.code, said.out) == (6, "")
    assert "did not answer" in said.complaint


@pytest.mark.parametrize(
    ("url", "code", "told"),
    [
        ("mysql://anna@host/home", 3, "the home database is PostgreSQL"),
        ("postgresql://anna@host:port/home", 3, "is not a database URL"),
        ("postgresql://anna@host", 3, "names no database"),
        ("postgresql://anna:secret@host/home?namespace=A%20B", 3, "namespace"),
        ("postgresql:///home?host=/nowhere", 6, "`txsaga db start` starts an embedded one"),
        ("postgresql://anna@127.0.0.1:1/home?nonsense=1", 3, "the URL can't be used"),
        ("postgresql://anna@127.0.0.1:1/home?connect_timeout=x", 3, "the URL can't be used"),
        ("postgresql://anna@127.0.0.1:1/home?port=x", 3, "write one port for each host"),
        ("postgresql://anna@127.0.0.1:1/home?namespace=a&namespace=b", 3, "the URL gives namespace more than once"),
    ],
)
def test_a_wrong_url_is_told_without_its_password(bare: Cli, url: str, code: int, told: str) -> None:
    said = bare("topic", "list", "--url", url)
    assert (said.code, said.out) == (code, "")
    assert told in said.complaint
    assert "secret" not in said.err


@pytest.mark.parametrize(
    ("name", "told"), [("", "the namespace is empty"), ("a&host=b", "namespace 'a&host=b' is invalid")]
)
def test_a_namespace_that_is_none_is_refused(bare: Cli, name: str, told: str) -> None:
    said = bare("topic", "list", "--namespace", name, "--url", "postgresql://anna@127.0.0.1:1/home")
    assert (said.code, said.out) == (3, "")
    assert told in said.complaint


@pytest.mark.parametrize("words", [("tx", "reject", "maybe"), ("topic", "create", "loud", "--type", "loud")])
def test_what_can_be_chosen_is_told_in_our_words(bare: Cli, words: tuple[str, ...]) -> None:
    assert "' is not one of '" in bare(*words).complaint
    assert "Value error" not in bare(*words).complaint


def test_a_newer_schema_is_left_alone(bare: Cli, own_url: str) -> None:
    Stored(own_url).rows("UPDATE alembic_version SET version_num = '9999'")
    for words in (("topic", "list"), ("db", "migrate"), ("db", "adopt")):
        said = bare(*words, "--url", own_url)
        assert (said.code, said.out) == (7, ""), words
        assert "upgrade txsaga" in said.complaint


@pytest.mark.parametrize("words", [("topic", "show", "nowhere"), ("send", "nowhere", "x"), ("tail", "nowhere")])
def test_an_unknown_topic_is_told_with_the_command_that_creates_it(cli: Cli, words: tuple[str, ...]) -> None:
    said = cli(*words)
    assert (said.code, said.out) == (3, "")
    assert said.complaint == ("txsaga: topic 'nowhere' does not exist; create it with `txsaga topic create nowhere`")


@pytest.fixture
def stranger(home_database: str) -> Iterator[str]:
    """Give the URL of an account that may do nothing."""
    name, engine = fresh_name("stranger"), create_engine(home_database, poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text(f"create role {name} login password 'secret'"))
    yield make_url(home_database).set(username=name, password="secret").render_as_string(hide_password=False)
    with engine.begin() as connection:
        connection.execute(text(f"drop role {name}"))


def test_missing_rights_and_a_wrong_password_are_told(bare: Cli, stranger: str, shared_url: str) -> None:
    namespace = Stored(shared_url).namespace
    for words in (("topic", "list"), ("db", "migrate")):
        said = bare(*words, "--url", stranger, "--namespace", namespace)
        assert (said.code, said.out) == (7, ""), words
        assert "grant the right (`txsaga db grant`) or connect as another user" in said.complaint
    said = bare("topic", "list", "--url", stranger.replace("secret", "guess"))
    assert (said.code, "correct the user or the password" in said.complaint) == (7, True)
    said = bare("topic", "list", "--url", str(make_url(stranger).set(database="nowhere")).replace("***", "secret"))
    assert (said.code, "create the database or correct the URL" in said.complaint) == (3, True)


@pytest.mark.parametrize(
    ("setting", "value", "told"),
    [
        ("TXSAGA_RESOURCE_BILLING", "nonsense", "TXSAGA_RESOURCE_BILLING is not a database URL"),
        ("TXSAGA_RESOURCE_BILLING", "oracle://host/name", "TXSAGA_RESOURCE_BILLING needs a driver"),
        ("TXSAGA_OBSERVERS", "nonsense", "write module:callable"),
        ("TXSAGA_OBSERVERS", "no.such:thing", "can't be loaded"),
        ("TXSAGA_OBSERVERS", "a:b:c", "write module:callable"),
        ("TXSAGA_PARTICIPANT_A", "module", "write module:callable"),
        ("TXSAGA_SAGAS", "trips tours", "write modules, with commas between them"),
        ("TXSAGA_AUTO_CREATE", "maybe", "write 1 or 0"),
        ("TXSAGA_KILL", "abc", "write a fact and its count, like Decided:1"),
        ("TXSAGA_KILL", "Decided:²", "write a fact and its count, like Decided:1"),
        ("TXSAGA_KILL", "Decided:0", "write a fact and its count, like Decided:1"),
        ("TXSAGA_FACTS", "/nowhere/points", "write the path of a file in an existing folder"),
        ("TXSAGA_WAREHOUSE", "zz://x", "write a folder, or a URI of s3, "),
        ("TXSAGA_WAREHOUSE", "s3://key:word@bucket", "write a location without keys"),
        ("TXSAGA_CATALOG", "a'b", "write up to 64 letters, digits, _ and -"),
        ("TXSAGA_CATALOG", "a.b", "write up to 64 letters, digits, _ and -"),
        ("TXSAGA_AIRFLOW_NAME", "a/b", "write up to 64 letters, digits, dots"),
        ("TXSAGA_AIRFLOW_URL", "airflow:8080", "TXSAGA_AIRFLOW_URL is not an address of Airflow"),
        ("TXSAGA_AIRFLOW_URL", "http://host:port", "TXSAGA_AIRFLOW_URL is not an address of Airflow"),
        ("TXSAGA_AIRFLOW_HOME", "airflow", "write an absolute path"),
        ("TXSAGA_PG_HOME", "pg", "write an absolute path"),
        ("TXSAGA_SPARK_MASTER", "somewhere", "write local[N], spark://host:port or sc://host:port"),
    ],
)
def test_a_wrong_setting_is_told_by_its_name(cli: Cli, setting: str, value: str, told: str) -> None:
    said = cli("topic", "list", **{setting: value})
    assert (said.code, said.out) == (3, "")
    assert setting in said.complaint or setting == "TXSAGA_OBSERVERS"  # what can't be loaded is named by itself
    assert told in said.complaint


@pytest.mark.parametrize(
    "line", ["", "topic", "nonsense", "topic nonsense", "topic list more", "topic list --nonsense", "tail t --count x"]
)
def test_a_line_that_cannot_be_read_names_the_help(bare: Cli, line: str) -> None:
    said = bare(*line.split())
    if not line:
        assert (said.code, said.err) == (0, "")
        assert "Usage: txsaga" in said.out
        return
    assert (said.code, said.out) == (2, "")
    assert "--help`)" in said.complaint


@pytest.mark.parametrize(
    "line",
    [
        "tail t --count",
        "consume g t --count",
        "tx list --limit",
        "tx ballots --limit",
        "tx pending --limit",
        "dlq list --limit",
        "branch list --limit",
        "branch heuristics --limit",
        "saga list --limit",
        "group create g --max-attempts",
        "group alter g --max-attempts",
        "engine --max-checks",
        "producer alter g --max-checks",
        "airflow up --dags /nowhere --patience",
    ],
)
def test_a_number_that_nothing_can_count_to_is_refused(bare: Cli, line: str) -> None:
    said = bare(*line.split(), "9" * 20, TXSAGA_URL="nonsense")
    assert (said.code, said.out) == (2, "")
    assert f"'{line.split()[-1]}'" in said.complaint


def test_a_bug_is_one_line_and_a_traceback_on_request(bare: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(words: object) -> int:
        raise ZeroDivisionError("two\nlines")

    monkeypatch.setattr(program, "run", broken)
    said = bare("topic", "list")
    assert (said.code, said.out) == (1, "")
    assert said.complaint == (
        "txsaga: unexpected ZeroDivisionError: two lines (run it again with --debug for the traceback)"
    )
    asked = bare("topic", "list", "--debug")
    assert asked.code == 1
    assert "Traceback" in asked.err


def test_a_mistake_in_the_url_is_a_mistake_for_the_doctor_too(bare: Cli) -> None:
    said = bare("doctor", "--url", "nonsense")
    assert (said.code, said.out) == (3, "")
