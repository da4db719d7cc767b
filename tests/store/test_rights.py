"""
What a login may NOT do with the rights that it has: each row is tried by raw SQL as that login, beside the library.

Most rows also say what would let it through; with that granted, inside a transaction that is rolled back, the same
statement must be done: so no row is refused for a reason of its own.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tests.store.rights_scene import Scene, scene
from tests.store.rights_table import (
    DENIED,
    DONE,
    NOBODY,
    NOTHING,
    ONE,
    OP,
    PREPARE,
    PUBLISH,
    ROWS,
    C,
    P,
    Row,
)
from txsaga.store.right import Right

__all__ = ["scene"]

pytestmark = [pytest.mark.postgres, pytest.mark.core]


def named(row: Row) -> str:
    return f"{row.right}: {row.what}"


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_it_is_refused(scene: Scene, row: Row) -> None:
    assert scene.tried(row.right, row.sql) == row.refused


@pytest.mark.parametrize("row", [row for row in ROWS if row.opened_by], ids=named)
def test_it_would_be_done_if_that_were_open(scene: Scene, row: Row) -> None:
    assert scene.tried(row.right, row.sql, row.opened_by) == DONE


class Trace(NamedTuple):
    """What somebody calls, where the owner looks behind it, and whether there is anything."""

    right: Right
    what: str
    sql: str
    look: str
    found: str


LATER = "SELECT FROM doubt WHERE check_at > now() + interval '10 seconds' AND txid = {{{of}}}"
ASKED = "SELECT FROM question WHERE until {is_} NULL AND txid = {{{of}}}"
TRACES = [
    Trace(P, "prepare its own", PREPARE.format(**ONE | {"group": "{own}"}),
          "SELECT FROM half WHERE batch = 1 AND pgroup = {own}", DONE),
    Trace(P, "send its own", PUBLISH.format(**ONE | {"group": "{own}"}),
          "SELECT FROM half WHERE batch = 1 AND pgroup = {own}", DONE),
    Trace(P, "hold its own", "SELECT hold('{{{own_plain}}}', 30)", LATER.format(of="own_plain"), DONE),
    Trace(P, "hold its own keyed one", "SELECT hold('{{{own_key}}}', 30)", LATER.format(of="own_key"), DONE),
    Trace(P, "hold somebody's", "SELECT hold('{{{plain}}}', 30)", LATER.format(of="plain"), NOTHING),
    Trace(P, "hold somebody's keyed one", "SELECT hold('{{{key}}}', 30)", LATER.format(of="key"), NOTHING),
    Trace(P, "hold what is not there", "SELECT hold('{{999999}}', 30)", "SELECT FROM doubt WHERE txid = 999999",
          NOTHING),
    Trace(P, "hold for ever", "SELECT hold('{{{own_plain}}}', 'infinity')",
          "SELECT FROM doubt WHERE check_at > now() + interval '1 minute'", NOTHING),
    Trace(P, "take up its own question", "SELECT * FROM take('me', 9)",
          ASKED.format(of="own_plain", is_="IS NOT"), DONE),
    Trace(P, "take up somebody's", "SELECT * FROM take('you', 9)", ASKED.format(of="plain", is_="IS NOT"), NOTHING),
    Trace(P, "answer its own question", "SELECT answered('me', '{{{own_plain}}}', '{{UNKNOWN}}', '{{x}}')",
          ASKED.format(of="own_plain", is_="IS"), NOTHING),
    Trace(P, "answer somebody's", "SELECT answered('you', '{{{plain}}}', '{{UNKNOWN}}', '{{x}}')",
          ASKED.format(of="plain", is_="IS"), DONE),
    Trace(P, "have its own forgotten undecided", "SELECT answered('me', '{{{own_plain}}}', '{{COMMIT}}', '{{x}}')",
          "SELECT FROM doubt WHERE txid = {own_plain}", DONE),
    Trace(P, "unlist what is undecided", "SELECT unlist({own_plain})", "SELECT FROM doubt WHERE txid = {own_plain}",
          DONE),
    Trace(P, "unlist somebody's", "SELECT unlist({plain})", "SELECT FROM doubt WHERE txid = {plain}", DONE),
]  # fmt: skip


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: f"{trace.right}: {trace.what}")
def test_a_function_does_only_what_its_caller_may_ask_for(scene: Scene, trace: Trace) -> None:
    assert scene.left(trace.right, trace.sql, trace.look) == trace.found


def test_rights_do_not_add_up_to_more_than_each(scene: Scene) -> None:
    """Who holds three rights still is not the owner, and sees no body that is undecided."""
    both = scene.made.new(P, C, OP)
    before, scene.me[P] = scene.me[P], both
    refused = {what: scene.tried(P, sql) for what, sql, _ in NOBODY}
    refused["read"] = scene.tried(P, "SELECT body FROM half")
    scene.me[P] = before
    assert set(refused.values()) == {DENIED}


def test_what_nobody_was_granted_nobody_may(scene: Scene) -> None:
    stranger = scene.made.new()
    for right in Right:
        before, scene.me[right] = scene.me[right], stranger
        refused = {row.what: scene.tried(right, row.sql) for row in ROWS if row.right is right}
        scene.me[right] = before
        assert set(refused.values()) <= {DENIED, "3F000", "42P01", "42883"}
