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

SAYING = threading.Lock()


def say(*words: object) -> None:
    with SAYING:
        print(*words, sep="\t", flush=True)


def made(topic: str, body: str, **given: Any) -> Any:
    message = Message()
    message.topic, message.body, message.tag, message.keys = topic, body.encode(), "red", "key"
    message.add_property("color", "blue")
    for name, value in given.items():
        setattr(message, name, value)
    return message


class Checker(TransactionChecker):  # type: ignore[misc]  # it has no types
    """Commits what was left by name, once it is asked again."""

    def __init__(self) -> None:
        self.asked: set[str] = set()

    def check(self, message: Any) -> Any:
        text = message.body.decode()
        say("checked", text)
        if text == "left, rolled back":
            return TransactionResolution.ROLLBACK
        if text in self.asked:
            return TransactionResolution.COMMIT
        self.asked.add(text)
        return TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED


class Listener(MessageListener):  # type: ignore[misc]
    """Fails at the first delivery of a message, and always for one."""

    def __init__(self) -> None:
        self.done = threading.Semaphore(0)

    def consume(self, message: Any) -> Any:
        text = message.body.decode()
        say("pushed", text, message.delivery_attempt)
        if message.delivery_attempt == 1:
            return ConsumeResult.FAILURE
        self.done.release()
        return ConsumeResult.FAILURE if text == "failing" else ConsumeResult.SUCCESS


def send(configuration: Any) -> None:
    producer = Producer(configuration, ("news", "lines", "later"))
    producer.startup()
    due = int(time.time()) + 3
    say("due", due * 1000)
    for sent in (
        made("news", "normal"),
        made("news", "failing", tag="green"),
        made("lines", "ordered", message_group="g"),
        made("later", "delayed", delivery_timestamp=due),
    ):
        say("sent", producer.send(sent).message_id)
    recalled = producer.send(made("later", "recalled", delivery_timestamp=due))
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
    topics = {each: FilterExpression() for each in ("lines", "later")}
    topics["news"] = FilterExpression("red")
    topics["orders"] = FilterExpression("color = 'blue'", FilterType.SQL)
    consumer = SimpleConsumer(configuration, "readers", topics, 1)
    consumer.startup()
    found, end = 0, time.monotonic() + 60
    while found < expected and time.monotonic() < end:
        for message in consumer.receive(16, 15) or []:
            text, now = message.body.decode(), int(time.time() * 1000)
            say("received", text, message.message_id, message.properties["color"], message.delivery_attempt, now)
            again = text == "normal" and message.delivery_attempt == 1
            consumer.change_invisible_duration(message, 1 if again else 20)
            if not again:
                consumer.ack(message)
            found += 1
    consumer.shutdown()


def push(configuration: Any) -> None:
    listener = Listener()
    consumer = PushConsumer(configuration, "pushers", listener, {"news": FilterExpression()})
    consumer.startup()
    for _ in range(2):
        listener.done.acquire(timeout=40)
    time.sleep(0.5)
    consumer.shutdown()


if __name__ == "__main__":
    configuration = ClientConfiguration(sys.argv[1], Credentials(*sys.argv[2:4]))
    send(configuration)
    producer = transact(configuration)
    receive(configuration, 6)
    push(configuration)
    producer.shutdown()
