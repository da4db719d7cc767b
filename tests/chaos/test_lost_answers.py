"""A COMMIT without an answer is unknown, never "no": what was stored is found again, nothing is stored twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import text

import txsaga
from tests.chaos.invariants import assert_sound, delivered
from tests.chaos.proxy import Loss, Proxy, network
from tests.chaos.scenarios import CREDITS, nobody_knows, settle
from tests.chaos.world import BANK, World, database, debit
from tests.contracts.samples import drain
from txsaga.broker import Broker
from txsaga.core import facts
from txsaga.core.batcher import Batcher
from txsaga.core.decision import Decision
from txsaga.core.facts import Fact
from txsaga.errors import OutcomeUnknown, StoreUnavailable
from txsaga.messages import halves_store
from txsaga.messages.producer import Producer

pytestmark = [pytest.mark.postgres, pytest.mark.rule("R14")]

BIG = "credit" * 500_000
COMMIT = b"Q\x00\x00\x00\x0bCOMMIT\x00"  # on the wire, not in a text
LOSSES = pytest.mark.parametrize("loss", [Loss.REQUEST, Loss.ANSWER], ids=lambda loss: loss.name.lower())


@pytest.fixture
def home(world: World) -> Iterator[Proxy]:
    """Give the network to the home database."""
    with network(world.home_database) as proxy:
        yield proxy


@pytest.fixture
def break_at() -> dict[type[Fact], Callable[[], None]]:
    """Give what to do at a fact."""
    return {}


@pytest.fixture
def broker(world: World, home: Proxy, break_at: dict[type[Fact], Callable[[], None]]) -> Iterator[Broker]:
    """Give a broker behind that network."""

    def observe(fact: Fact) -> None:
        break_at.pop(type(fact), lambda: None)()

    url = f"{home.url}?namespace={world.name}"
    with txsaga.connect(url, roles=False, answering=False, observers=[observe], env={}) as broker:
        broker.create_topic(CREDITS, "transaction", queues=2)
        broker.create_topic("news", queues=2)
        yield broker


@pytest.fixture
def bank(broker: Broker) -> Producer:
    """Give a transactional producer."""
    return broker.producer("bank", checker=nobody_knows)


def after(broker: Broker, world: World, topic: str) -> list[str]:
    """Settle, check the store, and read what consumers get."""
    settle(broker, world)
    assert_sound(world, {})
    return delivered(world, topic)


def halves_of(world: World) -> int:
    """Count everything that is stored, visible or not."""
    with database(world.home_database) as engine, engine.connect() as connection:
        return int(connection.execute(text(f"SELECT count(*) FROM {world.name}.half")).scalar_one())


@LOSSES
@pytest.mark.req("RMQ-53")
def test_a_plain_message_is_stored_once(world: World, home: Proxy, broker: Broker, loss: Loss) -> None:
    producer = broker.producer("shop")
    producer.send("news", b"first")
    home.lose(b"the needle", loss)
    producer.send("news", b"the needle")
    assert home.broke.is_set()
    assert after(broker, world, "news") == ["first", "the needle"]


@LOSSES
def test_the_first_message_of_a_process_is_stored_once(world: World, home: Proxy, broker: Broker, loss: Loss) -> None:
    home.lose(b"the needle", loss)
    broker.producer("shop").send("news", b"the needle")
    assert after(broker, world, "news") == ["the needle"]


@LOSSES
def test_every_message_of_a_batch_is_stored_once_and_in_order(
    world: World, home: Proxy, broker: Broker, loss: Loss
) -> None:
    producer = broker.producer("shop")
    home.lose(b"body 07", loss)
    sent = [producer.submit("news", f"body {n:02}".encode(), key="one queue") for n in range(50)]
    txids = [pending.result(30).txid for pending in sent]
    assert home.broke.is_set()
    assert txids == sorted(set(txids))
    assert after(broker, world, "news") == [f"body {n:02}" for n in range(50)]


@LOSSES
def test_a_half_is_stored_once_and_its_receipt_is_good(
    world: World, home: Proxy, broker: Broker, bank: Producer, loss: Loss
) -> None:
    home.lose(b"the needle", loss)
    receipt = bank.prepare_now(CREDITS, b"the needle")
    assert halves_of(world) == 1
    bank.commit(receipt)
    assert after(broker, world, CREDITS) == ["the needle"]


@LOSSES
@pytest.mark.parametrize("immunity", [None, 60], ids=["own", "looked-at"])
@pytest.mark.req("RMQ-21")
def test_a_decision_is_told_as_it_stands(
    world: World, home: Proxy, broker: Broker, bank: Producer, loss: Loss, immunity: int | None
) -> None:
    receipt = bank.prepare(CREDITS, b"credit", immunity=immunity).result(30)
    home.lose(receipt.txid.to_bytes(8, "big"), loss)
    assert bank.decide(receipt, Decision.COMMIT).result(30).decision is Decision.COMMIT
    assert home.broke.is_set()
    assert after(broker, world, CREDITS) == ["credit"]


@LOSSES
@pytest.mark.parametrize("step", [facts.Opening, facts.Adding, facts.Ending, facts.Deciding])
def test_a_keyed_transaction_happens_once(
    world: World,
    home: Proxy,
    broker: Broker,
    bank: Producer,
    break_at: dict[type[Fact], Callable[[], None]],
    loss: Loss,
    step: type[Fact],
) -> None:
    break_at[step] = lambda: home.lose(COMMIT, loss)
    for _ in range(2):
        try:
            with bank.transaction(key="order-1") as tx:
                for _ in range(3):  # more than is kept in memory
                    tx.send(CREDITS, BIG.encode())
        except (OutcomeUnknown, StoreUnavailable):
            continue
        break
    assert home.broke.is_set()
    assert after(broker, world, CREDITS) == [BIG] * 3


@LOSSES
@pytest.mark.rule("R11")
def test_offsets_are_bound_and_consumed_once(
    world: World,
    home: Proxy,
    broker: Broker,
    bank: Producer,
    break_at: dict[type[Fact], Callable[[], None]],
    loss: Loss,
) -> None:
    for body in (b"1", b"2"):
        broker.producer("shop").send("news", body, key="one queue")
    drain(broker.kernel.store)
    break_at[facts.Intending] = lambda: home.lose(COMMIT, loss)
    stream = broker.stream("readers", ["news"])
    for chunk in stream.batches(wait=0):
        with bank.transaction() as tx:
            tx.consume(stream, chunk)
            tx.send_many(CREDITS, list(chunk.bodies))
    assert home.broke.is_set()
    assert after(broker, world, CREDITS) == ["1", "2"]


@LOSSES
@pytest.mark.req("RMQ-01", "RMQ-10")
def test_local_work_is_judged_by_its_evidence(world: World, broker: Broker, bank: Producer, loss: Loss) -> None:
    with network(world.bank) as line, database(line.url) as engine:
        broker.register(BANK, engine)
        try:
            with bank.transaction() as tx:
                tx.send(CREDITS, b"1")
                with tx.local(BANK) as connection:
                    debit(connection, "1")
                    line.lose(COMMIT, loss)
        except OutcomeUnknown:
            assert loss is Loss.REQUEST
        assert line.broke.is_set()
        assert after(broker, world, CREDITS) == world.debits() == (["1"] if loss is Loss.ANSWER else [])


def test_a_backend_that_still_works_on_a_lost_batch_is_ended_first(world: World, home: Proxy, broker: Broker) -> None:
    producer = broker.producer("shop")
    producer.send("news", b"first")
    with stored_nothing(world) as waiting:
        home.lose(b"the needle", Loss.SILENCE)
        sent = producer.submit("news", b"the needle")
        assert home.broke.wait(10)
        assert len(waiting()) == 1
        assert len(waiting()) == 1  # the second try; the first was gone before it began
    sent.result(30)
    assert after(broker, world, "news") == ["first", "the needle"]


@contextmanager
def stored_nothing(world: World) -> Iterator[Callable[[], set[int]]]:
    """Keep everybody from storing; give a function that waits until others than before wait for us."""
    waiting = """SELECT pid FROM pg_locks JOIN pg_class c ON c.oid = relation
                  WHERE NOT granted AND relname LIKE 'half%'"""
    with database(world.home_database) as engine, engine.connect() as holder, engine.connect() as looker:
        holder.execute(text(f"LOCK TABLE {world.name}.half IN SHARE MODE"))
        seen: set[int] = set()

        def wait() -> set[int]:
            nonlocal seen
            found: set[int] = set()
            while not found or found == seen:
                found = set(looker.execute(text(waiting)).scalars())
                looker.rollback()
            seen = found
            return found

        yield wait


def test_a_batch_that_stays_unknown_is_told_so_and_not_stored_again(
    world: World, home: Proxy, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(halves_store, "PATIENCE", 0.1)
    producer = broker.producer("shop")
    producer.send("news", b"first")
    home.refusing = True
    home.lose(b"body 0", Loss.ANSWER)
    sent = [producer.submit("news", f"body {n}".encode()) for n in range(3)]
    told = [pending.exception(30) for pending in sent]
    home.refusing = False
    unknown = {f"body {n}" for n, error in enumerate(told) if isinstance(error, OutcomeUnknown)}
    assert "body 0" in unknown
    assert all(isinstance(error, OutcomeUnknown | StoreUnavailable) for error in told)
    assert after(broker, world, "news") == sorted({"first", *unknown})


def test_a_lost_line_that_is_opened_late_still_ends_its_old_backend(
    world: World, home: Proxy, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(halves_store, "PATIENCE", 0.1)
    producer = broker.producer("shop")
    producer.send("news", b"first")
    with stored_nothing(world) as waiting:
        home.refusing = True
        home.lose(b"the needle", Loss.SILENCE)
        with pytest.raises(OutcomeUnknown):
            producer.send("news", b"the needle")
        assert len(waiting()) == 1
        home.refusing = False
        again = producer.submit("news", b"the needle, sent again by its user")
        assert len(waiting()) == 1
    again.result(30)
    assert after(broker, world, "news") == ["first", "the needle, sent again by its user"]


def test_a_batch_whose_outcome_is_unknown_is_not_run_again() -> None:
    runs: list[list[int]] = []

    def run(items: object) -> list[int]:
        assert isinstance(items, list)
        runs.append(items)
        raise OutcomeUnknown("lost")

    batcher: Batcher[int, int] = Batcher("test", run)
    with batcher._turn:  # while another batch is under way, these gather
        calls = [batcher.submit(n) for n in range(3)]
    assert [type(call.exception(10)) for call in calls] == [OutcomeUnknown] * 3
    assert runs == [[0, 1, 2]]
    batcher.close()
