"""Requests with an Idempotency-Key that reach several servers of one store at once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest

from tests.cli.program import environment, started
from txsaga.testing.catalog.client import CatalogClient, CatalogReply, Json
from txsaga.testing.catalog.namespace import KitNamespace, at_once, new_key
from txsaga.wiring.connecting import open_store

ROUNDS = 12


@pytest.fixture
def spaces(home_url: str, tmp_path: Path) -> Iterator[list[KitNamespace]]:
    """Give one namespace with the tables a and b, as two servers of a store show it."""
    open_store(home_url).close()
    env = environment(TXSAGA_URL=home_url, TXSAGA_WAREHOUSE=str(tmp_path))
    with ExitStack() as opened:
        servers = [opened.enter_context(started("catalog", "--port", "0", env=env)) for _ in range(2)]
        found = list[KitNamespace]()
        for server in servers:
            assert server.stdout is not None
            client = opened.enter_context(closing(CatalogClient(server.stdout.readline().strip(), {}, timeout=20)))
            client.configure(None, None)
            name = found[0].name if found else None
            found.append(KitNamespace(client, seconds=1, patience=20, name=name))
        found[0].open()
        found[0].create("a", "b")
        yield found
        for server in servers:
            server.send_signal(signal.SIGINT)


def sent(spaces: list[KitNamespace], changes: list[Json], key: str) -> list[CatalogReply]:
    """Send a commit with its key to both servers, three times each at once."""
    return at_once([partial(space.commit, changes, key) for space in spaces * 3])


def test_a_commit_that_reaches_two_servers_is_done_once_and_refused_by_neither(spaces: list[KitNamespace]) -> None:
    for n in range(1, ROUNDS + 1):
        key, changes = new_key(), [spaces[0].guarded(spaces[0].load(table), n) for table in "ab"]
        answers = {reply.status for reply in sent(spaces, changes, key)}
        assert 204 in answers
        assert answers <= {204, 503}  # a client repeats after 503
        assert [space.commit(changes, key).status for space in spaces] == [204, 204]
        assert spaces[1].counters("ab") == {"a": n, "b": n}


def test_a_commit_that_one_server_refused_is_refused_by_the_other(spaces: list[KitNamespace]) -> None:
    base = spaces[0].load("b")
    following = {"type": "assert-current-schema-id", "current-schema-id": base.schema_id + 1}
    key, changes = new_key(), [spaces[0].plain("a", 7), spaces[0].change("b", [following], [])]
    assert spaces[0].commit(changes, key).status == 409
    assert spaces[0].commit([spaces[0].guarded(base, 1)]).status == 204
    assert spaces[1].commit(changes, key).status == 409
    assert spaces[1].commit(changes, new_key()).status == 204
    assert spaces[1].counters("ab") == {"a": 7, "b": 1}
