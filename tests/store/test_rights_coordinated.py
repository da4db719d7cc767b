"""Coordinated transactions under logins that do not own the store: producers decide, an engine finishes them."""

# Fixtures are named where they are asked for.
# ruff: noqa: F811

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest
from sqlalchemy import Engine, create_engine

from tests.flows.coordinated.test_block import Stop
from tests.store.opened_as import (  # noqa: F401  # fixtures
    Open,
    engine,
    made,
    open_as,
    operator,
)
from txsaga.broker import Broker
from txsaga.core.decision import Decision
from txsaga.errors import RightsMissing
from txsaga.flows.coordinated import Coordinated
from txsaga.flows.enlisted import Enlisted
from txsaga.flows.recovery import Recovery
from txsaga.flows.requests import BranchVote
from txsaga.store.right import Right

pytestmark = pytest.mark.postgres


@pytest.fixture
def banks(foreign_databases: Callable[[], str]) -> Iterator[dict[str, Engine]]:
    made = {name: create_engine(foreign_databases()) for name in ("current", "mortgage")}
    for bank in made.values():
        with bank.begin() as connection:
            connection.exec_driver_sql("create table t (id int)")
    yield made
    for bank in made.values():
        bank.dispose()


def coordinated(broker: Broker, banks: dict[str, Engine], key: str | None = None) -> Coordinated:
    """Return a transaction of both that has not begun."""
    for name, bank in banks.items():
        broker.register(name, bank)
    return broker.producer("shop", checker=lambda _: None).coordinated(*banks, key=key)


def write(tx: Coordinated) -> None:
    """Write to both."""
    for name in ("current", "mortgage"):
        with tx.on(name) as connection:
            connection.exec_driver_sql("insert into t values (1)")


def rows(banks: dict[str, Engine]) -> list[int]:
    """Count what everybody sees in each."""
    found = []
    for bank in banks.values():
        with bank.connect() as connection:
            found.append(connection.exec_driver_sql("select count(*) from t").scalar_one())
    return found


@pytest.mark.parametrize("key", [None, "transfer-7"])
def test_a_producer_commits_and_rolls_back(
    open_as: Open, operator: Broker, banks: dict[str, Engine], key: str | None
) -> None:
    producer = open_as(Right.PRODUCER)
    with pytest.raises(Stop), coordinated(producer, banks, key) as tx:
        write(tx)
        raise Stop
    assert rows(banks) == [0, 0]
    with coordinated(producer, banks, key) as tx:
        write(tx)
        tx.send("orders", b"told")
    assert rows(banks) == [1, 1]


def test_blocks_of_a_producer_have_branches_of_their_own(
    open_as: Open, operator: Broker, banks: dict[str, Engine]
) -> None:
    producer, meeting = open_as(Right.PRODUCER), Barrier(4)

    def work(at: int) -> int | None:
        with coordinated(producer, banks) as tx:
            for name in banks:
                tx.journal(name).execute("insert into t values (:at)", {"at": at})
            tx.send("orders", b"told")
            meeting.wait(20)
        return tx.txid

    with ThreadPoolExecutor(4) as threads:
        txids = list(threads.map(work, range(4)))
    producer.kernel.notes.flush()
    assert rows(banks) == [4, 4]
    assert [len(operator.kernel.store.work.branches(txid or 0)) for txid in txids] == [2, 2, 2, 2]


def left_prepared(producer: Broker, banks: dict[str, Engine]) -> tuple[Enlisted, Sequence[BranchVote]]:
    """Return the owner of a transaction that is prepared in both, and its votes."""
    tx = coordinated(producer, banks).__enter__()
    write(tx)
    return tx._branches, tx._branches.work.named(tx._branches.work.prepare())


@pytest.mark.rule("R9", "R14")
def test_an_engine_leaves_what_a_producer_prepared_and_finishes_what_it_decided(
    open_as: Open, operator: Broker, engine: Broker, banks: dict[str, Engine]
) -> None:
    owner, votes = left_prepared(open_as(Right.PRODUCER), banks)
    for name, bank in banks.items():
        engine.register(name, bank)
    recovery = Recovery(engine.kernel, fresh=timedelta(0))
    recovery.run_once()
    assert owner.decide(Decision.COMMIT, "the block ended", votes=votes) is Decision.COMMIT
    assert rows(banks) == [0, 0]
    owner.leave()
    recovery.run_once()
    assert rows(banks) == [1, 1]


@pytest.mark.rule("R9")
def test_a_producer_does_not_roll_back_branches_of_groups_that_it_does_not_see(
    open_as: Open, operator: Broker, engine: Broker, banks: dict[str, Engine]
) -> None:
    owner, votes = left_prepared(open_as(Right.PRODUCER), banks)
    owner.decide(Decision.COMMIT, "the block ended", votes=votes)
    owner.leave()
    stranger = open_as(Right.PRODUCER)
    for name, bank in banks.items():
        stranger.register(name, bank)
        engine.register(name, bank)
    assert Recovery(stranger.kernel).run_once() == 0
    Recovery(engine.kernel, fresh=timedelta(0)).run_once()
    assert rows(banks) == [1, 1]


def test_a_consumer_can_not_begin(open_as: Open, operator: Broker, banks: dict[str, Engine]) -> None:
    with pytest.raises(RightsMissing):
        coordinated(open_as(Right.CONSUMER), banks)
