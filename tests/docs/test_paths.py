"""The pages about the code name files that are there."""

from __future__ import annotations

import re

import pytest

from tests.architecture.sources import PACKAGE, ROOT

NAMED = re.compile(r"`((?:[a-z_.-]+/)+[a-z0-9_.-]+)`")


@pytest.mark.parametrize("page", ["architecture", "contributing"])
def test_what_a_page_names_is_there(page: str) -> None:
    named = NAMED.findall((ROOT / "docs" / f"{page}.md").read_text("utf-8"))
    assert len(named) > 20
    missing = {each for each in named if not any((base / each).exists() for base in (PACKAGE, ROOT, ROOT / "docs"))}
    assert missing == set()
