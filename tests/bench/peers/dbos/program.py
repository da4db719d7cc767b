"""The peer's own program: `program.py five|two CALLERS SECONDS` prints workflows per second.

SYSTEM_URL and WORK_URL in the environment say where its own tables are, and where steps work.

`five`: five steps with one insert each, the last of which fails, then four inserts that undo them in reverse.
`two`: two steps that do nothing.
"""

import json
import os
import sys
import threading
import time

import psycopg
from dbos import DBOS  # type: ignore[import-not-found]

system, work = os.environ["SYSTEM_URL"], os.environ["WORK_URL"]
case, callers, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
DBOS(config={"name": "w6-saga", "system_database_url": system, "log_level": "ERROR", "run_admin_server": False})
local = threading.local()


def execute(sql: str, v: int, n: int) -> None:
    """Run one statement in a commit of its own."""
    if not hasattr(local, "connection"):
        local.connection = psycopg.connect(work, autocommit=True)
    local.connection.execute(sql, (v, n))


@DBOS.step()  # type: ignore[untyped-decorator]
def do_step(v: int, n: int) -> None:
    """Do one of five."""
    if n == 5:
        raise ZeroDivisionError
    execute("INSERT INTO booking(v, n) VALUES (%s, %s)", v, n)


@DBOS.step()  # type: ignore[untyped-decorator]
def undo_step(v: int, n: int) -> None:
    """Undo one."""
    execute("INSERT INTO undone(v, n) VALUES (%s, %s)", v, n)


@DBOS.step()  # type: ignore[untyped-decorator]
def nothing() -> None:
    """Do nothing."""


@DBOS.workflow()  # type: ignore[untyped-decorator]
def five(v: int) -> None:
    """Do five steps, and undo them."""
    try:
        for n in range(1, 6):
            do_step(v, n)
    except ZeroDivisionError:
        for n in range(4, 0, -1):
            undo_step(v, n)


@DBOS.workflow()  # type: ignore[untyped-decorator]
def two(v: int) -> None:
    """Do two steps."""
    nothing()
    nothing()


def main() -> None:
    """Call from threads until the time is over."""
    DBOS.launch()
    call = {"five": five, "two": two}[case]
    counted = [0] * callers
    for v in range(20):
        call(v)
    begun = time.perf_counter()

    def run(at: int) -> None:
        while time.perf_counter() - begun < seconds:
            call(at * 1_000_000 + counted[at])
            counted[at] += 1

    threads = [threading.Thread(target=run, args=(at,)) for at in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(sum(counted) / (time.perf_counter() - begun)))
    DBOS.destroy()


if __name__ == "__main__":
    main()
