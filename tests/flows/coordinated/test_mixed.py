"""One outcome for databases of several kinds; one that can't vote comes last, and its commit is the decision."""

from __future__ import annotations

import pytest
from sqlalchemy import event, inspect

from tests.flows.coordinated.bank import START, TRANSFERS, Bank, pay
from tests.flows.coordinated.conftest import OpenBank
from txsaga.core.decision import Decision
from txsaga.errors import (
    ConfigError,
    DecidedOtherwise,
    InDoubt,
    OutcomeUnknown,
    StoreUnavailable,
    TransactionError,
    TxSagaError,
    Unfinished,
)
from txsaga.flows.branch import BranchState

pytestmark = [pytest.mark.postgres, pytest.mark.mariadb]


class Stop(Exception):
    """What the user's code raises."""


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
def test_all_of_them_commit_or_none_does(opened: OpenBank, kinds: tuple[str, ...]) -> None:
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
@pytest.mark.parametrize(
    ("pragmas", "kept"),
    [
        (["journal_mode = delete", "synchronous = off"], False),
        (["journal_mode = wal", "synchronous = normal"], False),
        (["journal_mode = delete", "synchronous = normal"], True),
        (["journal_mode = wal", "synchronous = full"], True),
    ],
    ids=["off", "normal with a log", "normal", "full"],
)
def test_a_file_whose_commit_power_may_take_back_decides_nothing(
    opened: OpenBank, pragmas: list[str], kept: bool
) -> None:
    bank = opened("sqlite")
    (engine,) = bank.engines.values()
    engine.dispose()
    event.listen(engine, "connect", lambda driver, _: [driver.execute(f"PRAGMA {each}") for each in pragmas])
    if kept:
        bank.producer.coordinated(*bank.engines)
        return
    with pytest.raises(ConfigError, match="synchronous = FULL"):
        bank.producer.coordinated(*bank.engines)
    assert "txsaga_evidence" not in inspect(engine).get_table_names()


@pytest.mark.rule("R12")
def test_two_that_can_not_vote_are_refused(opened: OpenBank) -> None:
    bank = opened("sqlite", "sqlite")
    with pytest.raises(ConfigError, match="only one such resource can take part"):
        bank.producer.coordinated(*bank.engines)


@pytest.mark.rule("R12")
@pytest.mark.parametrize("last", ["sqlite", "mariadb", "postgresql"])
def test_behind_the_barrier_of_the_last_resource_nothing_commits(opened: OpenBank, last: str) -> None:
    kinds = ("postgresql", "sqlite") if last == "sqlite" else (last,)
    bank = opened(*kinds)
    opening = bank.producer.coordinated(*bank.engines, key="transfer-7")
    with pytest.raises((DecidedOtherwise, InDoubt)), opening as tx:
        *_, name = bank.engines
        evidence = bank.broker.kernel.resource(name)[1]
        assert tx.id is not None
        if last == "sqlite":  # there the barrier would wait for the open transaction
            evidence.fence(tx.id)
        for each in bank.engines:
            with tx.on(each) as connection:
                pay(connection, 1)
        tx.send(TRANSFERS, b"never")
        if last != "sqlite":
            evidence.fence(tx.id)
    bank.recover()
    assert (bank.balances(), bank.told()) == (moved(bank, 0), [])
    assert bank.prepared() == []


