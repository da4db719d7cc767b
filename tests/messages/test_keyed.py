"""
A key on the real store: how it is entered in each state.
"""

from contextlib import suppress

import pytest
from sqlalchemy import Engine

from tests.contracts.samples import PATIENCE, start
from tests.scene.elsewhere import Elsewhere
from tests.scene.gate import gate
from tests.scene.patience import eventually
from tests.scene.probe import Probe
from tests.scene.rules import (
    AT_ONCE,
    OpenBroker,
    check_back,
    entries_in,
    left_after_local,
    read,
    write_entry,
)
from txsaga.broker import Broker
from txsaga.checkback.profile import CheckProfile
from txsaga.checkback.round import CheckBack
from txsaga.core.decision import Decision, LocalState
from txsaga.errors import (
    AlreadyCommitted,
    DecidedOtherwise,
    InDoubt,
    InvalidMessage,
    Superseded,
    TransactionError,
)
from txsaga.messages.producer import Producer
from txsaga.messages.transaction import Transaction

pytestmark = [pytest.mark.postgres, pytest.mark.rule("R4"), pytest.mark.core]

KEY = "order-1"
LIVES = "SELECT epoch, owner, state FROM tx ORDER BY epoch"


class Refused(Exception):
    """What a body raises that does not like what it sees."""


def again(open_broker: OpenBroker, books: Engine, body: bytes = b"again") -> Transaction:
    """Run the same block as another process, to its end."""
    with open_broker(books=books).producer("shop", checker=lambda _: None).transaction(key=KEY) as tx:
        tx.send("orders", body)
    return tx


# Entering a key


def test_a_new_key_is_opened(seller: Producer, probe: Probe) -> None:
    with seller.transaction(key=KEY) as tx:
        assert probe.rows(LIVES) == [(1, 1, "active")]
    assert tx.decision is Decision.COMMIT


def test_an_open_key_is_taken_over(
    open_broker: OpenBroker, broker: Broker, seller: Producer, books: Engine, probe: Probe
) -> None:
    first = seller.transaction(key=KEY).__enter__()
    first.send("orders", b"first")
    second = again(open_broker, books, b"second")
    assert second.txid == first.txid
    assert probe.rows(LIVES) == [(1, 2, "committed")]
    with pytest.raises(DecidedOtherwise):
        first.__exit__(None, None, None)
    first.__exit__(ValueError, ValueError("too late"), None)
    assert first.decision is Decision.COMMIT
    assert read(broker) == [b"second"]


def test_a_superseded_owner_can_not_close(
    open_broker: OpenBroker, seller: Producer, books: Engine, probe: Probe
) -> None:
    first = seller.transaction(key=KEY).__enter__()
    open_broker(books=books).producer("shop", checker=lambda _: None).transaction(key=KEY).__enter__()
    with pytest.raises(Superseded), first.local("books") as session:
        write_entry(session)
    assert (entries_in(books), probe.rows(LIVES)) == (0, [(1, 2, "active")])


def test_a_committed_key_is_done_before_the_body_runs(
    open_broker: OpenBroker, broker: Broker, seller: Producer, books: Engine
) -> None:
    with seller.transaction(key=KEY) as tx:
        tx.send("orders", b"once")
    with pytest.raises(AlreadyCommitted) as told:
        again(open_broker, books)
    assert (told.value.txid, told.value.key) == (tx.txid, KEY)
    assert read(broker) == [b"once"]


def test_a_rolled_back_key_opens_its_next_life(
    open_broker: OpenBroker, broker: Broker, seller: Producer, books: Engine, probe: Probe
) -> None:
    with suppress(Refused), seller.transaction(key=KEY) as first:
        first.send("orders", b"first")
        raise Refused
    second = again(open_broker, books)
    assert second.txid != first.txid
    assert probe.rows(LIVES) == [(1, 1, "rolled_back"), (2, 1, "committed")]
    assert read(broker) == [b"again"]


def test_a_closed_key_with_evidence_is_committed_and_done_before_the_body_runs(
    open_broker: OpenBroker, broker: Broker, seller: Producer, books: Engine
) -> None:
    left_after_local(seller, b"once", key=KEY)
    with pytest.raises(AlreadyCommitted):
        again(open_broker, books)
    assert (entries_in(books), read(broker)) == (1, [b"once"])


def test_a_closed_key_without_evidence_is_fenced_and_opens_its_next_life(
    open_broker: OpenBroker, broker: Broker, seller: Producer, books: Engine, probe: Probe
) -> None:
    zombie = seller.transaction(key=KEY).__enter__()
    zombie.send("orders", b"first")
    with suppress(Refused), zombie.local("books") as session:
        write_entry(session)
        raise Refused
    again(open_broker, books)
    assert probe.rows(LIVES) == [(1, 1, "rolled_back"), (2, 1, "committed")]
    with pytest.raises(TransactionError):
        zombie.__exit__(None, None, None)
    assert (entries_in(books), read(broker)) == (0, [b"again"])


def test_a_closed_key_whose_local_work_still_runs_is_in_doubt(
    open_broker: OpenBroker, broker: Broker, seller: Producer, books: Engine
) -> None:
    with seller.transaction(key=KEY) as tx:
        tx.send("orders", b"once")
        with tx.local("books") as session:
            write_entry(session)
            with pytest.raises(InDoubt, match=r"retry later, or check `txsaga tx show"):
                again(open_broker, books)
    assert (entries_in(books), read(broker)) == (1, [b"once"])


