"""A statement that gives rows back is known by its words, and by nothing in texts, comments and names."""

from __future__ import annotations

import pytest

from txsaga.errors import ConfigError
from txsaga.flows.journal import reading, require_journalled, written


@pytest.mark.rule("R17")
@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("UPDATE a SET x = 1", None),
        ("INSERT INTO a SELECT * FROM b", None),
        ("WITH b AS (SELECT 1) INSERT INTO a SELECT * FROM b", None),
        ("INSERT INTO a VALUES ('RETURNING')", None),
        ("INSERT INTO a VALUES ($x$SELECT; RETURNING$x$)", None),
        ('UPDATE "returning" SET x = 1 -- RETURNING', None),
        ("/* SELECT */ DELETE FROM `select`", None),
        ("INSERT INTO a VALUES ('it''s RETURNING')", None),
        ("UPDATE a SET returning_user = 1", None),
        ("select 1", "SELECT"),
        ("  -- why\n SELECT 1 FOR UPDATE", "SELECT"),
        ("(SELECT 1)", "SELECT"),
        ("UPDATE a SET x = 1; SELECT 1", "SELECT"),
        ("WITH b AS (SELECT 1) SELECT * FROM b", "SELECT"),
        ("WITH d AS (DELETE FROM a RETURNING *) SELECT * FROM d", "RETURNING"),
        ("insert into a values (1) returning id", "RETURNING"),
        ("VALUES (1)", "VALUES"),
        ("SHOW TABLES", "SHOW"),
        ("", None),
    ],
)
def test_a_statement_that_gives_rows_back_is_known_by_its_words(text: str, word: str | None) -> None:
    assert reading(text) == word


@pytest.mark.parametrize("value", ["a\0b", "\ud800"], ids=ascii)
def test_a_text_that_no_store_keeps_is_refused_by_the_name_of_its_parameter(value: str) -> None:
    with pytest.raises(ConfigError, match=r"a parameter holds a character that can't be kept \(U\+.*\) at 'note'"):
        written({"id": 1, "note": value})
    with pytest.raises(ConfigError, match="the statement holds a character that can't be kept"):
        require_journalled(f"UPDATE t SET note = '{value}'")
