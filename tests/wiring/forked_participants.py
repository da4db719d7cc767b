"""Fork around coordinated transactions: `python -m tests.wiring.forked_participants URL BOOKS LEDGER`."""

import gc
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from sqlalchemy import create_engine, text

import txsaga
from txsaga.core.decision import Decision
from txsaga.flows.coordinated import Coordinated
from txsaga.messages.producer import Producer

NAMES = ("books", "ledger")


def sessions(tx: Coordinated) -> list[int]:
    """Work in both databases; return the sessions that it is done on."""
    found = list[int]()
    for name in NAMES:
        with tx.on(name) as connection:
            connection.execute(text("CREATE TABLE IF NOT EXISTS entry (who text)"))
            connection.execute(text("INSERT INTO entry VALUES (:who)"), {"who": str(os.getpid())})
            found.append(int(connection.execute(text("SELECT pg_backend_pid()")).scalar_one()))
    return found


def book(producer: Producer) -> list[int]:
    """Run one transaction over both."""
    with producer.coordinated(*NAMES) as tx:
        return sessions(tx)


def forked(child: Callable[[], int]) -> int:
    """Run a function in a forked child that ends as any program; return its exit code."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)  # instead of hanging for ever on what belongs to the parent
        sys.exit(child())
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def in_block(producer: Producer) -> bool:
    """Fork inside a block that the child falls out of; tell whether the parent's work came through."""
    code, same, decision = 0, False, None
    parent = os.getpid()
    with suppress(SystemExit), producer.coordinated(*NAMES) as tx:
        before = sessions(tx)
        code = forked(lambda: 0)
        same = sessions(tx) == before
    if os.getpid() != parent:
        del tx
        gc.collect()  # what nobody holds any more is given back to its pool, rolled back
        os._exit(0)
    decision = tx.decision
    return (code, same, decision) == (0, True, Decision.COMMIT)


def main() -> int:
    """Fork behind a transaction, and inside one."""
    url, *addresses = sys.argv[1:]
    engines = {
        name: create_engine(address, pool_size=1, max_overflow=0)
        for name, address in zip(NAMES, addresses, strict=True)
    }
    broker = txsaga.connect(url, resources=engines, roles=False, answering=False, env={})
    producer = broker.producer("shop", checker=lambda _: None)
    before = book(producer)
    if forked(lambda: len(set(before) & set(book(producer)))) != 0:
        return 2
    if book(producer) != before:
        return 3
    if not in_block(producer):
        return 4
    broker.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