@pytest.mark.rule("R12")
@pytest.mark.parametrize("committed", [True, False], ids=["the last one committed", "the last one did not"])
def test_an_owner_that_dies_at_its_last_resource_is_settled_by_the_evidence(
    opened: OpenBank, committed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = opened("postgresql", "sqlite")
    tx = bank.producer.coordinated(*bank.engines).__enter__()
    for name in bank.engines:
        with tx.on(name) as connection:
            pay(connection, 1)
    tx.send(TRANSFERS, b"told")
    work = tx._branches.work
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
    opened: OpenBank, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = opened("postgresql", "sqlite")
    with bank.producer.coordinated(*bank.engines) as tx:
        for name in bank.engines:
            with tx.on(name) as connection:
                pay(connection, 1)
        work = tx._branches.work
        real = work.commit

        def loses(key: str, transaction: str | None = None) -> None:
            real(key, transaction)
            raise OutcomeUnknown("the connection broke")

        monkeypatch.setattr(work, "commit", loses)
    assert tx.decision is Decision.COMMIT
    assert bank.balances() == moved(bank)


def test_a_unit_in_a_file_is_settled_before_the_end(opened: OpenBank) -> None:
    bank = opened("postgresql", "sqlite")
    main, aux = bank.engines
    with bank.producer.coordinated(main) as tx:
        with tx.on(main) as connection:
            pay(connection, 1)
        with tx.lane(aux) as connection:
            pay(connection, 1)
        tx.lane(aux).commit()
    assert bank.balances() == moved(bank)
    with pytest.raises(TransactionError, match="commit it or roll it back before the end"):
        with bank.producer.coordinated(main) as tx, tx.lane(aux) as connection:
            pay(connection, 1)
    assert bank.balances() == moved(bank)
    assert tx.decision is Decision.ROLLBACK


@pytest.mark.rule("R12")
@pytest.mark.parametrize("kinds", [("postgresql",), ("mariadb",), ("postgresql", "sqlite")], ids="+".join)
def test_an_owner_that_wakes_behind_a_rollback_commits_nothing(opened: OpenBank, kinds: tuple[str, ...]) -> None:
    bank = opened(*kinds)
    with pytest.raises(DecidedOtherwise), bank.producer.coordinated(*bank.engines, key="transfer-7") as tx:
        for name in bank.engines:
            with tx.on(name) as connection:
                pay(connection, 1)
        tx.send(TRANSFERS, b"never")
        bank.recover()  # it was silent for too long
    assert (bank.balances(), bank.told()) == (moved(bank, 0), [])
    assert bank.prepared() == []


@pytest.mark.rule("R12")
def test_what_is_consumed_is_refused_beside_what_comes_last(opened: OpenBank) -> None:
    bank = opened("postgresql", "sqlite")
    bank.broker.create_topic("orders", queues=1)
    bank.producer.send("orders", b"move ten")
    bank.told()
    consumer = bank.broker.consumer("payments", ["orders"])
    (message,) = consumer.receive(wait=5)
    with pytest.raises(ConfigError, match="comes last"), bank.producer.coordinated(*bank.engines) as tx:
        tx.consume(message)
    consumer.close()


def test_what_its_last_resource_committed_is_never_told_as_if_it_were_not(
    opened: OpenBank, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = opened("postgresql")
    with pytest.raises(Unfinished) as told, bank.producer.coordinated(*bank.engines, key="transfer-7") as tx:
        for name in bank.engines:
            with tx.on(name) as connection:
                pay(connection, 1)
        tx.send(TRANSFERS, b"told")

        def away(*_: object, **__: object) -> None:
            raise StoreUnavailable("the home database is away")

        monkeypatch.setattr(tx._branches, "decide", away)
    assert not told.value.retryable
    assert bank.balances() == moved(bank)
    bank.recover()
    assert bank.told() == ["told"]


@pytest.mark.rule("R10")
@pytest.mark.parametrize("kind", ["postgresql", "mariadb", "sqlite"])
@pytest.mark.parametrize("beside", [(), ("postgresql",)], ids=["alone", "beside another"])
def test_a_session_that_leads_elsewhere_commits_nothing(opened: OpenBank, kind: str, beside: tuple[str, ...]) -> None:
    bank = opened(kind, *beside)
    name, *_ = bank.engines
    bank.broker.kernel.participant(name)
    with bank.engines[name].begin() as connection:  # as a copy, or what a name leads to later, would have
        connection.exec_driver_sql("update txsaga_database set uuid = '00000000000000000000000000000000'")
    with pytest.raises(TxSagaError), bank.producer.coordinated(*bank.engines) as tx:
        for each in bank.engines:
            with tx.on(each) as connection:
                pay(connection, 1)
    assert bank.balances() == moved(bank, 0)
    assert bank.prepared() == []
