"""A program that forks while a thread waits for news: `python -m tests.consume.forked_reader URL`."""

import os
import signal
import sys
from collections.abc import Callable
from threading import Thread

import txsaga
from tests.scene.patience import eventually
from txsaga.broker import Broker
from txsaga.consume.log_store import Log
from txsaga.consume.stream import Stream
from txsaga.core.layout import Batch
from txsaga.errors import LeaseLost
from txsaga.messages.producer import Producer


def refused(use: Callable[[], object]) -> bool:
    """Tell whether a use of a stream is refused, with advice."""
    try:
        use()
    except LeaseLost as reason:
        return "open another here with broker.stream" in str(reason)
    return False


def consume(producer: Producer, stream: Stream, batch: Batch) -> None:
    with producer.transaction() as tx:
        tx.consume(stream, batch)


def in_child(broker: Broker, stream: Stream, batch: Batch) -> int:
    """Use what the parent opened, and then a stream of our own; say what was wrong by the exit code."""
    signal.alarm(30)  # instead of hanging for ever on what belongs to the parent
    if not broker.kernel.store.log.wait(0):
        return 2  # somebody else seems to listen, and nobody does
    producer = broker.producer("shop", checker=lambda _: None)
    uses: list[Callable[[], object]] = [
        stream.poll,
        lambda: next(stream.batches()),
        lambda: next(stream.messages()),
        lambda: stream.commit(batch),
        lambda: stream.seek(batch.qid, 0),
        lambda: consume(producer, stream, batch),
    ]
    for number, use in enumerate(uses):
        if not refused(use):
            return 10 + number
    stream.close()
    if broker.stream("others", ["paid"]).poll() is None:
        return 3
    broker.close()
    return 0


def main() -> int:
    """Fork, and read on as if nothing had happened."""
    broker = txsaga.connect(sys.argv[1], roles=False, answering=False, env={})
    stream = broker.stream("readers", ["paid"])
    batch = stream.poll()
    log = broker.kernel.store.log
    assert batch is not None
    assert isinstance(log, Log)
    log.wait(0)
    Thread(target=log.wait, args=(60,), daemon=True).start()
    eventually(log._wakeup._listening.locked, "the thread listens")
    pid = os.fork()
    if pid == 0:
        os._exit(in_child(broker, stream, batch))
    _, status = os.waitpid(pid, 0)
    stream.commit(batch)  # nobody gave it back
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # the thread waits on
