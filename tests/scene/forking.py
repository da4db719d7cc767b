"""A program that forks while a batch of its own is under way: `python -m tests.scene.forking URL`."""

import os
import signal
import sys
import threading

import txsaga
from txsaga.broker import Broker
from txsaga.messages.producer import Producer


def child(producer: Producer) -> None:
    """Send as the forked process."""
    signal.alarm(20)  # instead of hanging for ever on what belongs to the parent
    producer.send("paid", b"child")
    producer.submit("paid", b"child again").result(10)


def run(broker: Broker) -> None:
    """Fork between the sending of a batch and its answer."""
    producer = broker.producer("bank")
    producer.send("paid", b"parent")
    batch = threading.Thread(target=producer.send_many, args=("paid", [b"many", b"more"]))
    batch.start()
    sys.stdin.readline()
    pid = os.fork()
    if pid == 0:
        child(producer)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
    batch.join()
    producer.send("paid", b"parent again")


if __name__ == "__main__":
    opened = txsaga.connect(sys.argv[1], roles=False, answering=False)
    run(opened)
    opened.close()
