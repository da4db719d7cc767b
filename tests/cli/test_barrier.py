"""`txsaga barrier` through the entry point."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine, inspect

from tests.cli.conftest import Cli
from tests.services.free_port import free_port
from txsaga.evidence.schema import ddl

TABLES = {"txsaga_database", "txsaga_evidence", "txsaga_inbox"}


@pytest.mark.parametrize("dialect", ["postgresql", "mysql", "mariadb", "sqlite"])
def test_the_sql_for_an_administrator_is_printed(bare: Cli, dialect: str) -> None:
    assert bare("barrier", "ddl", dialect).out == ddl(dialect)
    assert bare("barrier", "ddl", dialect, "--json").document == {"dialect": dialect, "sql": ddl(dialect)}


def test_the_tables_are_created_once(bare: Cli, foreign_databases: Callable[[], str]) -> None:
    url = foreign_databases()
    first, again = (bare("barrier", "create", url, "--json").document for _ in range(2))
    assert first["database"] == again["database"]
    assert set(inspect(create_engine(url, poolclass=NullPool)).get_table_names()) == TABLES
    said = bare("barrier", "create", url)
    assert first["database"] in said.out
    assert "***" in said.out  # never the password


def test_a_file_is_a_database_as_well(bare: Cli, tmp_path: Path) -> None:
    assert bare("barrier", "create", f"sqlite:///{tmp_path / 'bill.db'}").code == 0


def test_what_cannot_be_used_is_refused_with_its_code(bare: Cli, tmp_path: Path) -> None:
    wrong = {
        ("ddl", "oracle"): 3,
        ("create", "nonsense"): 3,
        ("create", "nonsense+driver://host/name"): 3,
        ("create", "oracle://host/name"): 3,
        ("create", "sqlite://"): 3,
        ("create", f"sqlite:///{tmp_path}/nowhere/bill.db"): 6,
        ("create", f"postgresql+psycopg://anna@127.0.0.1:{free_port()}/bill"): 6,
    }
    for words, code in wrong.items():
        said = bare("barrier", *words)
        assert (said.code, said.out) == (code, ""), words
        assert said.complaint.startswith("txsaga: "), words


def test_old_messages_are_forgotten(bare: Cli, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'bill.db'}"
    bare("barrier", "create", url)
    engine = create_engine(url, poolclass=NullPool)
    for id, age in (("a", "-31 days"), ("b", "-29 days")):
        with engine.begin() as connection:
            insert = "insert into txsaga_inbox (grp, message, at) values ('g', ?, datetime('now', ?))"
            connection.exec_driver_sql(insert, (id, age))
    assert bare("barrier", "forget", url, "--older-than", "30d", "--json").document == {"forgotten": 1, "url": url}
    assert bare("barrier", "forget", url, "--older-than", "30d").out == f"0 messages were forgotten in {url}\n"
    with engine.connect() as connection:
        assert connection.exec_driver_sql("select message from txsaga_inbox").scalars().all() == ["b"]


def test_what_is_forgotten_must_be_said(bare: Cli, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'bill.db'}"
    wrong = {(): 2, ("--older-than", "soon"): 2, ("--older-than", "99999999999d"): 2, ("--older-than", "30d"): 7}
    for words, code in wrong.items():
        said = bare("barrier", "forget", url, *words)
        assert (said.code, said.out) == (code, ""), words
        assert said.complaint.startswith("txsaga: "), words
