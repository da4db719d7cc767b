"""A program that sells one chair: `python -m tests.scene.seller URL COMMIT`. Tests kill it on its way."""

import sys

import txsaga
from tests.scene.shop import ORDERS
from txsaga import COMMIT, Decision
from txsaga.consume.dispatcher import Dispatcher


def main() -> None:
    """Prepare, decide, and let the dispatcher make it visible."""
    url, decision = sys.argv[1:]
    with txsaga.connect(url, roles=False, answering=False) as broker:
        producer = broker.producer("shop", checker=lambda _: COMMIT)
        receipt = producer.prepare_now(ORDERS, b"a chair")
        producer.decide(receipt, Decision[decision]).result(30)
        Dispatcher(broker.kernel).run_once()


if __name__ == "__main__":
    main()
