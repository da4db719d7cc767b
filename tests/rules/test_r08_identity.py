"""R8: a store has a uuid and an incarnation, and is bound to its server, timeline and place.

Without it: numbers start again after a reset, in another namespace, after a failover or a restore. A stale
evidence row says COMMIT, restored decisions lie below the last tick and are never dispatched.
"""

from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy import Connection, Engine

import txsaga
from tests.contracts.samples import PATIENCE, start
from tests.scene.patience import eventually
from tests.scene.probe import Probe
from tests.scene.rules import (
    OpenBroker,
    check_back,
    entries_in,
    left_after_local,
    left_before_local,
    read,
    write_entry,
)
from txsaga.broker import Broker
from txsaga.core.decision import LocalState
from txsaga.core.identity import StoreId
from txsaga.errors import DecidedOtherwise, EndRefused, IdentityChanged, OutcomeUnknown, UnknownTransaction
from txsaga.messages.producer import Producer
from txsaga.rocketmq import EndRequest, EndRequestHandler
from txsaga.store import founding
from txsaga.store.connection import make_engine, parse_url, transaction
from txsaga.wiring.connecting import open_store

pytestmark = [pytest.mark.rule("R8"), pytest.mark.postgres]

MOVES = {
    "another server": "UPDATE store SET system_identifier = system_identifier + 1",
    "another timeline": "UPDATE store SET timeline = '0000002A'",
    "another place": "UPDATE store SET place = '1/1'",
}
# After a restore into a younger server the xids are higher than any that it has given out, far or by a little.
AHEAD = {"far": 900_000_000_000, "a little": 1_000}
# A session that ended before anything was sent is a clear no, one that broke under a statement is unknown.
NOT_DONE_HERE = (IdentityChanged, OutcomeUnknown)
Adopt = Callable[[], StoreId]


@pytest.fixture
def adopt(store_url: str) -> Adopt:
    """Adopt the store as `txsaga db adopt` does."""

    def adopted() -> StoreId:
        address, namespace = parse_url(store_url)
        engine = make_engine(address, namespace)
        try:
            with transaction(engine) as connection:
                return founding.adopt(connection, namespace)
        finally:
            engine.dispose()

    return adopted


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_a_store_that_was_moved_is_not_opened(store_url: str, probe: Probe, move: str) -> None:
    probe.run(move)
    with pytest.raises(IdentityChanged, match="txsaga db adopt"):
        txsaga.connect(store_url, roles=False, answering=False)


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_a_running_process_does_not_follow_its_store(broker: Broker, seller: Producer, probe: Probe, move: str) -> None:
    seller.prepare_now("orders", b"before")
    probe.run(move)
    probe.run(founding.SQL["end_others"].format(name=f"txsaga {probe.namespace}"))
    for work in (
        lambda: seller.prepare_now("orders", b"after"),
        lambda: seller.transaction(key="after").__enter__(),
        lambda: broker.kernel.store.log.tick(10),
        lambda: broker.kernel.store.doubts.sweep(timedelta(0)),
    ):
        with pytest.raises(NOT_DONE_HERE, match="no longer store"):
            work()
    assert probe.rows("SELECT (SELECT count(*) FROM half), (SELECT count(*) FROM tx)") == [(1, 0)]


def test_a_copy_in_another_namespace_is_not_the_store(store_url: str, probe: Probe) -> None:
    copy = f"{probe.namespace}c"
    probe.run(f"CREATE SCHEMA {copy}")
    for table in ("store", "alembic_version"):
        probe.run(f"CREATE TABLE {copy}.{table} AS TABLE {table}")
    with pytest.raises(IdentityChanged, match="copy"):
        txsaga.connect(store_url.replace(probe.namespace, copy), roles=False, answering=False)


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_adopting_raises_the_incarnation_and_opens_the_store(
    open_broker: OpenBroker, broker: Broker, probe: Probe, adopt: Adopt, move: str
) -> None:
    before = broker.identity
    probe.run(move)
    adopted = adopt()
    assert (adopted.uuid, adopted.incarnation) == (before.uuid, before.incarnation + 1)
    assert open_broker().identity == adopted


def test_the_hole_decisions_below_the_last_tick_are_never_dispatched(
    broker: Broker, seller: Producer, probe: Probe
) -> None:
    read(broker)
    restore(probe, AHEAD["far"])
    seller.commit(seller.prepare_now("orders", b"new"))
    assert read(broker) == []


