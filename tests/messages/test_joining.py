"""Sends inside the caller's own transaction: they share its fate, and are refused where they could not."""

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row, tuple_row
from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event, text

import txsaga
from tests.contracts.samples import drain
from tests.scene.stored import Stored
from tests.services.databases import DatabaseServer
from txsaga.broker import Broker
from txsaga.core.chunk import BODY, KEY, MAX_RECORDS, TAG, Chunk
from txsaga.core.topic import HALF_TOPIC
from txsaga.errors import (
    ConfigError,
    InvalidMessage,
    NotPrimary,
    ReservedName,
    StoreUnavailable,
    TopicTypeMismatch,
    TxSagaError,
    UnknownTopic,
)
from txsaga.messages.producer import Producer
from txsaga.store.connection import parse_url
from txsaga.wiring.connecting import open_store

pytestmark = pytest.mark.postgres

ADVICE = r"does not lead to the home database of the broker; use tx\.local\(…\) with a registered resource"


class GivenUp(Exception):
    """What the caller's own code may raise."""


@pytest.fixture
def broker(home_url: str) -> Iterator[Broker]:
    open_store(home_url).close()
    with txsaga.connect(home_url, roles=False, answering=False, env={}) as broker:
        broker.create_topic("paid", queues=1)
        broker.create_topic("moved", "transaction", queues=1)
        broker.create_topic("ordered", "fifo", queues=1)
        broker.create_topic("delayed", "delay", queues=1)
        yield broker


@pytest.fixture
def bank(broker: Broker) -> Producer:
    return broker.producer("bank")


@pytest.fixture
def engine(home_url: str) -> Engine:
    """Give the engine of a program that keeps its accounts in the home database."""
    return with_accounts(parse_url(home_url)[0])


@pytest.fixture
def elsewhere(server: DatabaseServer) -> str:
    """Give another database of the same server; it stays, since dropping one takes long."""
    server.database("elsewhere")
    return server.url("elsewhere")


def with_accounts(url: URL | str) -> Engine:
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS account"))
        connection.execute(text("CREATE TABLE account (cents INTEGER)"))
    return engine


def pay(connection: Connection, cents: int = 7) -> None:
    connection.execute(text("INSERT INTO account VALUES (:cents)"), {"cents": cents})


def paid(engine: Engine) -> list[int]:
    with engine.connect() as connection:
        return list(connection.execute(text("SELECT cents FROM account ORDER BY cents")).scalars())


def columns(broker: Broker, topic: str = "paid", column: int = BODY) -> list[bytes | None]:
    """Tick, and return what a reader of a topic sees."""
    store = broker.kernel.store
    drain(store)
    entries = [entry for qid in store.registry.topic(topic).qids for entry in store.log.fetch(qid, 0, 1000)]
    return [value for entry in entries for value in Chunk(entry.body).column(column) or []]


@pytest.mark.req("RMQ-01")
def test_message_and_row_become_visible_with_the_callers_commit(broker: Broker, bank: Producer, engine: Engine) -> None:
    with engine.begin() as connection:
        pay(connection)
        bank.join(connection).send("paid", b"7")
        assert columns(broker) == []
        assert paid(engine) == []
    assert columns(broker) == [b"7"]
    assert paid(engine) == [7]


