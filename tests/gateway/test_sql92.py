"""Conditions on properties: what they say of a message, and what is none."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txsaga.gateway.sql92 import condition

GIVEN: Mapping[str, str] = {"a": "5", "b": "x", "c": "true", "TAGS": "red", "odd.name": "it's"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 5", True),
        ("a > 4 AND a < 6", True),
        ("a >= 5.5 OR b = 'x'", True),
        ("NOT a <> 5", True),
        ("a BETWEEN 1 AND 5", True),
        ("a NOT BETWEEN 1 AND 5", False),
        ("b IN ('y', 'x')", True),
        ("b NOT IN ('y')", True),
        ("missing IS NULL AND a IS NOT NULL", True),
        ("missing = 1", None),
        ("NOT missing = 1", None),
        ("missing = 1 OR a = 5", True),
        ("missing = 1 AND a = 6", False),
        ("b > 3", None),
        ("a > -1", True),
        ("c", True),
        ("c = TRUE", True),
        ("TAGS = 'red'", True),
        ("odd.name = 'it''s'", True),
        ("a = 1 OR a = 5 AND b = 'y'", False),
        ("(a = 1 OR a = 5) AND b = 'x'", True),
        ("a = 5 and b = 'x'", True),
    ],
)
def test_a_condition_says_whether_it_is_true(text: str, expected: bool | None) -> None:
    assert condition(text)(GIVEN) is expected


DEEP, LONG = "NOT " * 60 + "a", "a = 1 OR " * 600 + "a = 1"


@pytest.mark.parametrize("text", ["", "a =", "a = 5 b", "(a = 5", "a = 5)", "a BETWEEN 1", "a IN ()", "a NOT 5"])
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        condition(text)


@pytest.mark.parametrize("text", ["= 5", "a ~ 5", "a = 'x", "AND", "(" * 60, DEEP, LONG], ids=lambda text: text[:9])
def test_what_is_no_condition_either_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        condition(text)


@given(st.text(alphabet="ab'5.()=<>,- ANDORINSULL", max_size=40))
def test_any_text_is_a_condition_or_is_refused(text: str) -> None:
    try:
        found = condition(text)
    except ValueError:
        return
    assert found(GIVEN) in (True, False, None)
