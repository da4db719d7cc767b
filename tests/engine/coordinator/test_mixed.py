"""One outcome for databases of several kinds; one that can't vote comes last, and its commit is the decision."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text

import txsaga
from tests.engine.coordinator.bank import START, TRANSFERS, Bank, pay
from tests.engine.stored import Stored
from tests.services.databases import fresh_name
from txsaga.errors import ConfigError, DecidedOtherwise, InDoubt, OutcomeUnknown
from txsaga.model.branch import BranchState
from txsaga.model.decision import Decision
from txsaga.wiring import open_store

pytestmark = [pytest.mark.postgres, pytest.mark.mariadb]

Open = Callable[..., Bank]


class Stop(Exception):
    """What the user's code raises."""


@pytest.fixture
def opened(
    request: pytest.FixtureRequest, home_url: str, foreign_databases: Callable[[], str], tmp_path: Path
) -> Iterator[Open]:
    """Give a bank with one account in a database of each kind that is named."""
    open_store(home_url).close()
    with ExitStack() as closing:

        def of(kind: str) -> Engine:
            if kind == "sqlite":
                url = f"sqlite:///{tmp_path / fresh_name('f')}.db"
            elif kind == "mariadb":
                maria, name = request.getfixturevalue("maria"), fresh_name("bank")
                maria.execute(f"create database {name}")
                url = maria.url(name)
            else:
                url = foreign_databases()
            engine = create_engine(url)
            closing.callback(engine.dispose)
            return engine

        def bank(*kinds: str) -> Bank:
            engines = {f"{kind}{at}": of(kind) for at, kind in enumerate(kinds)}
            broker = txsaga.connect(home_url, resources=engines, roles=False, answering=False, env={})
            closing.callback(broker.close)
            return Bank(broker, engines, Stored(home_url)).open()

        yield bank


def moved(bank: Bank, amount: int = 1) -> dict[str, int]:
    return dict.fromkeys(bank.engines, START + amount)


KINDS = [
    ("postgresql", "mariadb"),
    ("mariadb", "mariadb"),
    ("postgresql", "sqlite"),
    ("postgresql", "mariadb", "sqlite"),
    ("mariadb",),
    ("sqlite",),
]


@pytest.mark.req("IBM-48", "WM-47")
@pytest.mark.parametrize("kinds", KINDS, ids="+".join)
def test_all_of_them_commit_or_none_does(opened: Open, kinds: tuple[str, ...]) -> None:
    bank = opened(*kinds)
    with pytest.raises(Stop), bank.producer.coordinated(*bank.engines) as tx:
        for name in bank.engines:
            with tx.on(name) as connection:
                pay(connection, 1)
        tx.send(TRANSFERS, b"never")
        raise Stop
    assert (bank.balances(), bank.told()) == (moved(bank, 0), [])
    with bank.producer.coordinated(*bank.engines) as tx:
        for name in bank.engines:
            with tx.on(name) as connection:
                pay(connection, 1)
        tx.send(TRANSFERS, b"one for everybody")
    assert (bank.balances(), bank.told()) == (moved(bank), ["one for everybody"])
    assert tx.txid is not None
    assert set(bank.states(tx.txid).values()) == {BranchState.COMMITTED}


@pytest.mark.rule("R12")
def test_two_that_can_not_vote_are_refused(opened: Open) -> None:
    bank = opened("sqlite", "sqlite")
    with pytest.raises(ConfigError, match="only one resource can come last"):
        bank.producer.coordinated(*bank.engines)


@pytest.mark.rule("R12")
@pytest.mark.parametrize("last", ["sqlite", "mariadb", "postgresql"])
def test_behind_the_barrier_of_the_last_resource_nothing_commits(opened: Open, last: str) -> None:
    kinds = ("postgresql", "sqlite") if last == "sqlite" else (last,)
    bank = opened(*kinds)
    with pytest.raises((DecidedOtherwise, InDoubt)), bank.producer.coordinated(*bank.engines) as tx:
        for name in bank.engines:
            with tx.on(name) as connection:
                pay(connection, 1)
        tx.send(TRANSFERS, b"never")
        *_, name = bank.engines
        evidence = bank.broker.kernel.resource(name)[1]
        assert tx.id is not None
        if last != "sqlite":  # there the barrier waits for the open transaction
            outcome = evidence.fence(tx.id)
            assert outcome is not None
            assert not outcome.committed
        else:
            tx._owner.work.drop(name)
            evidence.fence(tx.id)
            with tx.on(name) as connection:
                pay(connection, 1)
    bank.recover()
    assert (bank.balances(), bank.told()) == (moved(bank, 0), [])
    assert bank.prepared() == []


@pytest.mark.rule("R12")
@pytest.mark.parametrize("committed", [True, False], ids=["the last one committed", "the last one did not"])
def test_an_owner_that_dies_at_its_last_resource_is_settled_by_the_evidence(
    opened: Open, committed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = opened("postgresql", "sqlite")
    tx = bank.producer.coordinated(*bank.engines).__enter__()
    for name in bank.engines:
        with tx.on(name) as connection:
            pay(connection, 1)
    tx.send(TRANSFERS, b"told")
    work = tx._owner.work
    real = work.commit

    def dies(key: str, transaction: str | None = None) -> None:
        if committed:
            real(key, transaction)
        raise KeyboardInterrupt

    monkeypatch.setattr(work, "commit", dies)
    with pytest.raises(KeyboardInterrupt):
        tx.__exit__(None, None, None)
    assert len(bank.prepared()) == 1
    bank.recover()
    assert bank.balances() == moved(bank, int(committed))
    assert bank.told() == (["told"] if committed else [])
    assert bank.prepared() == []


def test_a_lost_answer_of_the_last_resource_is_found_by_the_evidence(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = opened("postgresql", "sqlite")
    with bank.producer.coordinated(*bank.engines) as tx:
        for name in bank.engines:
            with tx.on(name) as connection:
                pay(connection, 1)
        work = tx._owner.work
        real = work.commit

        def loses(key: str, transaction: str | None = None) -> None:
            real(key, transaction)
            raise OutcomeUnknown("the connection broke")

        monkeypatch.setattr(work, "commit", loses)
    assert tx.decision is Decision.COMMIT
    assert bank.balances() == moved(bank)


def test_a_lane_in_a_file_follows_the_outcome(opened: Open) -> None:
    bank = opened("postgresql", "sqlite")
    main, aux = bank.engines
    with bank.producer.coordinated(main) as tx:
        with tx.on(main) as connection:
            pay(connection, 1)
        with tx.lane(aux) as connection:
            pay(connection, 1)
        tx.lane(aux).commit()
        with tx.lane(aux) as connection:
            connection.execute(text("insert into account values (2, 5)"))
    assert bank.balances() == moved(bank)
    with bank.engines[aux].connect() as connection:
        assert connection.execute(text("select count(*) from account")).scalar_one() == 2