def test_it_needs_no_asyncio_of_sqlalchemy(
    broker: Broker, bank: Producer, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sqlalchemy.ext.asyncio", None)  # it can't be imported without greenlet
    with engine.begin() as connection:
        bank.join(connection).send("paid", b"7")
    assert columns(broker) == [b"7"]


@pytest.mark.req("RMQ-01")
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_send_that_opens_the_callers_transaction_ends_with_it(
    bank: Producer, engine: Engine, stored: Stored, end: str
) -> None:
    for _ in range(2):  # the second finds a connection that is recognised already
        with engine.connect() as connection:
            bank.join(connection).send("paid", b"opens")
            getattr(connection, end)()
    assert stored.value("SELECT count(*) FROM half") == (2 if end == "commit" else 0)


def test_a_rollback_leaves_nothing_of_either(broker: Broker, bank: Producer, engine: Engine, stored: Stored) -> None:
    with pytest.raises(GivenUp), engine.begin() as connection:
        pay(connection)
        bank.join(connection).send("paid", b"7")
        raise GivenUp
    assert columns(broker) == []
    assert paid(engine) == []
    assert stored.rows("SELECT (SELECT count(*) FROM half), (SELECT count(*) FROM op)") == [(0, 0)]


def test_a_savepoint_takes_back_its_own_messages_only(broker: Broker, bank: Producer, engine: Engine) -> None:
    with engine.begin() as connection:
        sends = bank.join(connection)
        sends.send("paid", b"before")
        savepoint = connection.begin_nested()
        sends.send("paid", b"taken back")
        savepoint.rollback()
        sends.send("paid", b"after")
    assert columns(broker) == [b"before", b"after"]


def test_a_joined_message_is_decided_and_never_in_doubt(
    broker: Broker, bank: Producer, engine: Engine, stored: Stored
) -> None:
    with engine.begin() as connection:
        txid = bank.join(connection).send("moved", b"7", key="a", tag="t")
    assert stored.rows("SELECT txid, decision, from_check, keyed FROM op") == [(txid, 1, False, False)]
    stored.let_pass(3600)
    assert [role.run_once() for role in broker.roles() if role.name == "check-back"] == [0]
    assert [columns(broker, "moved", column) for column in (BODY, KEY, TAG)] == [[b"7"], [b"a"], [b"t"]]


def test_the_callers_commit_is_durable_whatever_its_session_says(bank: Producer, engine: Engine) -> None:
    show = text("SHOW synchronous_commit")
    with engine.connect() as connection:
        connection.execute(text("SET synchronous_commit = off"))
        connection.commit()
        bank.join(connection).send("paid", b"7")
        assert connection.execute(show).scalar() == "on"
        connection.commit()
        assert connection.execute(show).scalar() == "off"


def test_a_commit_that_waits_for_more_than_the_disk_goes_on_to(bank: Producer, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL synchronous_commit = remote_apply"))
        bank.join(connection).send("paid", b"7")
        assert connection.execute(text("SHOW synchronous_commit")).scalar() == "remote_apply"


def test_a_transaction_that_may_not_write_is_told_so(bank: Producer, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("SET TRANSACTION READ ONLY"))
        with pytest.raises(NotPrimary, match="your transaction is READ ONLY"):
            bank.join(connection).send("paid", b"7")


@pytest.mark.parametrize("known", [False, True])
def test_a_connection_in_autocommit_is_refused(bank: Producer, home_url: str, stored: Stored, known: bool) -> None:
    engine = create_engine(parse_url(home_url)[0], pool_size=1, max_overflow=0)
    if known:
        with engine.begin() as connection:
            bank.join(connection)
    with engine.execution_options(isolation_level="AUTOCOMMIT").begin() as connection:
        with pytest.raises(ConfigError, match=r"in AUTOCOMMIT, .* open it with engine.execution_options"):
            bank.join(connection)
    engine.dispose()
    assert stored.value("SELECT count(*) FROM half") == 0


def test_a_session_that_is_lost_is_told_in_our_words(bank: Producer, engine: Engine, stored: Stored) -> None:
    with pytest.raises(StoreUnavailable), engine.begin() as connection:
        pay(connection)
        sends = bank.join(connection)
        pid = connection.scalar(text("SELECT pg_backend_pid()"))
        stored.rows(f"SELECT pg_terminate_backend({pid}, 5000)")
        sends.send("paid", b"7")
    assert paid(engine) == []


def test_a_driver_that_binds_by_itself_sends_too(broker: Broker, bank: Producer, home_url: str) -> None:
    engine = create_engine(parse_url(home_url)[0], connect_args={"cursor_factory": psycopg.ClientCursor})
    for body in (b"1", b"2"):
        with engine.begin() as connection:
            connection.execute(text("SELECT 1"))
            bank.join(connection).send("paid", body)
    engine.dispose()
    assert columns(broker) == [b"1", b"2"]


def test_many_messages_are_one_commit_and_keep_their_order(
    broker: Broker, bank: Producer, engine: Engine, stored: Stored
) -> None:
    bodies = [b"%d" % n for n in range(2 * MAX_RECORDS + 1)]
    keys, tags = [f"k{n}" for n in range(len(bodies))], ["even", "odd"] * MAX_RECORDS + ["even"]
    with engine.begin() as connection:
        txids = bank.join(connection).send_many("paid", bodies, keys=keys, tags=tags)
    assert len(set(txids)) == 3
    assert columns(broker) == bodies
    assert columns(broker, column=KEY) == [key.encode() for key in keys]
    assert columns(broker, column=TAG) == [tag.encode() for tag in tags]
    assert stored.value("SELECT count(DISTINCT at) FROM log") == 1


def test_a_connection_is_recognised_once(bank: Producer, engine: Engine) -> None:
    asked: list[str] = []
    with engine.begin() as connection:
        event.listen(connection, "before_cursor_execute", lambda *seen: asked.append(seen[2]))
        for n in range(3):
            bank.join(connection).send("paid", b"%d" % n)
    assert len([sql for sql in asked if "pg_control_system" in sql]) == 1


@pytest.mark.parametrize("pipelined", [False, True])
def test_a_session_keeps_its_way_to_send_however_its_user_reads_rows(
    broker: Broker, bank: Producer, home_url: str, pipelined: bool
) -> None:
    engine = create_engine(parse_url(home_url)[0], pool_size=1, max_overflow=0)
    for body in (b"1", b"2"):  # the second in a session that has sent before
        with engine.begin() as connection:
            connection.execute(text("SELECT 1"))
            sends = bank.join(connection)
            driver = connection.connection.driver_connection
            assert isinstance(driver, psycopg.Connection)
            driver.row_factory = dict_row
            with driver.pipeline() if pipelined else nullcontext():
                assert sends.send("paid", body) > 0
            driver.row_factory = tuple_row
    with engine.connect() as connection:
        connection.invalidate()
    with engine.begin() as connection:
        connection.execute(text("SELECT 1"))
        bank.join(connection).send("paid", b"3")
    engine.dispose()
    assert columns(broker) == [b"1", b"2", b"3"]


def empty(home_url: str, other: str) -> str:
    """Give a database without any store."""
    return other


def another_store(home_url: str, other: str) -> str:
    """Give a database with a store of its own in a namespace of the same name."""
    open_store(f"{other}{'&' if '?' in other else '?'}namespace={parse_url(home_url)[1]}").close()
    return other


@pytest.mark.parametrize("kind", [empty, another_store])
def test_another_database_is_refused_and_the_callers_transaction_goes_on(
    home_url: str,
    broker: Broker,
    bank: Producer,
    elsewhere: str,
    kind: Callable[[str, str], str],
) -> None:
    engine = with_accounts(kind(home_url, elsewhere))
    with engine.begin() as connection:
        pay(connection, 1)
        with pytest.raises(ConfigError, match=ADVICE):
            bank.join(connection)
        pay(connection, 2)
    assert paid(engine) == [1, 2]
    assert columns(broker) == []


def test_sqlite_is_refused_and_the_callers_transaction_goes_on(bank: Producer, tmp_path: Path) -> None:
    engine = with_accounts(f"sqlite:///{tmp_path / 'bank.db'}")
    with engine.begin() as connection:
        pay(connection, 1)
        with pytest.raises(ConfigError, match=ADVICE):
            bank.join(connection)
        pay(connection, 2)
    assert paid(engine) == [1, 2]


def test_a_namespace_that_is_gone_is_refused_and_the_callers_transaction_goes_on(
    bank: Producer, engine: Engine, stored: Stored
) -> None:
    stored.rows(f'ALTER SCHEMA "{stored.namespace}" RENAME TO "{stored.namespace}_away"')
    with engine.begin() as connection:
        pay(connection, 1)
        with pytest.raises(ConfigError, match=ADVICE):
            bank.join(connection)
        pay(connection, 2)
    assert paid(engine) == [1, 2]


@pytest.mark.rule("R18")
def test_an_ordered_topic_takes_no_joined_sends(broker: Broker, bank: Producer, engine: Engine) -> None:
    with engine.begin() as connection:
        sends = bank.join(connection)
        with pytest.raises(TopicTypeMismatch, match="joined to your own transaction needs a topic of type normal"):
            sends.send("ordered", b"7", ordering_key="a")
        with pytest.raises(TopicTypeMismatch):
            sends.send_many("ordered", [b"7"])
        sends.send("paid", b"7")
    assert columns(broker, "ordered") == []
    assert columns(broker) == [b"7"]


@pytest.mark.parametrize(
    ("topic", "options", "refusal"),
    [
        ("delayed", {}, TopicTypeMismatch),
        ("paid", {"delay": timedelta(seconds=3)}, InvalidMessage),
        ("nowhere", {}, UnknownTopic),
        (HALF_TOPIC, {}, ReservedName),
    ],
)
def test_a_send_that_is_refused_leaves_the_callers_transaction_as_it_was(
    broker: Broker,
    bank: Producer,
    engine: Engine,
    topic: str,
    options: dict[str, Any],
    refusal: type[TxSagaError],
) -> None:
    with engine.begin() as connection:
        pay(connection)
        with pytest.raises(refusal):
            bank.join(connection).send(topic, b"7", **options)
        bank.join(connection).send("paid", b"8")
    assert columns(broker) == [b"8"]
    assert paid(engine) == [7]
