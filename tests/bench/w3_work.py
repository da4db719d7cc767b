"""The processes of W3: producers that are killed before they decide, and a member whose checker answers."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import create_engine, text

from tests.bench.w1 import BODY
from txsaga import LocalState, connect
from txsaga.broker import Broker
from txsaga.messages.producer import Producer
from txsaga.messages.transaction import Transaction

CALLERS = 8
"""Of each process: ten of them share the connections of a server."""
WORK = text("INSERT INTO business(v) VALUES (1)")
READY = "ready"
"""What a process says when it stands where it is to be killed, or where it is to be asked."""


def producing(broker: Broker, other: str, count: int) -> object:
    """Leave blocks whose local work is committed and that are not decided; what is returned keeps them open."""
    broker.register("other", create_engine(other, pool_size=CALLERS))
    producer = broker.producer("bench", checker=lambda _: LocalState.UNKNOWN)

    def one(_: int) -> Transaction:
        block = producer.transaction().__enter__()
        block.send("orders", BODY)
        with block.local("other") as connection:
            connection.execute(WORK)
        return block

    return _from_threads(one, count)


def preparing(broker: Broker, other: str, count: int) -> object:
    """Leave halves about which only a checker can tell."""
    del other
    producer: Producer = broker.producer("bench", checker=lambda _: LocalState.UNKNOWN)
    return [each.result() for each in [producer.prepare("orders", BODY) for _ in range(count)]]


def closing(broker: Broker, other: str, count: int) -> object:
    """Leave halves with a resource whose local work never began: a killed process is found between the two."""
    broker.register("other", create_engine(other))
    producer = broker.producer("bench", checker=lambda _: LocalState.UNKNOWN)
    number = broker.kernel.resource("other")[0].id

    def one(_: int) -> Transaction:
        block = producer.transaction().__enter__()
        block.send("orders", BODY)
        block._close(number)  # the first step of `local`: the half is stored, nothing else is done
        return block

    return _from_threads(one, count)


def answering(broker: Broker, other: str, count: int) -> object:
    """Answer for everything that is asked."""
    del other, count
    return broker.producer("bench", checker=lambda _: LocalState.COMMIT)


def _from_threads(one: Callable[[int], Transaction], count: int) -> list[Transaction]:
    with ThreadPoolExecutor(CALLERS) as pool:
        return list(pool.map(one, range(count)))


PARTS = {each.__name__: each for each in (producing, preparing, closing, answering)}


def main(part: str, url: str, other: str, count: str) -> None:
    """Play a part and wait to be killed."""
    kept = PARTS[part](connect(url, roles=False, env={}), other, int(count))
    print(READY, flush=True)  # the parent reads it
    threading.Event().wait()
    del kept


if __name__ == "__main__":
    main(*sys.argv[1:])
