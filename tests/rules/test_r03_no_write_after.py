"""R3: every write into a keyed transaction locks its row and checks owner and state.

Without it: a zombie checks "open"; COMMIT is decided and dispatched; then its half commits: acknowledged, and
never delivered.
"""

from collections.abc import Callable

import pytest
from sqlalchemy import Engine

from tests.contracts.samples import PATIENCE, drain, start
from tests.scene.gate import gate
from tests.scene.patience import eventually
from tests.scene.probe import Probe
from tests.scene.rules import OpenBroker, read
from txsaga.broker import Broker
from txsaga.checkback.by_hand import ByHand
from txsaga.consume.stream import Stream
from txsaga.core.decision import Decision
from txsaga.core.layout import Batch
from txsaga.errors import DecidedOtherwise, Superseded, TransactionError
from txsaga.messages.producer import Producer
from txsaga.messages.transaction import Transaction

pytestmark = [pytest.mark.rule("R3"), pytest.mark.postgres]


@pytest.fixture(autouse=True)
def store_each_send(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every send of a keyed transaction be stored at once."""
    monkeypatch.setattr("txsaga.messages.message_buffer.FLUSH", 0)


@pytest.fixture
def paid(broker: Broker) -> tuple[Stream, Batch]:
    """Give a stream and a batch that it read."""
    broker.create_topic("paid", queues=1)
    broker.producer("bank").send("paid", b"1")
    drain(broker.kernel.store)
    stream = broker.stream("billing", ["paid"])
    batch = stream.poll()
    assert batch is not None
    return stream, batch


def test_a_half_that_was_let_in_is_delivered(broker: Broker, seller: Producer, probe: Probe) -> None:
    tx = seller.transaction(key="order-1").__enter__()
    tx.send("orders", b"a")
    with gate(probe, "INSERT", "half") as shut:
        sent = start(lambda: tx.send("orders", b"b"))
        (zombie,) = shut.wait()
        ended = start(lambda: tx.__exit__(None, None, None))
        eventually(lambda: probe.blocked_by(zombie) or ended.done(), "the end waits for the send")
        visible = read(broker)
        shut.open()
        sent.result(PATIENCE)
        ended.result(PATIENCE)
    assert visible == []
    assert read(broker) == [b"a", b"b"]


def test_offsets_that_were_let_in_are_freed_by_the_rollback(
    seller: Producer, probe: Probe, paid: tuple[Stream, Batch]
) -> None:
    tx = seller.transaction().__enter__()
    with gate(probe, "INSERT", "intent") as shut:
        bound = start(lambda: tx.consume(*paid))
        (zombie,) = shut.wait()
        tx.join_life()
        left = start(lambda: tx.__exit__(ValueError, ValueError("given up"), None))
        eventually(lambda: probe.blocked_by(zombie) or left.done(), "the rollback waits for the writer")
        shut.open()
        bound.result(PATIENCE)
        left.result(PATIENCE)
    assert probe.rows("SELECT state, (SELECT count(*) FROM intent) FROM tx") == [("rolled_back", 0)]


def test_a_slot_that_was_let_in_is_known_to_the_decision(broker: Broker, seller: Producer, probe: Probe) -> None:
    tx = seller.transaction(key="order-1").__enter__()
    txid = tx.txid
    assert txid is not None
    with gate(probe, "INSERT", "effect") as shut:
        reserved = start(lambda: tx.later("orders"))
        (zombie,) = shut.wait()
        ended = start(lambda: ByHand(broker.kernel).decide(txid, Decision.ROLLBACK, who="anna", why="it hangs"))
        eventually(lambda: probe.blocked_by(zombie) or ended.done(), "the decision waits for the slot")
        assert not ended.done()
        shut.open()
        reserved.result(PATIENCE)
        ended.result(PATIENCE)


@pytest.mark.rule("R4")
def test_a_take_over_waits_for_the_write_before_it(
    open_broker: OpenBroker, broker: Broker, seller: Producer, probe: Probe
) -> None:
    zombie = seller.transaction(key="order-1").__enter__()
    with gate(probe, "INSERT", "half") as shut:
        sent = start(lambda: zombie.send("orders", b"first"))
        (pid,) = shut.wait()
        retry = open_broker().producer("shop", checker=lambda _: None).transaction(key="order-1")
        entered = start(retry.__enter__)
        eventually(lambda: probe.blocked_by(pid) or entered.done(), "the take-over waits for the send")
        assert not entered.done()
        shut.open()
        sent.result(PATIENCE)
        entered.result(PATIENCE)
    retry.send("orders", b"second")
    retry.__exit__(None, None, None)
    assert read(broker) == [b"second"]


Write = Callable[[Transaction, tuple[Stream, Batch]], object]
WRITES: dict[str, Write] = {
    "send": lambda tx, _: tx.send("orders", b"zombie"),
    "later": lambda tx, _: tx.later("orders"),
    "consume": lambda tx, paid: tx.consume(*paid),
    "prepare": lambda tx, _: tx.prepare(),
}
ROWS = """
SELECT (SELECT count(*) FROM half WHERE keyed), (SELECT count(*) FROM effect), (SELECT count(*) FROM intent),
       (SELECT count(*) FROM part)"""


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_nothing_is_written_after_the_decision(
    open_broker: OpenBroker, seller: Producer, probe: Probe, paid: tuple[Stream, Batch], write: Write
) -> None:
    zombie = seller.transaction(key="order-1").__enter__()
    with open_broker().producer("shop", checker=lambda _: None).transaction(key="order-1") as winner:
        winner.send("orders", b"winner")
    before = probe.rows(ROWS)
    with pytest.raises(DecidedOtherwise, match="COMMIT"):
        write(zombie, paid)
    assert probe.rows(ROWS) == before


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_nothing_is_written_by_an_owner_who_was_taken_over(
    open_broker: OpenBroker, seller: Producer, probe: Probe, paid: tuple[Stream, Batch], write: Write
) -> None:
    zombie = seller.transaction(key="order-1").__enter__()
    open_broker().producer("shop", checker=lambda _: None).transaction(key="order-1").__enter__()
    before = probe.rows(ROWS)
    with pytest.raises(Superseded):
        write(zombie, paid)
    assert probe.rows(ROWS) == before


def test_an_owner_who_was_taken_over_decides_nothing(
    open_broker: OpenBroker, broker: Broker, seller: Producer, books: Engine
) -> None:
    zombie = seller.transaction(key="order-1").__enter__()
    zombie.send("orders", b"zombie")
    with open_broker().producer("shop", checker=lambda _: None).transaction(key="order-1") as winner:
        with pytest.raises(TransactionError):
            zombie.__exit__(None, None, None)
        zombie.__exit__(ValueError, ValueError("late"), None)
        assert zombie.decision is None
        winner.send("orders", b"winner")
    assert read(broker) == [b"winner"]
