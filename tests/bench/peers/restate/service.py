"""The peer's own program, served by hypercorn: the same steps as handlers of a Restate service.

WORK_URL in the environment says where steps work. `five`: five steps with one insert each, the last of which fails,
then four inserts that undo them in reverse. `two`: two steps that do nothing.
"""

import os
from asyncio import Queue

import psycopg
import restate  # type: ignore[import-not-found]

POOL = 16

saga = restate.Service("saga")
connections: "Queue[psycopg.AsyncConnection[tuple[object, ...]] | None]" = Queue()
for _ in range(POOL):
    connections.put_nowait(None)


async def execute(sql: str, v: int, n: int) -> None:
    """Run one statement in a commit of its own."""
    connection = await connections.get()
    try:
        connection = connection or await psycopg.AsyncConnection.connect(os.environ["WORK_URL"], autocommit=True)
        await connection.execute(sql, (v, n))
    finally:
        connections.put_nowait(connection)


async def do_step(v: int, n: int) -> None:
    """Do one of five."""
    if n == 5:
        raise restate.TerminalError("refused")
    await execute("INSERT INTO booking(v, n) VALUES (%s, %s)", v, n)


async def undo_step(v: int, n: int) -> None:
    """Undo one."""
    await execute("INSERT INTO undone(v, n) VALUES (%s, %s)", v, n)


async def nothing() -> None:
    """Do nothing."""


@saga.handler()  # type: ignore[untyped-decorator]
async def five(ctx: restate.Context, v: int) -> str:
    """Do five steps, and undo them."""
    try:
        for n in range(1, 6):
            await ctx.run_typed(f"do {n}", do_step, v=v, n=n)
    except restate.TerminalError:
        for n in range(4, 0, -1):
            await ctx.run_typed(f"undo {n}", undo_step, v=v, n=n)
        return "undone"
    return "done"


@saga.handler()  # type: ignore[untyped-decorator]
async def two(ctx: restate.Context, _v: int) -> str:
    """Do two steps."""
    await ctx.run_typed("first", nothing)
    await ctx.run_typed("second", nothing)
    return "done"


app = restate.app([saga])
