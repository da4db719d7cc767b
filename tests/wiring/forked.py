"""A program that forks behind its first transfer: `python -m tests.wiring.forked URL BOOKS`."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable

from sqlalchemy import Engine, create_engine, text

import txsaga
from txsaga.broker import Broker
from txsaga.messages.producer import Producer


def transfer(producer: Producer) -> int:
    """Run local work; return the session that it ran on."""
    with producer.transaction() as tx:
        tx.send("orders", b"a chair")
        with tx.local("books") as connection:
            return int(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())


def roles() -> set[str]:
    """Name the roles whose threads run in this process."""
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("txsaga-")} & {
        "txsaga-dispatcher",
        "txsaga-check-back",
        "txsaga-partitions",
        "txsaga-recovery",
        "txsaga-scheduler",
    }


def lives(broker: Broker, member: str) -> bool:
    """Tell whether a member is one of those that are asked."""
    group = broker.kernel.store.registry.group("shop")
    return member in broker.kernel.store.leases.alive([f"checker:{group.id}"])[f"checker:{group.id}"]


def within(happened: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Wait for what another thread does."""
    end = time.monotonic() + seconds
    while not happened() and time.monotonic() < end:
        time.sleep(0.05)
    return happened()


def fall_out_of_block(producer: Producer) -> str:
    """Fork inside a block, and let the child leave it by an error; return what became of it."""
    try:
        with producer.transaction(key="order-42") as tx:
            tx.send("orders", b"a table")
            if os.fork() == 0:
                signal.alarm(30)
                sys.exit()
            os.wait()
            tx.send("orders", b"a lamp")
    except SystemExit:
        os._exit(0)
    return str(tx.decision and tx.decision.name)


def in_child(broker: Broker, producer: Producer, books: Engine, session: int) -> int:
    """Do the same as the forked process; say what was wrong by the exit code."""
    signal.alarm(30)  # instead of hanging for ever on what belongs to the parent
    parent = f"-{os.getppid()}-"
    if roles() or parent in broker.kernel.member:
        return 2
    if transfer(producer) == session:
        return 3
    if len(roles()) != 5:
        return 4
    if not within(lambda: lives(broker, broker.kernel.member)):
        return 6
    broker.close()
    return 5 if roles() else 0


def main() -> int:
    """Fork, and go on in both."""
    url, address = sys.argv[1:]
    books = create_engine(address, pool_size=1, max_overflow=0)
    broker = txsaga.connect(url, resources={"books": books}, env={})
    producer = broker.producer("shop", checker=lambda _: None)
    session = transfer(producer)
    within(lambda: lives(broker, broker.kernel.member))
    pid = os.fork()
    if pid == 0:
        os._exit(in_child(broker, producer, books, session))
    _, status = os.waitpid(pid, 0)
    same = transfer(producer) == session and len(roles()) == 5 and lives(broker, broker.kernel.member)
    same = same and fall_out_of_block(producer) == "COMMIT"
    broker.close()
    books.dispose()
    return os.waitstatus_to_exitcode(status) if same else 1


if __name__ == "__main__":
    sys.exit(main())
