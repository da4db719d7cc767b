"""Send a message that joins a transaction, by RocketMQ's official Python client."""

from __future__ import annotations

import sys
from typing import Any

from rocketmq import ClientConfiguration, Credentials, Message, Producer, TransactionChecker


class Never(TransactionChecker):  # type: ignore[misc]  # it has no types
    """Is not asked: the other program decides."""

    def check(self, message: Any) -> Any:
        """Fail."""
        raise AssertionError(message)


address, token = sys.argv[1:]
producer = Producer(ClientConfiguration(address, Credentials()), ("orders",), checker=Never())
producer.startup()
message = Message()
message.topic, message.body = "orders", b"an order"
message.add_property("txsaga-transaction", token)
producer.send(message, producer.begin_transaction())
producer.shutdown()