@pytest.mark.parametrize("ahead", AHEAD.values(), ids=AHEAD)
def test_after_adopting_each_decision_is_delivered_once(
    open_broker: OpenBroker, broker: Broker, seller: Producer, probe: Probe, adopt: Adopt, ahead: int
) -> None:
    seller.commit(seller.prepare_now("orders", b"dispatched"))
    read(broker)
    seller.commit(seller.prepare_now("orders", b"decided"))
    seller.roll_back(seller.prepare_now("orders", b"rolled back"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("txsaga.messages.message_buffer.FLUSH", 0)
        seller.transaction(key="order-1").__enter__().send("orders", b"superseded")
        with seller.transaction(key="order-1") as tx:
            tx.send("orders", b"keyed")
    seller.prepare_now("orders", b"undecided")
    restore(probe, ahead)
    adopt()
    after = open_broker()
    assert read(after) == [b"dispatched", b"decided", b"keyed"]
    pass_xids(probe, 2_000)
    again = after.producer("shop", checker=lambda _: None)
    again.commit(again.prepare_now("orders", b"new"))
    assert read(after) == [b"dispatched", b"decided", b"keyed", b"new"]
    assert probe.value("SELECT head FROM queue") == 4


def restore(probe: Probe, ahead: int) -> None:
    """Move the xids of the store as a restore into a younger server does."""
    probe.run(f"UPDATE op SET xid = (xid::text::bigint + {ahead})::text::xid8")
    xmax = f"pg_snapshot_xmax(snap)::text::bigint + {ahead}"
    probe.run(f"UPDATE tick SET snap = (({xmax}) || ':' || ({xmax}) || ':')::pg_snapshot")


def pass_xids(probe: Probe, count: int) -> None:
    """Let the server give out so many xids."""
    probe.run(
        f"""DO $$ BEGIN FOR i IN 1..{count} LOOP
              BEGIN INSERT INTO checkpoint VALUES ('x', 0); RAISE unique_violation;
              EXCEPTION WHEN unique_violation THEN NULL; END; END LOOP; END $$"""
    )


def test_a_decision_under_way_while_adopting_is_delivered_once(
    open_broker: OpenBroker, broker: Broker, probe: Probe, adopt: Adopt
) -> None:
    broker.create_topic("paid", queues=1)
    with probe.session() as late:
        late.exec_driver_sql("SELECT pg_current_xact_id()")
        adopt()
        bank = open_broker().producer("bank")
        bank.join(late).send("paid", b"late")
        late.commit()
    bank.send("paid", b"next")
    assert sorted(read(open_broker(), "paid")) == [b"late", b"next"]


def test_tokens_of_the_life_before_are_refused(
    open_broker: OpenBroker, seller: Producer, probe: Probe, adopt: Adopt
) -> None:
    receipt = seller.prepare_now("orders", b"a")
    adopt()
    after = open_broker().producer("shop", checker=lambda _: None)
    with pytest.raises(UnknownTransaction, match="token"):
        after.commit(receipt)
    assert probe.value("SELECT count(*) FROM op") == 0


def test_ids_of_the_life_before_are_refused(
    open_broker: OpenBroker, broker: Broker, seller: Producer, adopt: Adopt
) -> None:
    kept, lost = seller.prepare_now("orders", b"a").txid, 4711
    message = broker.kernel.store.halves.views(kept)[0].id
    names = {txid: broker.identity.transaction(txid) for txid in (kept, lost)}
    adopt()
    after = open_broker()
    assert after.identity.own(names[kept]) == kept
    with pytest.raises(UnknownTransaction, match="another store"):
        after.identity.own(names[lost])
    request = EndRequest(
        message_id=message,
        transaction_id=names[kept],
        broker=str(broker.identity),
        group="shop",
        state=LocalState.COMMIT,
        token=b"",
        state_table_offset=kept,
        commit_log_offset=kept,
    )
    with pytest.raises(EndRefused, match="it belongs to store"):
        EndRequestHandler(after.kernel).submit(request)


def test_a_process_of_the_life_before_stores_nothing_under_its_name(
    broker: Broker, seller: Producer, probe: Probe, store_url: str
) -> None:
    seller.prepare_now("orders", b"before")
    address, namespace = parse_url(store_url)
    engine = make_engine(address, namespace)
    with transaction(engine) as adopting:
        founding.adopt(adopting, namespace)
        waiting = start(lambda: seller.prepare_now("orders", b"zombie"))
        _wait_for_reconnect(probe, adopting)
    engine.dispose()
    with pytest.raises(NOT_DONE_HERE, match="no longer store"):
        waiting.result(PATIENCE)
    assert probe.value("SELECT count(*) FROM half") == 1


@pytest.mark.parametrize("key", [None, "order-1"])
def test_evidence_from_before_still_decides_its_own_transaction(
    open_broker: OpenBroker, seller: Producer, books: Engine, adopt: Adopt, key: str | None
) -> None:
    left_after_local(seller, key=key)
    adopt()
    after = open_broker(books=books)
    assert check_back(after) == 1
    assert read(after) == [b"a"]


def test_local_work_from_before_is_fenced_under_its_own_name(
    open_broker: OpenBroker, broker: Broker, seller: Producer, books: Engine, adopt: Adopt
) -> None:
    id = left_before_local(broker, seller)
    _, evidence = broker.kernel.resource("books")
    adopt()
    assert check_back(open_broker(books=books)) == 1
    with pytest.raises(DecidedOtherwise), evidence.work(id) as connection:
        write_entry(connection)
    assert entries_in(books) == 0


def test_evidence_of_another_store_with_the_same_number_says_nothing(
    open_broker: OpenBroker, broker: Broker, seller: Producer, books: Engine, home_database: str, probe: Probe
) -> None:
    first = left_after_local(seller)
    url = f"{home_database}{'&' if '?' in home_database else '?'}namespace={probe.namespace}b"
    open_store(url).close()
    other = txsaga.connect(url, resources={"books": books}, roles=False, answering=False)
    try:
        other.create_topic("orders", "transaction", queues=1)
        id = left_before_local(other, other.producer("shop", checker=lambda _: None))
        assert other.identity.own(id) == first.txid
        assert check_back(other) == 1
        assert read(other) == []
    finally:
        other.close()


def test_a_decision_by_the_owner_from_before_is_left_to_the_evidence(
    open_broker: OpenBroker, seller: Producer, books: Engine, adopt: Adopt
) -> None:
    tx = left_after_local(seller)
    adopt()
    with pytest.raises(NOT_DONE_HERE, match="no longer store"):
        tx.__exit__(None, None, None)
    after = open_broker(books=books)
    assert check_back(after) == 1
    assert (entries_in(books), read(after)) == (1, [b"a"])


def _wait_for_reconnect(probe: Probe, adopting: Connection) -> None:
    pid = adopting.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
    eventually(lambda: probe.blocked_by(pid), "the process of the life before waits for the adoption")
