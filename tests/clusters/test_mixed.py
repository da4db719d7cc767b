"""A broker beside a database: one outcome for both, also when another process finishes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Engine, create_engine, text

import txsaga
from tests.clusters.town import ORDERS, Town
from txsaga import Broker, LocalState
from txsaga.core.decision import Decision
from txsaga.errors import ConfigError, ResourceUnknown, TransactionsRejected, Unfinished, VotedNo
from txsaga.flows.coordinated import Coordinated
from txsaga.flows.recovery import Recovery
from txsaga.resources.broker import BrokerWork, StoreParticipant

pytestmark = pytest.mark.postgres


@pytest.fixture
def ledger(foreign_databases: Callable[[], str]) -> Iterator[Engine]:
    engine = create_engine(foreign_databases())
    with engine.begin() as connection:
        connection.exec_driver_sql("create table entry (id int primary key deferrable initially deferred)")
    yield engine
    engine.dispose()


def opening(town: Town, ledger: Engine) -> Coordinated:
    town.coordinator.register("ledger", ledger)
    town.coordinator.enlist("b1", StoreParticipant(town.direct["b1"], name="b1"))
    producer = town.coordinator.producer("shop", checker=lambda _: LocalState.UNKNOWN)
    return producer.coordinated("ledger", "b1")


def work(tx: Coordinated) -> None:
    with tx.on("ledger") as connection:
        connection.execute(text("insert into entry values (1)"))
    with tx.on("b1") as broker:
        assert isinstance(broker, BrokerWork)
        broker.send(ORDERS, b"entered")


def entries(ledger: Engine) -> list[int]:
    with ledger.connect() as connection:
        return list(connection.scalars(text("select id from entry")))


@pytest.mark.req("WM-16", "IBM-02")
def test_a_row_and_a_message_elsewhere_are_there_together(town: Town, ledger: Engine) -> None:
    with opening(town, ledger) as tx:
        work(tx)
        assert (entries(ledger), town.told("b1")) == ([], [])
    assert (entries(ledger), town.told("b1")) == ([1], ["entered"])


@pytest.mark.req("WM-15")
def test_what_the_database_refuses_the_broker_does_not_keep(town: Town, ledger: Engine) -> None:
    with ledger.begin() as connection:
        connection.execute(text("insert into entry values (1)"))
    with pytest.raises(VotedNo), opening(town, ledger) as tx:
        work(tx)
    assert tx.decision is Decision.ROLLBACK
    assert (entries(ledger), town.told("b1"), town.lives("b1")) == ([1], [], ["rolled_back"])


@pytest.mark.req("WM-47")
def test_a_broker_in_which_nothing_was_done_leaves_at_its_vote(town: Town, ledger: Engine, log_of: list[str]) -> None:
    with opening(town, ledger) as tx:
        with tx.on("ledger") as connection:
            connection.execute(text("insert into entry values (1)"))
        with tx.on("b1"):
            pass
    assert (entries(ledger), town.lives("b1")) == ([1], ["rolled_back"])
    assert "Finishing b1" not in log_of


@pytest.mark.req("WM-22")
def test_another_process_finds_the_broker_by_its_name_in_the_environment(
    town: Town, ledger: Engine, home_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Unfinished), opening(town, ledger) as tx:
        work(tx)
        monkeypatch.setattr(StoreParticipant, "finish", _away)
        monkeypatch.setattr("txsaga.resources.broker.StoreBranch.finish", _away)
    monkeypatch.undo()
    assert town.lives("b1") == ["prepared"]
    town.home.rows("UPDATE branch SET at = at - interval '1 hour'")
    stranger = txsaga.connect(home_url, roles=False, answering=False, env={})
    Recovery(stranger.kernel).run_once()
    with pytest.raises(ResourceUnknown):
        stranger.kernel.participant("b1")
    stranger.close()
    assert town.lives("b1") == ["prepared"]
    engine = txsaga.connect(home_url, roles=False, answering=False, env={"TXSAGA_BROKER_B1": town.urls["b1"]})
    Recovery(engine.kernel).run_once()
    engine.close()
    assert (town.lives("b1"), town.told("b1")) == (["committed"], ["entered"])


def _away(*_: object) -> None:
    from txsaga.errors import ResourceManagerFailed

    raise ResourceManagerFailed("away")


@pytest.mark.req("WM-43")
def test_a_store_is_no_participant_of_what_it_coordinates(town: Town) -> None:
    coordinator: Broker = town.coordinator
    coordinator.enlist("self", StoreParticipant(coordinator, name="self"))
    producer = coordinator.producer("shop", checker=lambda _: LocalState.UNKNOWN)
    with pytest.raises(ConfigError, match="coordinates"), producer.coordinated("self") as tx, tx.on("self"):
        pytest.fail("entered")  # pragma: no cover


def test_a_broker_that_takes_no_transactions_is_refused_before_any_work(town: Town, ledger: Engine) -> None:
    town.direct["b1"].reject_transactions(True)
    with pytest.raises(TransactionsRejected, match="broker 'b1'"):
        opening(town, ledger)
