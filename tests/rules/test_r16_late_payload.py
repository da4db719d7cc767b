"""R16: a body that is known only in the local transaction lies in its evidence, in that same commit.

Without it: killed between the local commit and the body, the evidence says COMMIT and there is nothing to
deliver; filling the half in place would change a message that was stored.
"""

from contextlib import suppress
from dataclasses import replace

import pytest
from sqlalchemy import Engine, text

from tests.scene.probe import Probe
from tests.scene.rules import AT_ONCE, OpenBroker, check_back, entries_in, read, write_entry
from txsaga.broker import Broker
from txsaga.checkback.round import CheckBack
from txsaga.core.decision import Decision, LocalState
from txsaga.core.identity import HalfId
from txsaga.core.message import MAX_BODY
from txsaga.errors import EffectConflict, InvalidMessage, TransactionError
from txsaga.messages.producer import Producer
from txsaga.messages.transaction import Transaction

pytestmark = [pytest.mark.rule("R16"), pytest.mark.postgres]

BODIES = text("SELECT count(*) FROM txsaga_evidence WHERE body = :body")
HALVES = "SELECT part, attempt, chunk, n, xmin::text, body FROM half WHERE keyed ORDER BY part, chunk"


def bodies_in(books: Engine, body: bytes) -> int:
    with books.connect() as connection:
        return int(connection.execute(BODIES, {"body": body}).scalar_one())


@pytest.fixture
def dead(seller: Producer) -> Transaction:
    """Give a transaction with a filled slot, killed between its local commit and its decision."""
    tx = seller.transaction(key="order-1").__enter__()
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


def test_a_body_is_there_with_the_local_commit_and_not_before(broker: Broker, seller: Producer, books: Engine) -> None:
    with seller.transaction() as tx:
        slot = tx.later("orders")
        with tx.local("books") as connection:
            slot.fill(connection, b"shared fate")
            assert bodies_in(books, b"shared fate") == 0
        assert bodies_in(books, b"shared fate") == 1
    assert read(broker) == [b"shared fate"]


def test_a_body_goes_with_the_local_rollback(broker: Broker, seller: Producer, books: Engine) -> None:
    with pytest.raises(ZeroDivisionError), seller.transaction() as tx:
        slot = tx.later("orders")
        with tx.local("books") as connection:
            slot.fill(connection, b"never")
            raise ZeroDivisionError
    assert tx.decision is Decision.ROLLBACK
    assert (bodies_in(books, b"never"), read(broker)) == (0, [])


def test_local_work_that_left_a_place_empty_does_not_commit(broker: Broker, seller: Producer, books: Engine) -> None:
    with pytest.raises(TransactionError, match="slot"), seller.transaction() as tx:
        tx.later("orders")
        with tx.local("books") as connection:
            write_entry(connection)
    assert tx.decision is Decision.ROLLBACK
    assert (entries_in(books), read(broker)) == (0, [])


def test_a_body_that_went_with_its_savepoint_leaves_its_place_empty(
    broker: Broker, seller: Producer, books: Engine
) -> None:
    with pytest.raises(TransactionError, match=r"slots \[1\]"), seller.transaction() as tx:
        slots = [tx.later("orders") for _ in range(2)]
        with tx.local("books") as connection:
            with suppress(ZeroDivisionError), connection.begin_nested():
                slots[0].fill(connection, b"gone")
                raise ZeroDivisionError
            slots[1].fill(connection, b"there")
    assert (tx.decision, read(broker)) == (Decision.ROLLBACK, [])
    with seller.transaction() as tx:
        slot = tx.later("orders")
        with tx.local("books") as connection:
            with suppress(ZeroDivisionError), connection.begin_nested():
                slot.fill(connection, b"gone")
                raise ZeroDivisionError
            slot.fill(connection, b"filled again")
    assert read(broker) == [b"filled again"]


def test_a_place_takes_no_body_on_another_connection(broker: Broker, seller: Producer, books: Engine) -> None:
    with seller.transaction(key="order-1") as tx:
        slot = tx.later("orders")
        with tx.local("books") as connection, books.connect() as other:
            with pytest.raises(TransactionError, match="with its connection"):
                slot.fill(other, b"lost")
            slot.fill(connection, b"kept")
    assert (bodies_in(books, b"lost"), read(broker)) == (0, [b"kept"])


@pytest.mark.parametrize("body", [b"x" * (MAX_BODY + 1), "text", None], ids=["too big", "text", "none"])
def test_a_late_body_is_checked_like_any_other(broker: Broker, seller: Producer, body: object) -> None:
    with pytest.raises(InvalidMessage), seller.transaction() as tx:
        slot = tx.later("orders")
        with tx.local("books") as connection:
            slot.fill(connection, body)  # type: ignore[arg-type]
    assert (tx.decision, read(broker)) == (Decision.ROLLBACK, [])


def test_a_place_is_filled_once(broker: Broker, seller: Producer) -> None:
    with seller.transaction() as tx:
        slot = tx.later("orders")
        with tx.local("books") as connection:
            slot.fill(connection, b"first")
            with pytest.raises(TransactionError, match="filled already"):
                slot.fill(connection, b"second")
    assert read(broker) == [b"first"]


def test_evidence_without_its_body_is_parked_and_never_rolled_back(
    broker: Broker, probe: Probe, books: Engine, dead: Transaction
) -> None:
    with books.begin() as connection:
        connection.execute(text("DELETE FROM txsaga_evidence WHERE body IS NOT NULL"))
    assert check_back(broker) == 0
    CheckBack(broker.kernel, replace(AT_ONCE, max_checks=2)).run_once()
    assert probe.rows("SELECT state, parked FROM tx JOIN doubt USING (txid)") == [
        ("parked", f"transaction {dead.txid} has no body for its late slots [1]")
    ]
    assert probe.value("SELECT count(*) FROM op WHERE keyed") == 0
    assert (entries_in(books), read(broker)) == (1, [])


def test_a_place_is_filled_in_local_work_only(seller: Producer, books: Engine) -> None:
    with seller.transaction() as tx:
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
