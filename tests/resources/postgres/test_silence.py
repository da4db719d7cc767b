"""PostgreSQL servers that fall silent together: who waits for all of them waits no longer than for one."""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from tests.resources.conftest import MakeEngine
from tests.resources.postgres.test_branch import SLOW_END
from tests.resources.postgres_shelf import PostgresShelf
from txsaga.core.decision import Decision
from txsaga.errors import ResourceManagerFailed
from txsaga.flows.branch import Finish, Vote
from txsaga.resources.participant import EnlistedBranch
from txsaga.resources.postgres import PostgresParticipant
from txsaga.resources.postgres_branch import PostgresBranch
from txsaga.testing.participant_contract import begun, new_branch
from txsaga.wiring.connecting import in_loop

pytestmark = [pytest.mark.postgres, pytest.mark.req("WM-46"), pytest.mark.rule("R9")]

PATIENCE = 0.6
"""Seconds; the server says nothing for 1.5."""


@pytest.fixture
def slow(url: str, shelf: PostgresShelf, make_engine: MakeEngine) -> Iterator[list[EnlistedBranch]]:
    """Give branches of a server that takes longer for its votes than it is waited for."""
    with shelf.engine.begin() as connection:
        connection.exec_driver_sql(SLOW_END)
    hasty = PostgresParticipant(make_engine(url), name="shelf", patience=PATIENCE)
    opened = [begun(hasty, shelf, new_branch(), item) for item in (1, 2, 3)]
    numbers = [cast(PostgresBranch, each).number for each in opened]
    yield opened
    for each, number in zip(opened, numbers, strict=True):
        shelf.end_session(number)
        each.leave()


def until_refused(vote: Callable[[], object]) -> float:
    started = time.monotonic()
    with pytest.raises(ResourceManagerFailed, match=f"no answer for {PATIENCE:g} s"):
        vote()
    return time.monotonic() - started


def test_three_are_waited_for_at_once(slow: list[EnlistedBranch]) -> None:
    first, *others = [each.prepare() for each in slow]
    until_refused(first)
    assert sum(map(until_refused, others)) < PATIENCE


def test_tasks_wait_for_three_at_once(slow: list[EnlistedBranch]) -> None:
    first, *others = [each.prepare() for each in slow]
    asyncio.run(in_loop(lambda: until_refused(first)))
    assert asyncio.run(in_loop(lambda: sum(map(until_refused, others)))) < PATIENCE


def in_thread(vote: Callable[[], Vote]) -> None:
    assert vote() is Vote.PREPARED


def in_task(vote: Callable[[], Vote]) -> None:
    asyncio.run(in_loop(lambda: in_thread(vote)))


def in_cancelled_task(vote: Callable[[], Vote]) -> None:
    async def work() -> None:
        task = asyncio.ensure_future(in_loop(lambda: in_thread(vote)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())


@pytest.mark.parametrize("heard", [in_thread, in_task, in_cancelled_task])
def test_an_answer_that_is_there_is_heard_however_late(
    heard: Callable[[Callable[[], Vote]], None], url: str, shelf: PostgresShelf, make_engine: MakeEngine
) -> None:
    branch = begun(PostgresParticipant(make_engine(url), name="shelf", patience=1.0), shelf, new_branch())
    vote = branch.prepare()
    time.sleep(1.2)
    heard(vote)
    assert branch.finish(Decision.COMMIT)() is Finish.DONE
    branch.leave()
    assert shelf.items() == {1}
