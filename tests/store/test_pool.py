"""Sessions that are lent: each to one caller at a time, and all of them closed in the end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from sqlalchemy import create_engine

from txsaga.core.fibers import pause, run_blocking
from txsaga.store.pipeline import ConnectionPool, PipelineConnection
from txsaga.wiring.connecting import in_loop


@dataclass(eq=False)
class Session(PipelineConnection):
    """What is lent."""

    closed: bool = False

    def close(self) -> None:
        self.closed = True


def lent() -> tuple[ConnectionPool, list[Session]]:
    made: list[Session] = []

    def make() -> Session:
        made.append(Session())
        return made[-1]

    pool = ConnectionPool(create_engine("postgresql+psycopg://"))
    pool._make = make  # type: ignore[assignment]
    return pool, made


def use(sessions: ConnectionPool) -> Session:
    with sessions.taken() as session:
        pause(0.01)
        assert isinstance(session, Session)
        return session


def left_in_the_middle(sessions: ConnectionPool) -> asyncio.AbstractEventLoop:
    """Close a loop while one of its stacks has a session."""
    loop = asyncio.new_event_loop()

    async def begin() -> asyncio.Task[None]:
        def hold() -> None:
            with sessions.taken():
                pause(60)

        task = asyncio.ensure_future(in_loop(hold))
        await asyncio.sleep(0.01)
        return task

    loop.run_until_complete(begin())._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    return loop


def test_callers_at_the_same_time_have_sessions_of_their_own() -> None:
    sessions, made = lent()

    async def work() -> list[Session]:
        here = [in_loop(lambda: use(sessions)) for _ in range(2)]
        return await asyncio.gather(*here, asyncio.to_thread(use, sessions))

    assert len(set(map(id, asyncio.run(work())))) == len(made) == 3
    assert use(sessions) in made
    assert len(made) == 3
    sessions.close()
    assert all(session.closed for session in made)


def test_one_that_comes_back_late_is_closed_then() -> None:
    sessions, made = lent()
    with sessions.taken():
        sessions.close()
        assert not made[0].closed
    assert made[0].closed


def test_one_that_a_closed_loop_had_is_closed_with_the_others() -> None:
    sessions, made = lent()
    kept = left_in_the_middle(sessions)
    sessions.close()
    assert (kept.is_closed(), [session.closed for session in made]) == (True, [True])


def test_one_that_a_closed_loop_had_is_closed_when_another_is_needed() -> None:
    sessions, made = lent()
    kept = left_in_the_middle(sessions)
    asyncio.run(in_loop(lambda: run_blocking(lambda: use(sessions))))
    assert (kept.is_closed(), [session.closed for session in made]) == (True, [True, False])
