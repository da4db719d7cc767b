"""End hooks hear of every end of their group before it is written, and whether a check made it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text

from tests.scene.shop import NEWS, ORDERS, Shop, order, says
from txsaga import COMMIT, ROLLBACK, UNKNOWN, LocalState
from txsaga.messages.end_request import EndRequest
from txsaga.messages.producer import Producer


@pytest.mark.req("RMQ-50", "RMQ-47")
@pytest.mark.conf("CLI-07")
def test_a_hook_sees_a_direct_end(shop: Shop) -> None:
    ends: list[EndRequest] = []
    producer = shop.producer(end_hooks=[ends.append])
    result = producer.send_in_transaction(order("a table", key="42"), says(COMMIT))
    (end,) = ends
    assert (end.group, end.message_id, end.transaction_id) == (
        "shop",
        result.message_id,
        result.transaction_id,
    )
    assert (end.from_check, end.state, end.topic) == (False, COMMIT, ORDERS)
    assert end.message is not None
    assert (end.message.body, end.message.topic) == (b"a table", ORDERS)


@pytest.mark.req("RMQ-50")
@pytest.mark.parametrize("answer", [COMMIT, ROLLBACK, UNKNOWN])
def test_a_hook_sees_the_end_that_a_check_makes(shop: Shop, answer: LocalState) -> None:
    ends: list[EndRequest] = []
    producer = shop.producer(checker=says(answer), end_hooks=[ends.append])
    result = producer.send_in_transaction(order(), says(UNKNOWN))
    shop.check()
    direct, checked = ends
    assert (direct.from_check, direct.state) == (False, UNKNOWN)
    assert (checked.from_check, checked.state) == (True, answer)
    for name in ("message_id", "transaction_id", "broker", "group", "commit_log_offset", "topic", "token"):
        assert getattr(checked, name) == getattr(direct, name), name
    assert checked.remark == f"the checker said {answer}"
    assert shop.transaction(result.queue_offset).from_check is (answer is not UNKNOWN)


Ending = Callable[[Producer], object]


def _block(producer: Producer) -> None:
    with producer.transaction() as tx:
        tx.send(order())


def _keyed(producer: Producer) -> None:
    with producer.transaction(key="42") as tx:
        tx.send(order())
        raise KeyError("sold out")


WAYS: dict[str, tuple[Ending, LocalState]] = {
    "commit": (lambda producer: producer.commit(producer.prepare_now(ORDERS, b"")), COMMIT),
    "roll back": (lambda producer: producer.roll_back(producer.prepare_now(ORDERS, b"")), ROLLBACK),
    "a block": (_block, COMMIT),
    "a keyed block that raised": (_keyed, ROLLBACK),
}


@pytest.mark.req("RMQ-50")
@pytest.mark.parametrize(("way", "state"), WAYS.values(), ids=WAYS)
def test_a_hook_sees_every_other_way_to_end(shop: Shop, way: Ending, state: LocalState) -> None:
    ends: list[EndRequest] = []
    producer = shop.producer(end_hooks=[lambda end: ends.append(end)])
    try:
        way(producer)
    except KeyError:
        assert state is ROLLBACK
    (listed,) = shop.listed()
    assert [(end.state, end.from_check, end.commit_log_offset) for end in ends] == [(state, False, listed.txid)]
    assert [end.transaction_id for end in ends] == [listed.id]


@pytest.fixture
def till(tmp_path: Path) -> Engine:
    engine = create_engine(f"sqlite:///{tmp_path / 'till.db'}")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE sale (id int)"))
    return engine


@pytest.mark.req("RMQ-50")
def test_a_hook_sees_the_end_that_the_evidence_makes(shop: Shop, till: Engine) -> None:
    ends: list[EndRequest] = []
    shop.broker.register("till", till)
    producer = shop.producer(end_hooks=[ends.append])
    with pytest.raises(KeyError), producer.transaction() as tx:
        tx.send(order())
        with tx.local("till"):
            raise KeyError("sold out")
    assert [(end.state, end.from_check) for end in ends] == [(ROLLBACK, True)]
    till.dispose()


@pytest.mark.req("RMQ-50")
def test_a_hook_hears_its_own_group_only(shop: Shop) -> None:
    ends: list[EndRequest] = []
    shop.producer("bank", end_hooks=[ends.append])
    shop.producer("shop").send_in_transaction(order(), says(UNKNOWN))
    shop.broker.producer("press").send(NEWS, b"fresh chairs")
    shop.check()
    assert ends == []


@pytest.mark.req("RMQ-50", "RMQ-44")
def test_a_failing_hook_is_logged_and_fails_no_end(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    ends: list[EndRequest] = []

    def broken(end: EndRequest) -> None:
        raise OSError("the tracer is gone")

    producer = shop.producer(end_hooks=[broken, ends.append])
    result = producer.send_in_transaction(order(), says(COMMIT))
    producer.send_in_transaction(order(), says(UNKNOWN))
    assert shop.check() == 1
    assert (shop.state(result.queue_offset), len(ends)) == ("committed", 3)
    failed = [r for r in caplog.records if "an end hook failed" in r.message]
    assert len(failed) == 3
    assert result.transaction_id in failed[0].message
