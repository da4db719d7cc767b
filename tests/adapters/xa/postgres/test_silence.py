"""PostgreSQL servers that fall silent together: who waits for all of them waits no longer than for one."""

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest

from tests.adapters.xa.conftest import MakeEngine
from tests.adapters.xa.postgres.test_branch import SLOW_END
from tests.adapters.xa.postgres_shelf import PostgresShelf
from txsaga.adapters.aio import in_loop
from txsaga.adapters.xa import PostgresParticipant
from txsaga.errors import xa
from txsaga.model.branch import Vote
from txsaga.model.decision import Decision
from txsaga.ports.participants import Enlisted
from txsaga.testing.participant_contract import begun, new_branch

pytestmark = [pytest.mark.postgres, pytest.mark.req("WM-46"), pytest.mark.rule("R9")]

PATIENCE, AT_ONCE = 0.6, 0.3
"""Seconds; the server says nothing for 1.5."""


Asked = Callable[[], Callable[[], object]]


@pytest.fixture
def ask(url: str, shelf: PostgresShelf, make_engine: MakeEngine) -> Iterator[Asked]:
    """Give what asks a branch for its vote, of a server that takes longer for it than it is waited for."""
    with shelf.engine.begin() as connection:
        connection.exec_driver_sql(SLOW_END)
    hasty, opened = PostgresParticipant(make_engine(url), name="shelf", patience=PATIENCE), list[Enlisted]()

    def asked() -> Callable[[], object]:
        opened.append(begun(hasty, shelf, new_branch(), len(opened)))
        return opened[-1].prepare()

    yield asked
    for each in opened:
        each.leave()


def until_refused(vote: Callable[[], object]) -> float:
    started = time.monotonic()
    with pytest.raises(xa.ResourceManagerFailed, match=f"no answer for {PATIENCE:g} s"):
        vote()
    return time.monotonic() - started


def test_three_are_waited_for_at_once(ask: Asked) -> None:
    first, *others = [ask() for _ in range(3)]
    assert AT_ONCE < until_refused(first) < PATIENCE + AT_ONCE
    assert sum(map(until_refused, others)) < AT_ONCE


def test_tasks_wait_for_three_at_once(ask: Asked) -> None:
    first, *others = [ask() for _ in range(3)]
    assert AT_ONCE < asyncio.run(in_loop(lambda: until_refused(first))) < PATIENCE + AT_ONCE
    assert asyncio.run(in_loop(lambda: sum(map(until_refused, others)))) < AT_ONCE


def test_an_answer_that_is_there_is_heard_however_late(url: str, shelf: PostgresShelf, make_engine: MakeEngine) -> None:
    hasty = PostgresParticipant(make_engine(url), name="shelf", patience=0.1)
    one, two = [begun(hasty, shelf, new_branch(), item) for item in (1, 2)]
    first, second = one.prepare(), two.prepare()
    time.sleep(AT_ONCE)
    assert first() is asyncio.run(in_loop(second)) is Vote.PREPARED
    for each in (one, two):
        each.finish(Decision.ROLLBACK)()
        each.leave()
