"""A program that forks behind its first transfer: `python -m tests.wiring.forked URL BOOKS`."""

import os
import signal
import sys
import threading

from sqlalchemy import Engine, create_engine, text

import txsaga
from txsaga.engine.broker import Broker, JoiningProducer


def transfer(producer: JoiningProducer) -> int:
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
        "txsaga-scheduler",
    }


def in_child(broker: Broker, producer: JoiningProducer, books: Engine, session: int) -> int:
    """Do the same as the forked process; say what was wrong by the exit code."""
    signal.alarm(30)  # instead of hanging for ever on what belongs to the parent
    if roles():
        return 2
    if transfer(producer) == session:
        return 3
    if len(roles()) != 4:
        return 4
    broker.close()
    return 5 if roles() else 0


def main() -> int:
    """Fork, and go on in both."""
    url, address = sys.argv[1:]
    books = create_engine(address, pool_size=1, max_overflow=0)
    broker = txsaga.connect(url, resources={"books": books}, env={})
    producer = broker.producer("shop", checker=lambda _: None)
    session = transfer(producer)
    pid = os.fork()
    if pid == 0:
        os._exit(in_child(broker, producer, books, session))
    _, status = os.waitpid(pid, 0)
    same = transfer(producer) == session and len(roles()) == 4
    broker.close()
    books.dispose()
    return os.waitstatus_to_exitcode(status) if same else 1


if __name__ == "__main__":
    sys.exit(main())
