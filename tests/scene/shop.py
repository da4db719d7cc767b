"""A shop that sends orders: one broker, what lies stored of its messages, and what a consumer gets of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from typing import Unpack

from tests.contracts.timing import Later
from txsaga import COMMIT, Delivered, Message
from txsaga.broker import Broker
from txsaga.checkback.profile import CheckProfile
from txsaga.consume.dispatcher import Dispatcher
from txsaga.core.decision import Decision, LocalState
from txsaga.core.message import MessageOptions
from txsaga.core.records import HalfView, TxView
from txsaga.messages.producer import Producer
from txsaga.rocketmq import TransactionMQProducer
from txsaga.store.store import Store
from txsaga.testing.checking import check_once

ORDERS, NEWS = "orders", "news"
QUEUES = 4
LONG_AGO = 60.0
Answer = Callable[..., LocalState | Decision | None]


def says(state: LocalState | None) -> Answer:
    """Give local work, or a checker, that answers this."""
    return lambda *_: state


def order(text: str = "a chair", **options: Unpack[MessageOptions]) -> Message:
    """Make a message to the topic of orders."""
    return Message.text(ORDERS, text, **options)


class Shop:
    """A broker that runs no roles by itself, with a topic for halves and one for plain messages."""

    def __init__(self, broker: Broker, later: Later) -> None:
        self.broker, self.later = broker, later
        self._readers = count()
        broker.create_topic(ORDERS, "transaction", queues=QUEUES)
        broker.create_topic(NEWS, "normal", queues=1)

    @property
    def store(self) -> Store:
        """The store below."""
        return self.broker.kernel.store

    def producer(self, group: str = "shop", checker: Answer | None = None) -> Producer:
        """Open a producer of half messages; its checker says COMMIT unless there is another."""
        return self.broker.producer(group, checker=checker or says(COMMIT))

    def mq_producer(
        self, group: str = "shop", checker: Answer | None = None, **options: object
    ) -> TransactionMQProducer:
        """Open a producer as RocketMQ has it; its checker says COMMIT unless there is another."""
        answers = checker or says(COMMIT)
        return TransactionMQProducer(self.broker, group, checker=answers, **options)  # type: ignore[arg-type]

    def deliver(self) -> None:
        """Let the dispatcher give offsets to everything that is decided."""
        dispatcher = Dispatcher(self.broker.kernel)
        while dispatcher.run_once():
            pass

    def read(self, *topics: str) -> list[Delivered]:
        """Deliver, then read topics from their start as a new consumer group."""
        self.deliver()
        stream = self.broker.stream(f"reader-{next(self._readers)}", topics or (ORDERS,), member="anna")
        found: list[Delivered] = []
        while (batch := stream.poll()) is not None:
            found += batch.messages()
        stream.close()
        return found

    def bodies(self, *topics: str) -> list[str]:
        """Read topics and return the bodies."""
        return [message.text() for message in self.read(*topics)]

    def round(self, most: int = 15) -> int:
        """Run one round of the check-back now; count the settled."""
        before = set(self.pending())
        check_once(self.broker, CheckProfile(interval=timedelta(0), max_checks=most))
        return len(before - set(self.pending()))

    def check(self, most: int = 15) -> int:
        """Let time pass and run one round of the check-back over whatever is undecided; count the settled."""
        self.later(LONG_AGO)
        self.deliver()  # the sweep goes by ticks: first one behind the halves, then time behind the tick
        self.later(LONG_AGO)
        return self.round(most)

    def view(self, txid: int) -> HalfView:
        """Return the one half of a transaction as it lies."""
        (view,) = self.store.halves.views(txid)
        return view

    def transaction(self, txid: int) -> TxView:
        """Return a transaction as it is listed."""
        view = self.store.overview.transaction(txid)
        assert view is not None
        return view

    def state(self, txid: int) -> str:
        """Return the state of a transaction."""
        return str(self.transaction(txid).state)

    def listed(self) -> Sequence[TxView]:
        """List every transaction."""
        return self.store.overview.transactions(undecided=False, limit=1000)

    def pending(self) -> list[int]:
        """Return the numbers of all transactions without a decision."""
        return [view.txid for view in self.store.overview.transactions(undecided=True, limit=1000)]


@contextmanager
def closing(shop: Shop) -> Iterator[Shop]:
    """Close the broker of a shop."""
    try:
        yield shop
    finally:
        shop.broker.close()
