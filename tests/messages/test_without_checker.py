"""Blocks need no checker: what no process decided is rolled back, what left evidence follows it."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from tests.scene.rules import OpenBroker, check_back, entries_in, left_after_local, read
from tests.scene.shop import NEWS, ORDERS, Answer, Shop, order, says
from txsaga import COMMIT
from txsaga.broker import Broker
from txsaga.messages.stored_block import StoredBlock

pytestmark = [pytest.mark.postgres, pytest.mark.core]


class Killed(BaseException):
    """The end of a process, as far as its blocks are concerned."""


@pytest.fixture
def killed_before_deciding(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Have every process die after its messages were stored."""

    def die(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(StoredBlock, "decide", die)
    return monkeypatch


@pytest.mark.parametrize("key", [None, "order-1"])
def test_a_block_that_ends_commits(shop: Shop, key: str | None) -> None:
    with shop.broker.producer("silent").transaction(key=key) as tx:
        tx.send(order())
    assert (shop.bodies(), shop.pending()) == (["a chair"], [])


@pytest.mark.req("RMQ-31")
@pytest.mark.parametrize("key", [None, "order-1"])
@pytest.mark.parametrize("checker", [None, says(COMMIT)])
def test_a_block_that_no_process_decided_is_rolled_back(
    shop: Shop, killed_before_deciding: pytest.MonkeyPatch, key: str | None, checker: Answer | None
) -> None:
    """Its checker is not asked: nothing outside of the store could have happened that it knows of."""
    producer = shop.broker.producer("silent", checker=checker)
    with pytest.raises(Killed), producer.transaction(key=key) as tx:
        tx.send(order())
    killed_before_deciding.undo()
    (backlog,) = [each for each in shop.store.overview.backlogs() if each.group == "silent"]
    assert (backlog.undecided, backlog.unproven) == (1, None)
    assert (shop.check(), shop.bodies(), shop.pending()) == (1, [], [])
    assert tx.txid is not None
    assert shop.store.overview.history(tx.txid)[-1].why == "its owner never decided it"


@pytest.mark.parametrize("key", [None, "order-1"])
def test_local_work_that_committed_commits_the_block(open_broker: OpenBroker, books: Engine, key: str | None) -> None:
    broker: Broker = open_broker(books=books)
    broker.create_topic("orders", "transaction", queues=1)
    left_after_local(broker.producer("silent"), key=key)
    check_back(broker)
    assert (read(broker), entries_in(books)) == ([b"a"], 1)


def test_a_group_may_send_alone_and_in_blocks_and_have_sagas(shop: Shop) -> None:
    producer = shop.broker.producer("silent")
    producer.send(NEWS, b"alone")
    with producer.transaction() as tx:
        tx.send(order())
    with shop.broker.saga("silent"):
        pass
    assert sorted(shop.bodies(ORDERS, NEWS)) == ["a chair", "alone"]


def test_a_group_of_a_saga_takes_producers_of_every_kind(shop: Shop) -> None:
    with shop.broker.saga("travel"):
        pass
    shop.producer("travel").send(NEWS, b"with a checker")
    shop.broker.producer("travel").send(NEWS, b"without")
    assert sorted(shop.bodies(NEWS)) == ["with a checker", "without"]


def test_only_after_prepare_is_a_checker_asked(shop: Shop, killed_before_deciding: pytest.MonkeyPatch) -> None:
    with pytest.raises(Killed), shop.producer("shop").transaction(key="order-1") as tx:
        tx.send(order())
        tx.prepare()
    killed_before_deciding.undo()
    assert (shop.check(), shop.bodies()) == (1, ["a chair"])  # as its checker says
