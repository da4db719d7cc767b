"""R2: one way to decide, and it moves everything that belongs to the decision in one commit.

Without it: the owner dies, check-back inserts a bare decision: messages appear, cursors and late bodies don't.
"""

from dataclasses import replace

import pytest
from sqlalchemy import Engine

from tests.contracts.samples import PATIENCE, drain, start
from tests.scene.gate import gate
from tests.scene.probe import Probe
from tests.scene.rules import AT_ONCE, OpenBroker, check_back, entries_in, read, write_entry
from txsaga.broker import Broker
from txsaga.checkback.round import CheckBack
from txsaga.core.decision import Decision, LocalState
from txsaga.core.records import End
from txsaga.errors import EffectConflict, EndRefused
from txsaga.messages.producer import Producer
from txsaga.messages.transaction import Transaction

pytestmark = [pytest.mark.rule("R2"), pytest.mark.postgres, pytest.mark.core]

MOVED = """
SELECT (SELECT count(*) FROM half WHERE keyed), (SELECT max("off") FROM cursor WHERE grp = 'billing'),
       (SELECT count(*) FROM intent), (SELECT state FROM tx), (SELECT count(*) FROM op WHERE keyed),
       (SELECT count(*) FROM event)"""
NOTHING = [(1, 0, 1, "sealed", 0, 0)]
EVERYTHING = [(2, 1, 0, "committed", 1, 1)]
PUT_ELSEWHERE = "UPDATE cursor SET \"off\" = 1, owner = NULL, epoch = epoch + 1 WHERE grp = 'billing'"


@pytest.fixture
def dead(broker: Broker, seller: Producer) -> Transaction:
    """Give a transaction with a late body and consumed offsets whose owner died after local work."""
    broker.create_topic("paid", queues=1)
    broker.producer("bank").send("paid", b"1")
    drain(broker.kernel.store)
    stream = broker.stream("billing", ["paid"])
    batch = stream.poll()
    assert batch is not None
    tx = seller.transaction().__enter__()
    tx.consume(stream, batch)
    tx.send("orders", b"early")
    slot = tx.later("orders")
    with tx.local("books") as connection:
        write_entry(connection)
        slot.fill(connection, b"late")
    stream.close()
    return tx


@pytest.mark.rule("R11", "R16")
def test_check_back_moves_all_that_the_owner_would_have_moved(
    open_broker: OpenBroker, broker: Broker, books: Engine, probe: Probe, dead: Transaction
) -> None:
    assert check_back(open_broker(books=books)) == 1
    assert probe.rows(MOVED) == EVERYTHING
    assert read(broker) == [b"early", b"late"]


@pytest.mark.usefixtures("dead")
@pytest.mark.parametrize(("before", "table"), [("INSERT", "half"), ("UPDATE", "cursor"), ("INSERT", "op")])
def test_nobody_sees_a_part_of_a_decision(broker: Broker, probe: Probe, before: str, table: str) -> None:
    keyed = {"half": "NEW.keyed", "op": "NEW.keyed", "cursor": "NEW.off > OLD.off"}
    with gate(probe, before, table, when=keyed[table]) as halfway:
        settled = start(lambda: check_back(broker))
        halfway.wait()
        assert probe.rows(MOVED) == NOTHING
        halfway.open()
        assert settled.result(PATIENCE) == 1
    assert probe.rows(MOVED) == EVERYTHING


@pytest.mark.parametrize("decision", list(Decision))
def test_the_batch_path_decides_nothing_that_has_a_row_of_its_own(
    broker: Broker, probe: Probe, dead: Transaction, decision: Decision
) -> None:
    store = broker.kernel.store
    assert dead.txid is not None
    with store.ledgers.open() as ledger:
        life = ledger.lock(dead.txid)
    assert life is not None
    bare, plain = End(life.txid, life.group, life.token, decision), _plain(broker)
    refused, decided = store.halves.write((), [bare, plain]).standings
    assert isinstance(refused, EndRefused)
    assert "keyed" in str(refused)
    assert getattr(decided, "won", False)
    assert probe.rows(MOVED) == NOTHING


@pytest.mark.usefixtures("dead")
def test_a_conflict_never_rolls_back_what_committed_in_its_own_database(
    broker: Broker, probe: Probe, books: Engine
) -> None:
    probe.run(PUT_ELSEWHERE)
    assert check_back(broker) == 0
    assert probe.rows(MOVED) == [(1, 1, 1, "sealed", 0, 0)]
    CheckBack(broker.kernel, replace(AT_ONCE, max_checks=2)).run_once()
    assert probe.value("SELECT state FROM tx") == "parked"
    assert "cursor" in probe.value("SELECT parked FROM doubt")
    assert (read(broker), entries_in(books)) == ([], 1)


def test_a_conflict_that_only_a_checker_stands_against_ends_in_rollback(broker: Broker, probe: Probe) -> None:
    with pytest.raises(EffectConflict), _trusting(broker).transaction() as tx:
        tx.later("orders")
        tx.prepare()
    assert check_back(broker) == 1
    assert probe.value("SELECT state FROM tx") == "rolled_back"


def test_an_owner_hears_of_a_conflict_and_nothing_is_decided(broker: Broker, probe: Probe, dead: Transaction) -> None:
    probe.run(PUT_ELSEWHERE)
    with pytest.raises(EffectConflict):
        dead.__exit__(None, None, None)
    assert probe.rows(MOVED) == [(1, 1, 1, "sealed", 0, 0)]


def test_the_owner_takes_the_same_way(broker: Broker, probe: Probe, books: Engine, dead: Transaction) -> None:
    dead.__exit__(None, None, None)
    assert probe.rows(MOVED) == EVERYTHING
    assert entries_in(books) == 1
    assert read(broker) == [b"early", b"late"]


def _trusting(broker: Broker) -> Producer:
    return broker.producer("trusting", checker=lambda _: LocalState.COMMIT)


def _plain(broker: Broker) -> End:
    receipt = broker.producer("shop", checker=lambda _: None).prepare_now("orders", b"plain")
    return End(receipt.txid, receipt.group, receipt.token, Decision.COMMIT)
