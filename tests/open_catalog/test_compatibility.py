"""Iceberg's REST compatibility kit, as published, against our catalog, and against Iceberg's own server beside it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.open_catalog.kit import Verdict, run
from tests.open_catalog.reference import reference_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
NOT_ASKED = {
    "tables.createAndDropEmptyNamespace",
    "tables.listNamespacesWithEmptyNamespace",
    "tables.listTablesInEmptyNamespace",
    "tables.namespacePropertiesOnEmptyNamespace",
    "views.listViewsInEmptyNamespace",
}
"""Of the namespace without a name, which no path of the protocol can name."""
REFERENCE_FAILS = {  # of all 149
    "tables.tableCreationWithoutNamespace": "Expecting code to raise a throwable",  # it makes the namespace
    "tables.testNamespaceWithDot": "[new.db]",  # it reads the dot as two levels
}


def named(verdicts: Mapping[str, Verdict], outcome: str) -> dict[str, str]:
    """Return the tests that ended so, with the reasons."""
    return {name: verdict.reason for name, verdict in verdicts.items() if verdict.outcome == outcome}


def sums(verdicts: Mapping[str, Verdict]) -> dict[str, int]:
    """Return how many tests passed, of tables and of views."""
    passed = [name.partition(".")[0] for name in named(verdicts, "passed")]
    return {area: passed.count(area) for area in ("tables", "views")}


def test_our_catalog_passes_the_kit(catalog_server: str) -> None:
    verdicts = run(catalog_server)
    assert named(verdicts, "failed") == {}
    assert named(verdicts, "skipped").keys() == NOT_ASKED
    assert sums(verdicts) == {"tables": 98, "views": 46}


def test_the_reference_server_fails_what_its_store_cannot() -> None:
    asked = [*REFERENCE_FAILS, *NOT_ASKED, "tables.testListNestedNamespaces", "views.basicCreateView"]
    with reference_server() as url:
        verdicts = run(url, tests=[name.partition(".")[2] for name in asked])
    failed = named(verdicts, "failed")
    assert failed.keys() == REFERENCE_FAILS.keys()
    assert all(reason in failed[name] for name, reason in REFERENCE_FAILS.items())
    assert named(verdicts, "skipped").keys() == NOT_ASKED
    assert sums(verdicts) == {"tables": 1, "views": 1}


def test_a_server_that_is_not_there_passes_nothing() -> None:
    verdicts = run("http://127.0.0.1:1", tests=["testRenameTable", "basicCreateView"])
    assert {name: verdict.outcome for name, verdict in verdicts.items()} == {
        "tables.testRenameTable": "failed",
        "views.basicCreateView": "failed",
    }
    assert all("Error occurred" in verdict.reason for verdict in verdicts.values())
