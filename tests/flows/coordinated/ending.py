"""Blocks of many threads that come to their ends at the same moment."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier

from tests.flows.coordinated.bank import TRANSFERS, Bank
from txsaga.core.decision import Decision
from txsaga.flows.branch import BranchState
from txsaga.flows.coordinated import Coordinated
from txsaga.flows.sharing import Sharing, _Line

OPEN = "insert into account values (:id, :id)"
Work = Callable[[Coordinated], None]


@dataclass
class Left:
    """A block that was left."""

    txid: int
    decision: Decision | None
    error: Exception | None
    seconds: float


def opening(bank: Bank, account: int) -> Work:
    """Open an account in every database, and tell."""

    def work(tx: Coordinated) -> None:
        for name in bank.engines:
            tx.journal(name).execute(OPEN, {"id": account})
        tx.send(TRANSFERS, str(account).encode())

    return work


def line_of(bank: Bank) -> _Line:
    """Return the line of the blocks that work in all databases of the bank."""
    lines = bank.broker.kernel.service(Sharing.of)._lines
    if not lines:
        run(bank, opening(bank, 1_000))
    (line,) = lines.values()
    return line


def run(bank: Bank, work: Work, meeting: Barrier | None = None, *, shared: bool = True) -> Left:
    """Do one block."""
    error, start = None, time.monotonic()
    try:
        with bank.producer.coordinated(*bank.engines, shared=shared) as tx:
            work(tx)
            if meeting is not None:
                meeting.wait(20)
            start = time.monotonic()
    except Exception as raised:  # noqa: BLE001  # looked at by the test
        error = raised
    assert tx.txid is not None
    return Left(tx.txid, tx.decision, error, time.monotonic() - start)


def at_once(bank: Bank, *works: Work, shared: int | None = None) -> list[Left]:
    """Do blocks in threads of their own; so many of them are in the line before it goes on."""
    batcher, meeting = line_of(bank).batcher, Barrier(len(works))
    with ThreadPoolExecutor(len(works)) as threads:
        with batcher._turn:  # as while another block is at its end
            blocks = [threads.submit(run, bank, work, meeting) for work in works]
            until, most = time.monotonic() + 10, len(works) if shared is None else shared
            while len(batcher._waiting) < most and time.monotonic() < until:
                time.sleep(0.005)
            assert len(batcher._waiting) == most
        return [block.result() for block in blocks]


def accounts(bank: Bank) -> list[list[int]]:
    """Return which accounts everybody sees in each database, but those that each test finds."""
    found = []
    for engine in bank.engines.values():
        with engine.connect() as connection:
            found.append(
                list(
                    connection.exec_driver_sql("select id from account where id not in (1, 1000) order by id").scalars()
                )
            )
    return found


def branches(bank: Bank, blocks: list[Left]) -> list[int]:
    """Return, in order, how many branches the transactions have; all are over."""
    bank.broker.kernel.notes.flush()
    found = [bank.broker.kernel.store.branches.of(each.txid) for each in blocks]
    assert {branch.state for each in found for branch in each} <= {BranchState.COMMITTED, BranchState.ROLLED_BACK}
    return sorted(map(len, found))