@pytest.mark.parametrize(
    ("answer", "lives"),
    [
        (LocalState.COMMIT, [(1, 1, "committed")]),
        (LocalState.ROLLBACK, [(1, 1, "rolled_back"), (2, 1, "committed")]),
        (LocalState.UNKNOWN, [(1, 1, "sealed")]),
    ],
)
def test_a_closed_key_without_a_resource_is_asked_about(
    open_broker: OpenBroker, broker: Broker, probe: Probe, answer: LocalState, lives: list[tuple[object, ...]]
) -> None:
    prepared = broker.producer("mail", checker=lambda _: None).transaction(key=KEY).__enter__()
    prepared.send("orders", b"first")
    prepared.prepare()
    other = open_broker().producer("mail", checker=lambda _: answer)
    with suppress(AlreadyCommitted, InDoubt), other.transaction(key=KEY) as tx:
        tx.send("orders", b"second")
    assert probe.rows(LIVES) == lives
    assert read(broker) == [[b"first"], [b"second"], []][list(LocalState).index(answer)]


def test_a_parked_key_is_in_doubt(broker: Broker, seller: Producer, probe: Probe) -> None:
    tx = Elsewhere(seller.transaction(key=KEY)).__enter__()
    tx.send("orders", b"first")
    tx.prepare()
    check_back(broker)
    profile = CheckProfile(min_age=AT_ONCE.min_age, interval=AT_ONCE.interval, max_checks=1)
    CheckBack(broker.kernel, profile).run_once()
    assert probe.rows(LIVES) == [(1, 1, "parked")]
    with pytest.raises(InDoubt, match="is parked"):
        seller.transaction(key=KEY).__enter__()
    assert probe.rows(LIVES) == [(1, 1, "parked")]


def test_of_two_that_open_a_key_at_once_the_second_takes_over(
    open_broker: OpenBroker, broker: Broker, seller: Producer, books: Engine, probe: Probe
) -> None:
    with gate(probe, "INSERT", "tx") as shut:
        rivals = [
            start(open_broker(books=books).producer("shop", checker=lambda _: None).transaction(key=KEY).__enter__)
            for _ in range(2)
        ]
        shut.wait(2)
        shut.open()
        entered = [rival.result(PATIENCE) for rival in rivals]
    assert entered[0].txid == entered[1].txid
    assert probe.rows(LIVES) == [(1, 2, "active")]
    left = []
    for number, tx in enumerate(entered):
        with suppress(TransactionError):
            tx.send("orders", b"%d" % number)
            tx.__exit__(None, None, None)
            left.append(number)
    assert read(broker) == [b"%d" % number for number in left]
    assert len(left) == 1


def test_one_who_waits_for_a_key_finds_how_it_ended(
    open_broker: OpenBroker, broker: Broker, seller: Producer, books: Engine, probe: Probe
) -> None:
    tx = seller.transaction(key=KEY).__enter__()
    tx.send("orders", b"once")
    tx.prepare()
    with gate(probe, "INSERT", "op") as shut:
        leaving = start(lambda: tx.__exit__(None, None, None))
        (pid,) = shut.wait()
        entering = start(lambda: again(open_broker, books))
        eventually(lambda: probe.blocked_by(pid) or entering.done(), "the second waits for the first")
        shut.open()
        leaving.result(PATIENCE)
        with pytest.raises(AlreadyCommitted):
            entering.result(PATIENCE)
    assert read(broker) == [b"once"]


def test_a_key_belongs_to_its_group(broker: Broker, seller: Producer) -> None:
    with seller.transaction(key=KEY) as tx:
        tx.send("orders", b"shop")
    with broker.producer("mail", checker=lambda _: None).transaction(key=KEY) as tx:
        tx.send("orders", b"mail")
    assert read(broker) == [b"shop", b"mail"]


def test_an_empty_key_is_refused(seller: Producer) -> None:
    with pytest.raises(InvalidMessage):
        seller.transaction(key="")


@pytest.mark.parametrize(("inner", "names"), [("transaction", []), ("coordinated", ["books"]), ("saga", [])])
def test_a_key_is_not_opened_again_inside_its_own_block(
    broker: Broker, seller: Producer, probe: Probe, inner: str, names: list[str]
) -> None:
    with seller.transaction(key=KEY) as tx:
        tx.send("orders", b"once")
        with pytest.raises(TransactionError, match=f"'{KEY}' is open .*; use its transaction"):
            getattr(broker.producer("shop"), inner)(*names, key=KEY).__enter__()
        with seller.transaction(key="order-2") as other, broker.producer("mail").transaction(key=KEY):
            other.send("orders", b"another key")
        assert probe.rows("SELECT owner, state FROM tx ORDER BY txid")[0] == (1, "active")
    assert read(broker) == [b"another key", b"once"]
    with pytest.raises(AlreadyCommitted):
        seller.transaction(key=KEY).__enter__()


def test_a_block_that_failed_is_not_around_the_next_try(broker: Broker, seller: Producer) -> None:
    with suppress(Refused), seller.transaction(key=KEY) as tx:
        raise Refused
    with seller.transaction(key=KEY) as again:
        again.send("orders", b"again")
    assert (tx.decision, read(broker)) == (Decision.ROLLBACK, [b"again"])
