"""RocketMQ's official Python client, unchanged: what it sends and receives, one line each. Run with an address."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType


def say(*words: object) -> None:
    print(*words, sep="\t", flush=True)


def made(topic: str, body: str, **given: Any) -> Any:
    message = Message()
    message.topic, message.body, message.tag, message.keys = topic, body.encode(), "red", "key"
    message.add_property("color", "blue")
    for name, value in given.items():
        setattr(message, name, value)
    return message


class Checker(TransactionChecker):  # type: ignore[misc]  # it has no types
    """Commits what was left by name."""

    def check(self, message: Any) -> Any:
        text = message.body.decode()
        say("checked", text)
        return TransactionResolution.COMMIT if text == "left, committed" else TransactionResolution.ROLLBACK


class Listener(MessageListener):  # type: ignore[misc]
    """Fails at the first delivery of a message."""

    def __init__(self) -> None:
        self.done = threading.Event()

    def consume(self, message: Any) -> Any:
        say("pushed", message.body.decode(), message.delivery_attempt)
        if message.delivery_attempt == 1:
            return ConsumeResult.FAILURE
        self.done.set()
        return ConsumeResult.SUCCESS


def send(configuration: Any) -> None:
    producer = Producer(configuration, ("news", "lines", "later"))
    producer.startup()
    for sent in (
        made("news", "normal"),
        made("lines", "ordered", message_group="g"),
        made("later", "delayed", delivery_timestamp=int(time.time()) + 2),
    ):
        say("sent", producer.send(sent).message_id)
    recalled = producer.send(made("later", "recalled", delivery_timestamp=int(time.time()) + 60))
    say("recalled", producer.recall_message("later", recalled.recall_handle))
    try:
        producer.send(made("orders", "no transaction"))
    except Exception as refused:  # noqa: BLE001  # the client raises it as such
        say("refused", refused)
    producer.shutdown()


def transact(configuration: Any) -> Any:
    producer = Producer(configuration, ("orders",), checker=Checker())
    producer.startup()
    for body in ("committed", "rolled back", "left, committed", "left, rolled back"):
        transaction = producer.begin_transaction()
        say("half", producer.send(made("orders", body), transaction).message_id)
        if body == "committed":
            transaction.commit()
        elif body == "rolled back":
            transaction.rollback()
    return producer


def receive(configuration: Any, expected: int) -> None:
    topics = {each: FilterExpression() for each in ("news", "lines", "later")}
    topics["orders"] = FilterExpression("color = 'blue'", FilterType.SQL)
    consumer = SimpleConsumer(configuration, "readers", topics, 1)
    consumer.startup()
    found, end = 0, time.monotonic() + 60
    while found < expected and time.monotonic() < end:
        for message in consumer.receive(16, 15) or []:
            say("received", message.body.decode(), message.message_id, message.properties["color"])
            consumer.change_invisible_duration(message, 20)
            consumer.ack(message)
            found += 1
    consumer.shutdown()


def push(configuration: Any) -> None:
    listener = Listener()
    consumer = PushConsumer(configuration, "pushers", listener, {"news": FilterExpression()})
    consumer.startup()
    listener.done.wait(40)
    time.sleep(0.5)
    consumer.shutdown()


if __name__ == "__main__":
    configuration = ClientConfiguration(sys.argv[1], Credentials(*sys.argv[2:4]))
    send(configuration)
    producer = transact(configuration)
    receive(configuration, 5)
    push(configuration)
    producer.shutdown()
