"""`txsaga db` through the entry point: an embedded server from start to end, schemas and identities."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import NullPool, create_engine, text

from tests.cli.conftest import Cli
from tests.scene.stored import Stored
from tests.services.databases import fresh_name
from tests.services.embedded import temporary_home


@pytest.fixture
def empty_home() -> Iterator[Path]:
    """Give a folder for an embedded server; what runs there is stopped."""
    with temporary_home() as folder:
        yield folder / "pg"


def reaches(url: str) -> bool:
    """Tell whether a URL leads to a database."""
    with psycopg.connect(url) as connection:
        return connection.execute("select current_database()").fetchone() == ("txsaga",)


@pytest.mark.slow
@pytest.mark.req("BEYOND-8")
def test_an_embedded_database_from_start_to_end(bare: Cli, empty_home: Path) -> None:
    env = {"TXSAGA_PG_HOME": str(empty_home)}
    assert bare("db", "status", "--json", **env).document["running"] is False

    first = bare("db", "start", "--json", **env).document
    assert (first["running"], first["home"]) == (True, str(empty_home))
    assert bare("db", "start", "--json", **env).document["pid"] == first["pid"]
    assert ["running", "yes"] in [line.split() for line in bare("db", "status", **env).lines]

    assert reaches(bare("db", "url", **env).out.strip())
    assert reaches(bare("db", "url", "--socket", "--json", **env).document["url"])
    assert bare("db", "url", "--jdbc", **env).out == f"jdbc:postgresql://127.0.0.1:{first['port']}/txsaga\n"
    assert bare("db", "url", "--namespace", "n", **env).out.endswith("?namespace=n\n")
    assert bare("db", "url", "--jdbc", "--socket", **env).code == 2

    # Without a URL every command uses it, and the first one migrates it; a namespace that is named must exist.
    assert bare("topic", "create", "orders", **env).code == 0
    for words in (("topic", "list"), ("status",), ("topic", "create", "orders")):
        missing = bare(*words, "--namespace", "typo", **env)
        assert "namespace 'typo' has schema none" in missing.complaint
        assert missing.complaint.endswith("run `txsaga --namespace typo db migrate`")
    assert bare("db", "migrate", "--namespace", "other", **env).code == 0
    assert bare("topic", "list", "--namespace", "other", "--json", **env).documents == []
    assert [topic["name"] for topic in bare("topic", "list", "--json", **env).documents] == ["orders"]

    asked = bare("db", "reset", **env)
    assert (asked.code, asked.out) == (2, "")
    assert "--yes" in asked.complaint
    assert bare("db", "stop", "--json", **env).document["running"] is False
    assert bare("db", "stop", **env).code == 0
    assert bare("db", "reset", "--yes", **env).code == 0
    assert not (empty_home / "data").exists()


def test_a_database_of_the_server_is_created_once(bare: Cli, home_url: str) -> None:
    name = fresh_name("bank")
    first = bare("db", "create", name, "--url", home_url).out.strip()
    with create_engine(first, poolclass=NullPool).connect() as connection:
        assert connection.scalar(text("SELECT current_database()")) == name
    assert bare("db", "create", name, "--url", home_url, "--json").document == {"url": first}
    refused = bare("db", "create", "Two Words", "--url", home_url)
    assert (refused.code, "is not a database name" in refused.complaint) == (2, True)


@pytest.mark.slow
def test_asking_for_the_url_starts_the_server_of_a_fresh_home_and_a_stopped_one(bare: Cli, empty_home: Path) -> None:
    env = {"TXSAGA_PG_HOME": str(empty_home)}
    for _ in range(2):
        assert reaches(bare("db", "url", **env).out.strip())
        assert bare("db", "stop", **env).code == 0


def test_a_damaged_data_folder_is_for_an_administrator(bare: Cli, empty_home: Path) -> None:
    (empty_home / "data").mkdir(parents=True)
    (empty_home / "data" / "PG_VERSION").write_text("18\n")
    said = bare("db", "start", TXSAGA_PG_HOME=str(empty_home))
    assert (said.code, "global/pg_control is missing" in said.complaint) == (7, True)


def test_a_place_that_cannot_be_written_is_told(bare: Cli) -> None:
    for words in (("db", "start"), ("topic", "list")):
        said = bare(*words, TXSAGA_PG_HOME="/proc/txsaga")
        assert (said.code, said.out) == (6, "")
        assert "/proc/txsaga" in said.complaint
        assert "TXSAGA_PG_HOME" in said.complaint


@pytest.mark.parametrize("word", ["start", "stop", "status", "url", "reset"])
def test_the_embedded_database_has_no_url_option(bare: Cli, word: str) -> None:
    said = bare("db", word, "--url", "postgresql://host/name")
    assert (said.code, "leave out --url" in said.complaint) == (3, True)


def test_a_namespace_is_migrated_once(bare: Cli, home_url: str) -> None:
    namespace = Stored(home_url).namespace
    first = bare("db", "migrate", "--json", "--url", home_url).document
    assert (first["namespace"], first["before"]) == (namespace, None)
    said = bare("db", "migrate", "--url", home_url)
    assert (said.code, said.out) == (0, f"namespace {namespace} has schema {first['after']} already\n")
    assert bare("topic", "list", "--url", home_url).code == 0


def test_a_namespace_on_the_line_is_the_one_that_is_migrated(bare: Cli, home_url: str) -> None:
    other = f"{Stored(home_url).namespace}_other"
    assert bare("db", "migrate", "--url", home_url, "--namespace", other, "--json").document["namespace"] == other
    assert bare("topic", "list", "--url", home_url).code == 7


@pytest.mark.rule("R8")
def test_a_store_on_another_server_is_adopted(bare: Cli, own_url: str) -> None:
    words = ("--url", own_url)
    at_home = bare("db", "adopt", *words)
    assert (at_home.code, "already belongs to this server" in at_home.complaint) == (3, True)
    Stored(own_url).rows("UPDATE store SET system_identifier = 1")
    moved = bare("topic", "list", *words)
    assert (moved.code, "`txsaga db adopt`" in moved.complaint) == (7, True)
    adopted = bare("db", "adopt", "--json", *words).document
    assert adopted["incarnation"] == 2
    assert bare("status", "--json", *words).document["store"] == adopted
    assert bare("db", "adopt", "--force", *words).out.endswith("incarnation 3; restart its engines\n")


def test_a_namespace_without_a_schema_cannot_be_adopted(bare: Cli, home_url: str) -> None:
    said = bare("db", "adopt", "--url", home_url)
    assert (said.code, "db migrate`" in said.complaint) == (7, True)
