"""Blocks that end at the same moment share their branches, and each hears what became of its own journal alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from threading import Timer

import pytest
from sqlalchemy import text

from tests.flows.coordinated.bank import TRANSFERS, Bank
from tests.flows.coordinated.conftest import OpenBank
from tests.flows.coordinated.ending import OPEN, Work, accounts, at_once, branches, line_of, opening, run
from tests.flows.coordinated.looped import LoopedBank
from txsaga.core.decision import Decision
from txsaga.errors import ConfigError, IntegrityViolated, RolledBack
from txsaga.flows import sharing
from txsaga.flows.coordinated import Coordinated
from txsaga.resources import postgres_journal
from txsaga.resources.participant import LockPatience

pytestmark = [pytest.mark.postgres, pytest.mark.mariadb]

COMMIT, ROLLBACK = Decision.COMMIT, Decision.ROLLBACK
KINDS = [("postgresql",), ("postgresql", "postgresql"), ("postgresql", "mariadb")]
each_kind = pytest.mark.parametrize("kinds", KINDS, ids="+".join)


@pytest.mark.req("IBM-02")
@each_kind
def test_blocks_that_end_at_the_same_moment_share_their_branches(opened: OpenBank, kinds: tuple[str, ...]) -> None:
    bank = opened(*kinds)
    left = at_once(bank, *(opening(bank, account) for account in (11, 12, 13)))
    assert [(each.decision, each.error) for each in left] == [(COMMIT, None)] * 3
    assert accounts(bank) == [[11, 12, 13]] * len(kinds)
    assert sorted(bank.told()) == ["1000", "11", "12", "13"]
    assert branches(bank, left) == [0, 0, len(kinds)]
    assert bank.prepared() == []


def test_each_has_a_decision_of_its_own_that_says_where_its_work_was(bank: Bank) -> None:
    left = at_once(bank, opening(bank, 11), opening(bank, 12))
    why = {each.txid: bank.stored.value("SELECT why FROM event WHERE txid = :t", t=each.txid) for each in left}
    (first,) = [txid for txid, said in why.items() if said == "the block ended"]
    (other,) = [said for txid, said in why.items() if txid != first]
    assert other == f"the block ended; its journals were done in the branches of transaction {first}"


@pytest.mark.req("IBM-04", "IBM-57")
@each_kind
def test_one_that_fails_hears_of_it_and_the_others_commit(opened: OpenBank, kinds: tuple[str, ...]) -> None:
    bank = opened(*kinds)
    left = at_once(bank, opening(bank, 11), opening(bank, 1), opening(bank, 13))
    assert [each.decision for each in left] == [COMMIT, ROLLBACK, COMMIT]
    assert isinstance(left[1].error, IntegrityViolated)
    assert "statement 1 of the journal for 'postgresql0' can't be done" in str(left[1].error)
    assert accounts(bank) == [[11, 13]] * len(kinds)
    assert sorted(bank.told()) == ["1000", "11", "13"]
    assert bank.prepared() == []


def test_two_that_can_t_both_be_do_not_harm_the_third(bank: Bank) -> None:
    left = at_once(bank, opening(bank, 11), opening(bank, 12), opening(bank, 11))
    assert sorted(each.decision is COMMIT for each in left) == [False, True, True]
    assert accounts(bank) == [[11, 12]] * 2


@pytest.mark.req("IBM-57")
def test_a_statement_that_hides_a_commit_commits_nothing_of_others(bank: Bank) -> None:
    for engine in bank.engines.values():
        with engine.begin() as connection:
            connection.exec_driver_sql("create table note (what text)")

    def hiding(tx: Coordinated) -> None:
        tx.journal("current").execute(r"insert into note values (E'\''); commit; insert into note values ('x')")
        tx.journal("mortgage").execute(OPEN, {"id": 5})

    left = at_once(bank, hiding, opening(bank, 12), opening(bank, 13), shared=2)
    assert isinstance(left[0].error, RolledBack)
    assert accounts(bank) == [[12, 13]] * 2
    assert branches(bank, left[1:]) == [0, 2]


@pytest.mark.parametrize(
    "text",
    [
        r"insert into account values (50 + length('\'), 11)",
        "insert into account values (50 + length($$;$$), 11)",
        "insert into account values (11, 11) -- and no more",
        "insert into account values (11 /* here */, 11)",
        "insert into account select 11, length(set_config('search_path', 'public', true))",
    ],
)
def test_what_databases_may_read_in_two_ways_goes_by_itself(bank: Bank, text: str) -> None:
    def work(tx: Coordinated) -> None:
        tx.journal("current").execute(text)
        tx.journal("mortgage").execute(OPEN, {"id": 11})

    left = at_once(bank, work, opening(bank, 12), opening(bank, 13), shared=2)
    assert [each.error for each in left] == [None] * 3
    assert branches(bank, left) == [0, 2, 2]


def many(bank: Bank) -> Work:
    """Do more than others would wait for."""

    def work(tx: Coordinated) -> None:
        for account in range(100, 100 + sharing.FEW):
            tx.journal("current").execute(OPEN, {"id": account})
        tx.journal("mortgage").execute(OPEN, {"id": 100})

    return work


def long(bank: Bank) -> Work:
    """Tell more than others would wait for."""

    def work(tx: Coordinated) -> None:
        opening(bank, 100)(tx)
        tx.send(TRANSFERS, b"x" * sharing.FEW_BYTES)

    return work


def changing(bank: Bank) -> Work:
    """Change a row that is there."""

    def work(tx: Coordinated) -> None:
        opening(bank, 100)(tx)
        tx.journal("current").execute("update account set balance = 0 where id = 1")

    return work


@pytest.mark.parametrize("kind", [many, long, changing])
def test_what_others_would_wait_for_goes_by_itself(bank: Bank, kind: Callable[[Bank], Work]) -> None:
    left = at_once(bank, kind(bank), opening(bank, 12), opening(bank, 13), shared=2)
    assert [each.error for each in left] == [None] * 3
    assert branches(bank, left) == [0, 2, 2]


def test_a_block_may_refuse_to_share(bank: Bank) -> None:
    with line_of(bank).batcher._turn:
        assert run(bank, opening(bank, 11), shared=False).decision is COMMIT
    with pytest.raises(ConfigError, match="shared"):
        bank.producer.coordinated("current", shared="no")  # type: ignore[arg-type]


def test_nobody_waits_for_a_line_that_is_held_up(bank: Bank) -> None:
    line = line_of(bank)
    line._turns[line] = time.monotonic() - 2 * sharing.HELD_UP
    with line.batcher._turn:
        assert run(bank, opening(bank, 11)).decision is COMMIT
    assert accounts(bank) == [[11]] * 2


def test_a_lock_that_one_waits_for_holds_up_no_other_for_long(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(postgres_journal.LONGEST, LockPatience.BRIEFLY, "2s")
    with bank.engines["current"].connect() as holder:
        holder.execute(text(OPEN), {"id": 11})
        freed = Timer(1.6, holder.rollback)
        freed.start()
        left = at_once(bank, opening(bank, 11), opening(bank, 12), opening(bank, 13))
        freed.join()
    assert [(each.decision, each.error) for each in left] == [(COMMIT, None)] * 3
    assert left[0].seconds > 1
    assert max(each.seconds for each in left[1:]) < 1


def test_tasks_share_as_threads_do(looping: LoopedBank) -> None:
    bank = looping.bank

    async def work() -> list[int]:
        async def one(account: int) -> int:
            async with bank.producer.coordinated(*looping.loops) as tx:
                for name in looping.loops:
                    tx.journal(name).execute(OPEN, {"id": account})
                await tx.send(TRANSFERS, str(account).encode())
            assert tx.txid is not None
            return tx.txid

        await one(10)
        return await asyncio.gather(*map(one, range(11, 19)))

    txids = looping.run(work)
    bank.broker.kernel.notes.flush()
    found = [len(bank.broker.kernel.store.branches.of(txid)) for txid in txids]
    assert found.count(2) < len(txids) / 2
    assert accounts(bank) == [list(range(10, 19))] * 2
    assert len(bank.told()) == 9


def test_a_task_that_is_cancelled_in_the_line_hears_what_became_of_it(looping: LoopedBank) -> None:
    bank = looping.bank
    ended: list[tuple[int, Decision | None]] = []

    async def one(account: int) -> None:
        tx = None
        try:
            async with bank.producer.coordinated(*looping.loops) as tx:
                for name in looping.loops:
                    tx.journal(name).execute(OPEN, {"id": account})
        finally:
            if tx is not None:
                ended.append((account, tx.decision))

    async def work() -> list[object]:
        await one(10)
        tasks = [asyncio.ensure_future(one(account)) for account in range(11, 19)]
        while not any(each.waiting for each in line_of(bank).batcher._loops.values()):  # type: ignore[union-attr]
            await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    results = looping.run(work)
    assert [isinstance(each, asyncio.CancelledError) for each in results] == [True, False] * 4
    committed = sorted(account for account, decision in ended if decision is COMMIT)
    assert accounts(bank) == [committed] * 2
    assert {12, 14, 16, 18} <= set(committed)
    assert bank.prepared() == []
