"""Readers of the documentation import public names alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.snippets import blocks
from tests.docs.test_snippets import PAGES, ROOT

PUBLIC = {
    "txsaga",
    "txsaga.errors",
    "txsaga.provider",
    "txsaga.gate",
    "txsaga.gateway.native",
    "txsaga.rocketmq",
    "txsaga.testing",
    "txsaga.testing.checking",
}
SHOWS_THE_CORE = {"docs/reference/chunk-layout.md"}
"""The page about bytes that other programs read shows the module that lays them out."""


def imported(text: str) -> Iterator[str]:
    """Yield the modules of ours that a block of Python imports."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_snippets_of_a_page_import_public_names_only(page: Path) -> None:
    found = {name for block in blocks(page) if block.info == "python" for name in imported(block.body)}
    ours = {name for name in found if name.partition(".")[0] == "txsaga"}
    assert str(page.relative_to(ROOT)) in SHOWS_THE_CORE or ours <= PUBLIC
