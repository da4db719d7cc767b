"""Threads that work in one transaction: what is opened by its first use is opened once."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Barrier, BrokenBarrierError, Lock
from unittest.mock import patch

import pytest
from sqlalchemy import text

from tests.flows.coordinated.bank import START, Bank, pay
from tests.flows.coordinated.fakes import FakeResource
from txsaga.core.announcer import Announcer
from txsaga.core.decision import Decision
from txsaga.core.kernel import Kernel
from txsaga.core.records import TxRecord
from txsaga.flows import coordinated as block
from txsaga.flows.branch import BranchId
from txsaga.flows.requests import Begin, Decide
from txsaga.flows.work import BranchPart, Work
from txsaga.lake.table_writes import TableWrites
from txsaga.resources.participant import EnlistedBranch

MANY = 4


@dataclass(eq=False)
class Meeting(FakeResource):
    """A resource in which nobody goes on before the others are there too, or do not come."""

    barrier: Barrier = field(default_factory=lambda: Barrier(2, timeout=0.2))
    met: bool = False

    def enlist(self, branch: BranchId) -> EnlistedBranch:
        with suppress(BrokenBarrierError):
            self.barrier.wait()
            self.met = True
        return super().enlist(branch)


def at_once(*steps: Callable[[], object]) -> list[object]:
    """Do these steps, each in a thread of its own."""
    begin = Barrier(len(steps), timeout=10)

    def done(step: Callable[[], object]) -> object:
        begin.wait()
        return step()

    with ThreadPoolExecutor(len(steps)) as threads:
        return list(threads.map(done, steps))


def work_in(*resources: Meeting) -> Work:
    """Return the work of a transaction in these resources."""
    work = Work(1, Announcer([]))
    for number, each in enumerate(resources, 1):
        work.add(each.name, BranchPart(BranchId(f"{'0' * 32}-1-1", number, 1), each))
    return work


def test_threads_that_meet_in_one_resource_share_its_session() -> None:
    resource = Meeting("current")
    work = work_in(resource)
    handles = at_once(*[lambda: work.handle("current")] * MANY)
    assert resource.calls == ["enlist"]
    assert handles == [resource] * MANY


def test_different_resources_are_opened_side_by_side() -> None:
    barrier = Barrier(2, timeout=10)
    resources = [Meeting(name, barrier=barrier) for name in ("current", "mortgage")]
    work = work_in(*resources)
    at_once(*[lambda name=each.name: work.handle(name) for each in resources])
    assert [each.met for each in resources] == [True, True]


@pytest.mark.postgres
def test_what_many_threads_write_is_committed_or_they_hear_of_it(bank: Bank) -> None:
    turn = Lock()

    def pay_into(account: int) -> None:
        with tx.on("current") as connection, turn:
            pay(connection, account, account)

    with bank.producer.coordinated("current", "mortgage") as tx:
        at_once(*[lambda account=account: pay_into(account) for account in range(2, 2 + MANY)])
    assert tx.decision is Decision.COMMIT
    with bank.engines["current"].connect() as connection:
        found = connection.execute(text("select balance from account order by id")).scalars().all()
    assert found == [START, 2, 3, 4, 5]


@pytest.mark.postgres
def test_threads_that_meet_in_a_lane_share_its_unit(bank: Bank) -> None:
    turn = Lock()

    def note(account: int) -> None:
        with tx.lane("mortgage") as connection, turn:
            pay(connection, account, account)

    with bank.producer.coordinated("current") as tx:
        at_once(*[lambda account=account: note(account) for account in range(2, 2 + MANY)])
        tx.lane("mortgage").commit()
    with bank.engines["mortgage"].connect() as connection:
        found = connection.execute(text("select balance from account order by id")).scalars().all()
    assert found == [START, 2, 3, 4, 5]
    assert tx.txid is not None
    assert [each.aux for each in bank.broker.kernel.store.work.branches(tx.txid)] == [False, True]


@pytest.mark.postgres
def test_threads_that_need_the_row_of_their_transaction_write_it_once(bank: Bank) -> None:
    branches, begun, barrier = bank.broker.kernel.requests, list[Begin](), Barrier(2, timeout=0.5)
    call = branches.call

    def called(what: Begin | Decide) -> object:
        if isinstance(what, Begin):
            begun.append(what)
            with suppress(BrokenBarrierError):
                barrier.wait()
        return call(what)

    with patch.object(branches, "call", called), bank.producer.coordinated("current") as tx:
        at_once(*[tx.lane(name).__enter__ for name in ("current", "mortgage")])
    assert len(begun) == 1
    assert tx.decision is Decision.COMMIT


def test_what_is_written_into_tables_is_kept_in_one_place(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(TableWrites):
        def __init__(self, kernel: Kernel, part: int, life: Callable[[str], TxRecord]) -> None:
            super().__init__(kernel, part, life)
            time.sleep(0.05)

    monkeypatch.setattr(block, "TableWrites", Slow)
    with bank.producer.coordinated("current") as tx:
        first, second = at_once(*[lambda: tx._tables] * 2)
    assert first is second
