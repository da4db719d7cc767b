"""Iceberg's REST compatibility kit, as published, against our catalog, and against Iceberg's own server beside it."""

from __future__ import annotations

from collections import Counter
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
"""Of the namespace without a name: no path names it, and the client asks for none in it."""
DOT_IN_A_NAMESPACE = "tables.testNamespaceWithDot"
"""Rows of a JdbcCatalog, which ours share with other engines, have a dot between two levels of a namespace."""


def named(verdicts: Mapping[str, Verdict], outcome: str) -> dict[str, str]:
    """Return the tests that ended so, with the reasons."""
    return {name: verdict.reason for name, verdict in verdicts.items() if verdict.outcome == outcome}


def test_our_catalog_passes_the_kit(catalog_server: str) -> None:
    verdicts = run(catalog_server)
    assert named(verdicts, "failed") == {DOT_IN_A_NAMESPACE: "Malformed request: Bad Request"}
    assert named(verdicts, "skipped").keys() == NOT_ASKED
    passed = Counter(name.partition(".")[0] for name in named(verdicts, "passed"))
    assert passed == {"tables": 97, "views": 46}


def test_the_reference_server_fails_what_its_store_cannot() -> None:
    makes_namespaces, passed = "tables.tableCreationWithoutNamespace", "views.basicCreateView"
    asked = [DOT_IN_A_NAMESPACE, makes_namespaces, passed, *NOT_ASKED]
    with reference_server() as url:
        verdicts = run(url, tests=[name.partition(".")[2] for name in asked])
    assert named(verdicts, "failed").keys() == {DOT_IN_A_NAMESPACE, makes_namespaces}
    assert named(verdicts, "skipped").keys() == NOT_ASKED
    assert named(verdicts, "passed").keys() == {passed}


def test_a_server_that_is_not_there_passes_nothing() -> None:
    verdicts = run("http://127.0.0.1:1", tests=["testRenameTable", "basicCreateView"])
    assert {name: verdict.outcome for name, verdict in verdicts.items()} == {
        "tables.testRenameTable": "failed",
        "views.basicCreateView": "failed",
    }
    assert all("Error occurred" in verdict.reason for verdict in verdicts.values())
