"""R16: a body that is known only in the local transaction lies in its evidence, in that same commit.

Without it: killed between the local commit and the body, the evidence says COMMIT and there is nothing to
deliver; filling the half in place would change a message that was stored.
"""

import pytest
from sqlalchemy import Engine, text

from tests.rules.probe import Probe
from tests.rules.scene import OpenBroker, check_back, entries_in, read, write_entry
from txsaga.engine.broker import Broker
from txsaga.engine.producer import Producer
from txsaga.engine.transaction import Transaction
from txsaga.errors import EffectConflict, TransactionError
from txsaga.model.decision import Decision, LocalState
from txsaga.model.identity import HalfId

pytestmark = [pytest.mark.rule("R16"), pytest.mark.postgres]

BODIES = text("SELECT count(*) FROM txsaga_evidence WHERE body = :body")
HALVES = "SELECT part, attempt, chunk, n, xmin::text, body FROM half WHERE keyed ORDER BY part, chunk"


def bodies_in(books: Engine, body: bytes) -> int:
    with books.connect() as connection:
        return int(connection.execute(BODIES, {"body": body}).scalar_one())


@pytest.fixture
def dead(shop: Producer) -> Transaction:
    """Give a transaction with a filled slot, killed between its local commit and its decision."""
    tx = shop.transaction(key="order-1").__enter__()
    tx.send("orders", b"early")
    slot = tx.later("orders", key="k", tag="t", headers={"a": "b"})
    with tx.local("books") as connection:
        write_entry(connection)
        slot.fill(connection, b"known late")
    return tx


def test_a_body_outlives_the_process_that_knew_it(
    open_broker: OpenBroker, broker: Broker, books: Engine, dead: Transaction
) -> None:
    assert check_back(open_broker(books=books)) == 1
    assert read(broker) == [b"early", b"known late"]
    stream = broker.stream("billing", ["orders"])
    _, late = stream.messages(wait=0)
    assert (late.body, late.key, late.tag, late.headers) == (b"known late", "k", "t", {"a": "b"})
    assert HalfId.decode(late.id).txid == dead.txid


@pytest.mark.usefixtures("dead")
@pytest.mark.req("RMQ-13")
def test_it_comes_as_a_chunk_of_its_own_and_no_stored_half_is_touched(broker: Broker, probe: Probe) -> None:
    before = probe.rows(HALVES)
    assert check_back(broker) == 1
    assert len(before) == 1
    assert probe.rows(HALVES)[:1] == before
    assert len(probe.rows(HALVES)) == 2


def test_the_owner_delivers_it_the_same_way(broker: Broker, dead: Transaction) -> None:
    dead.__exit__(None, None, None)
    assert read(broker) == [b"early", b"known late"]


def test_a_body_is_there_with_the_local_commit_and_not_before(broker: Broker, shop: Producer, books: Engine) -> None:
    with shop.transaction() as tx:
        slot = tx.later("orders")
        with tx.local("books") as connection:
            slot.fill(connection, b"shared fate")
            assert bodies_in(books, b"shared fate") == 0
        assert bodies_in(books, b"shared fate") == 1
    assert read(broker) == [b"shared fate"]


def test_a_body_goes_with_the_local_rollback(broker: Broker, shop: Producer, books: Engine) -> None:
    with pytest.raises(ZeroDivisionError), shop.transaction() as tx:
        slot = tx.later("orders")
        with tx.local("books") as connection:
            slot.fill(connection, b"never")
            raise ZeroDivisionError
    assert tx.decision is Decision.ROLLBACK
    assert (bodies_in(books, b"never"), read(broker)) == (0, [])


def test_local_work_that_left_a_place_empty_does_not_commit(broker: Broker, shop: Producer, books: Engine) -> None:
    with pytest.raises(TransactionError, match="slot"), shop.transaction() as tx:
        tx.later("orders")
        with tx.local("books") as connection:
            write_entry(connection)
    assert tx.decision is Decision.ROLLBACK
    assert (entries_in(books), read(broker)) == (0, [])


def test_a_place_is_filled_in_local_work_only(shop: Producer, books: Engine) -> None:
    with shop.transaction() as tx:
        slot = tx.later("orders")
        with books.connect() as connection, pytest.raises(TransactionError, match=r"inside tx\.local"):
            slot.fill(connection, b"too early")
        with tx.local("books") as connection:
            slot.fill(connection, b"in time")
        with books.connect() as connection, pytest.raises(TransactionError, match=r"inside tx\.local"):
            slot.fill(connection, b"too late")


def test_without_evidence_it_can_only_be_rolled_back(broker: Broker, probe: Probe) -> None:
    trusting = broker.producer("trusting", checker=lambda question: LocalState.COMMIT)
    with pytest.raises(EffectConflict), trusting.transaction() as tx:
        tx.send("orders", b"early")
        tx.later("orders")
        tx.prepare()
    assert check_back(broker) == 1
    assert probe.value("SELECT decision FROM op WHERE keyed") == Decision.ROLLBACK
    assert read(broker) == []
