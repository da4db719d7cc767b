"""R18: what sessions and processes must not bring along.

Without it: a role's `synchronous_commit = off` makes an acknowledged message vanish in a crash; a decision
waits for a lock for ever; a forked child runs its parent's batches; a joined send breaks the order of a topic.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import NullPool, create_engine, make_url, text

import txsaga
from tests.contracts.samples import PATIENCE, start
from tests.scene.gate import gate
from tests.scene.probe import Probe
from tests.scene.rules import OpenBroker, read
from txsaga.broker import Broker
from txsaga.core.decision import Decision
from txsaga.errors import StoreUnavailable, TopicTypeMismatch
from txsaga.messages.producer import Producer
from txsaga.store import connection
from txsaga.store.connection import make_engine, parse_url
from txsaga.store.pipeline import PipelineConnection
from txsaga.store.statement import StatementCall
from txsaga.wiring.connecting import open_store

pytestmark = [pytest.mark.rule("R18"), pytest.mark.postgres]

LOOSE = {"synchronous_commit": "off", "lock_timeout": "0", "idle_in_transaction_session_timeout": "0"}
SHOW = "SELECT current_setting('synchronous_commit'), current_setting('lock_timeout')"


class Loose:
    """A home database whose defaults are no good."""

    def __init__(self, url: str, whose: str) -> None:
        self.url = url
        name = make_url(url).database
        target = {"database": f'DATABASE "{name}"', "role": f'ROLE CURRENT_USER IN DATABASE "{name}"'}
        engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        with engine.connect() as session:
            for setting, value in LOOSE.items():
                session.execute(text(f"ALTER {target[whose]} SET {setting} = '{value}'"))
        self.engine = create_engine(url, poolclass=NullPool)
        with self.engine.connect() as session:
            assert session.execute(text(SHOW)).one() == ("off", "0")


@pytest.fixture(params=["database", "role"])
def loose(request: pytest.FixtureRequest, foreign_databases: Callable[[], str]) -> Iterator[Loose]:
    made = Loose(foreign_databases(), request.param)
    yield made
    made.engine.dispose()


def test_our_sessions_are_durable_and_patient_whatever_the_database_says(loose: Loose) -> None:
    open_store(loose.url).close()
    engine = make_engine(*parse_url(loose.url))
    line = PipelineConnection(engine)
    try:
        with engine.connect() as session:
            assert session.execute(text(SHOW)).one() == ("on", "5s")
        assert line.exchange([StatementCall(SHOW), StatementCall("SHOW statement_timeout")]) == [
            [("on", "5s")],
            [("5s",)],
        ]
    finally:
        line.close()
        engine.dispose()


def test_a_joined_commit_is_durable_each_time(loose: Loose) -> None:
    open_store(loose.url).close()
    broker = txsaga.connect(loose.url, roles=False, answering=False)
    try:
        broker.create_topic("paid", queues=1)
        with loose.engine.connect() as session:
            joined = broker.producer("bank").join(session)
            for _ in range(2):
                joined.send("paid", b"a")
                assert session.execute(text(SHOW)).one()[0] == "on"
                session.commit()
                assert session.execute(text(SHOW)).one()[0] == "off"
                session.rollback()
    finally:
        broker.close()


def test_a_decision_waits_for_a_lock_no_longer_than_it_may(
    open_broker: OpenBroker, seller: Producer, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connection.SESSION, "lock_timeout", "300ms")
    hasty = open_broker().producer("shop", checker=lambda _: None)
    keyed = hasty.transaction(key="order-1").__enter__()
    keyed.send("orders", b"keyed")
    keyed.prepare()
    plain = hasty.prepare_now("orders", b"plain")
    with probe.session() as somebody:
        somebody.execute(text("SELECT FROM tx FOR UPDATE"))
        somebody.execute(text(f"INSERT INTO op (txid, decision) VALUES ({plain.txid}, 1)"))
        with pytest.raises(StoreUnavailable, match="lock timeout"):
            keyed.__exit__(None, None, None)
        with pytest.raises(StoreUnavailable, match="lock timeout"):
            hasty.commit(plain)
    keyed.__exit__(None, None, None)
    assert keyed.decision is Decision.COMMIT
    assert hasty.commit(plain).won


@pytest.mark.parametrize("many", [False, True])
def test_a_joined_send_is_refused_on_an_ordered_topic(broker: Broker, probe: Probe, store_url: str, many: bool) -> None:
    broker.create_topic("ordered", "fifo", queues=1)
    engine = make_engine(*parse_url(store_url))
    with engine.connect() as session, pytest.raises(TopicTypeMismatch):
        joined = broker.producer("bank").join(session)
        joined.send_many("ordered", [b"a"], keys=["k"]) if many else joined.send("ordered", b"a", ordering_key="k")
    engine.dispose()
    assert probe.value("SELECT count(*) FROM half") == 0


def test_the_hole_a_joined_decision_is_older_than_those_it_lets_pass(
    broker: Broker, probe: Probe, store_url: str
) -> None:
    broker.create_topic("paid", queues=1)
    bank = broker.producer("bank")
    engine = make_engine(*parse_url(store_url))
    with engine.connect() as session:
        bank.join(session).send("paid", b"sent first")
        bank.send("paid", b"sent second")
        bank.send("paid", b"sent third")
        assert read(broker, "paid") == [b"sent second", b"sent third"]
        session.commit()
    engine.dispose()
    assert read(broker, "paid") == [b"sent second", b"sent third", b"sent first"]


@pytest.mark.rule("R14")
@pytest.mark.timeout(60)
def test_a_forked_child_leaves_batches_and_connections_to_its_parent(
    broker: Broker, probe: Probe, store_url: str
) -> None:
    broker.create_topic("paid", queues=1)
    program = [sys.executable, "-m", "tests.scene.forking", store_url]
    with gate(probe, "INSERT", "half", when="NEW.n = 2") as shut:
        running = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        with running:
            assert running.stdin is not None and running.stdout is not None
            shut.wait()
            running.stdin.write("fork\n")
            running.stdin.flush()
            forked = start(running.stdout.readline)
            assert forked.result(2 * PATIENCE) == "0\n"
            shut.open()
    assert running.returncode == 0
    assert sorted(read(broker, "paid")) == sorted(
        [b"parent", b"many", b"more", b"child", b"child again", b"parent again"]
    )
