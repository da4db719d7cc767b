"""R10: evidence is found by a name that was registered, in the very database that was recorded.

Without it: check-back can't use the producer's engine; a wrong URL fences the wrong database; one open local
transaction holds up everything behind it.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from sqlalchemy import Engine, NullPool, create_engine, text

from tests.scene.probe import Probe
from tests.scene.rules import (
    AT_ONCE,
    OpenBroker,
    check_back,
    entries_in,
    left_after_local,
    left_before_local,
    read,
    write_entry,
)
from txsaga.broker import Broker
from txsaga.checkback.round import CheckBack
from txsaga.core.decision import Decision
from txsaga.errors import DecidedOtherwise, ResourceUnknown
from txsaga.messages.producer import Producer

pytestmark = [pytest.mark.rule("R10"), pytest.mark.postgres]


@pytest.fixture
def other_books(foreign_databases: Callable[[], str]) -> Iterator[Engine]:
    """Give another database that keeps evidence, and an entry table."""
    engine = create_engine(foreign_databases(), poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE entry (id int PRIMARY KEY)"))
    yield engine
    engine.dispose()


LAST_CHECK = replace(AT_ONCE, max_checks=1)


def barriers_in(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT count(*) FROM txsaga_evidence")).scalar_one())


@pytest.mark.parametrize("named", ["ledger", "engine"])
def test_a_resource_that_nobody_registered_is_refused_before_anything_is_stored(
    seller: Producer, probe: Probe, library: str, named: str
) -> None:
    stranger = create_engine(library, poolclass=NullPool)
    with (
        pytest.raises(ResourceUnknown, match=r"register it with broker\.register") as refusal,
        seller.transaction() as tx,
    ):
        tx.send("orders", b"a")
        with tx.local(stranger if named == "engine" else named):
            pytest.fail("local work ran")
    assert ("TXSAGA_RESOURCE_LEDGER" in str(refusal.value)) == (named == "ledger")
    assert probe.value("SELECT count(*) FROM half") == 0


@pytest.mark.parametrize("key", [None, "order-1"])
def test_name_and_database_are_recorded_before_local_work(
    broker: Broker, seller: Producer, probe: Probe, books: Engine, key: str | None
) -> None:
    _, evidence = broker.kernel.resource("books")
    where = "tx" if key else "half"
    recorded = f"SELECT r.name, r.database FROM {where} JOIN resource r ON r.id = {where}.evidence"
    with seller.transaction(key=key) as tx:
        tx.send("orders", b"a")
        with tx.local(books):
            assert probe.rows(recorded) == [("books", evidence.database)]


@pytest.mark.parametrize("key", [None, "order-1"])
def test_the_wrong_database_says_nothing_and_is_not_fenced(
    open_broker: OpenBroker, seller: Producer, books: Engine, other_books: Engine, key: str | None
) -> None:
    left_after_local(seller, key=key)
    misled = open_broker(books=other_books)
    misled.kernel.resource("books")
    assert check_back(misled) == 0
    assert barriers_in(other_books) == 0
    informed = open_broker(books=books)
    assert check_back(informed) == 1
    assert read(informed) == [b"a"]


def test_a_process_that_does_not_know_the_resource_decides_nothing(
    open_broker: OpenBroker, broker: Broker, seller: Producer, probe: Probe
) -> None:
    left_after_local(seller)
    assert check_back(open_broker()) == 0
    assert probe.value("SELECT count(*) FROM op WHERE from_check") == 0
    assert check_back(broker) == 1


def test_a_database_that_does_not_answer_decides_nothing(
    open_broker: OpenBroker, broker: Broker, seller: Producer, books: Engine
) -> None:
    left_after_local(seller)
    gone = create_engine(books.url.set(database="nowhere"), poolclass=NullPool)
    assert check_back(open_broker(books=gone)) == 0
    assert check_back(broker) == 1
    assert read(broker) == [b"a"]


UNABLE = ["without the resource", "with an address that leads nowhere", "with another database"]


@pytest.mark.req("RMQ-85")
@pytest.mark.parametrize("how", UNABLE)
def test_who_can_not_reach_the_evidence_uses_up_no_check(
    open_broker: OpenBroker, broker: Broker, seller: Producer, books: Engine, other_books: Engine, how: str
) -> None:
    gone = create_engine(books.url.set(database="nowhere"), poolclass=NullPool)
    left_after_local(seller)
    unable = open_broker(**dict(zip(UNABLE, ({}, {"books": gone}, {"books": other_books}), strict=True))[how])
    assert check_back(unable) == 0
    for _ in range(3):
        assert CheckBack(unable.kernel, LAST_CHECK).run_once() == 0
    assert check_back(broker) == 1
    assert read(broker) == [b"a"]


@pytest.mark.timeout(30)
def test_local_work_that_runs_long_uses_up_no_check(
    open_broker: OpenBroker, broker: Broker, seller: Producer, books: Engine
) -> None:
    with seller.transaction(key="order-1") as running:
        running.send("orders", b"running")
        with running.local("books") as connection:
            write_entry(connection)
            other = open_broker(books=books)
            assert check_back(other) == 0
            assert CheckBack(other.kernel, LAST_CHECK).run_once() == 0
            assert broker.kernel.store.overview.undecided().parked == 0
    assert (running.decision, read(broker)) == (Decision.COMMIT, [b"running"])


@pytest.mark.timeout(30)
def test_an_open_local_transaction_is_left_alone_and_holds_nobody_up(
    open_broker: OpenBroker, broker: Broker, seller: Producer, books: Engine
) -> None:
    other = open_broker(books=books)
    with seller.transaction() as running:
        running.send("orders", b"running")
        with running.local("books") as connection:
            write_entry(connection)
            left_before_local(broker, seller, b"never worked for")
            assert check_back(other) == 1
    assert running.decision is Decision.COMMIT
    assert (entries_in(books), read(broker)) == (1, [b"running"])


def test_local_work_that_comes_too_late_is_refused(
    open_broker: OpenBroker, broker: Broker, seller: Producer, books: Engine
) -> None:
    late = left_before_local(broker, seller)
    assert check_back(open_broker(books=books)) == 1
    _, evidence = broker.kernel.resource("books")
    with pytest.raises(DecidedOtherwise), evidence.work(late) as connection:
        write_entry(connection)
    assert (entries_in(books), read(broker)) == (0, [])
