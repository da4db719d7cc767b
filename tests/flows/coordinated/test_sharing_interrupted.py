"""A thread that is interrupted while its block ends goes without it: half a block is never decided."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import cast

import pytest
from sqlalchemy import QueuePool

from tests.flows.coordinated.bank import TRANSFERS, Bank
from tests.flows.coordinated.ending import OPEN, Left, Work, accounts, branches, line_of, opening, run
from tests.flows.coordinated.looped import LoopedBank
from tests.scene.members import until
from txsaga.core.batch_future import BatchFuture
from txsaga.errors import IntegrityViolated, NumberLapsed, OutcomeUnknown, TransactionError
from txsaga.flows.branch import Vote
from txsaga.flows.coordinated import Coordinated
from txsaga.flows.owner import BlockOwner
from txsaga.flows.sharing import EndedBlock, Hand, _leave, _Line
from txsaga.flows.work import Work as Resources

pytestmark = pytest.mark.postgres

MINE, OTHERS = 11, 12
INTERRUPTS = pytest.mark.parametrize("interrupt", [KeyboardInterrupt, TimeoutError])


class Interrupted:
    """Threads that are interrupted where they wait for a turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, interrupt: type[BaseException]) -> None:
        self._due, self._threads, self._result = threading.Event(), set[int](), BatchFuture.result

        def result(pending: BatchFuture[object]) -> object:
            if threading.get_ident() in self._threads:
                assert self._due.wait(20)
                raise interrupt
            return self._result(pending)

        monkeypatch.setattr(BatchFuture, "result", result)

    def run(self, bank: Bank, work: Work) -> Left:
        """Do one block in a thread that is to be interrupted."""
        self._threads.add(threading.get_ident())
        return run(bank, work)

    def now(self, block: Future[Left]) -> Left | BaseException:
        """Interrupt them, and wait until one is gone."""
        self._due.set()
        failed = block.exception(20)
        return failed if failed is not None else block.result()


@contextmanager
def held(monkeypatch: pytest.MonkeyPatch, step: str) -> Iterator[threading.Event]:
    """Keep turns at a step of their resources until this is left; tell when the first has come to it."""
    come, go_on, real = threading.Event(), threading.Event(), getattr(Resources, step)

    def slow(work: Resources, *given: object) -> object:
        come.set()
        assert go_on.wait(20)
        return real(work, *given)

    monkeypatch.setattr(Resources, step, slow)
    try:
        yield come
    finally:
        go_on.set()


def interrupt_behind(monkeypatch: pytest.MonkeyPatch, kind: type, step: str, interrupt: type[BaseException]) -> None:
    """Interrupt whoever takes a step, once, when it is done."""
    real, due = getattr(kind, step), [interrupt]

    def taken(it: object, *given: object) -> object:
        answer = real(it, *given)
        if due:
            raise due.pop()
        return answer

    monkeypatch.setattr(kind, step, taken)


def in_line(line: _Line, *begin: Callable[[], Future[Left]]) -> list[Future[Left]]:
    """Let blocks come to their ends, one behind the other, before any of them has its turn."""
    batcher, begun = line.batcher, list[Future[Left]]()
    with batcher._turn:  # as while another block is at its end
        for each in begin:
            begun.append(each())
            until(lambda: len(batcher._waiting) == len(begun))
    return begun


def is_over(bank: Bank) -> bool:
    """Tell whether no turn is under way, and every session was given back."""
    pools = [cast(QueuePool, engine.pool) for engine in bank.engines.values()]
    return not line_of(bank)._turns and not any(pool.checkedout() for pool in pools)


@INTERRUPTS
@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize(("others", "step"), [(0, "ask_at_once"), (1, "ask_at_once"), (1, "finish")])
@pytest.mark.rule("R9")
def test_what_a_turn_has_in_hand_is_decided_as_a_whole(
    bank: Bank,
    monkeypatch: pytest.MonkeyPatch,
    interrupt: type[BaseException],
    others: int,
    step: str,
    *,
    twice: bool,
) -> None:
    interrupted, line = Interrupted(monkeypatch, interrupt), line_of(bank)
    if twice:
        interrupt_behind(monkeypatch, Hand, "go", interrupt)
    with ThreadPoolExecutor(2) as threads:
        with held(monkeypatch, step) as come:
            first, *rest = in_line(
                line,
                lambda: threads.submit(interrupted.run, bank, opening(bank, MINE)),
                *[lambda: threads.submit(run, bank, opening(bank, OTHERS))] * others,
            )
            assert come.wait(20)
            gone = interrupted.now(first)
        for other in rest:
            assert other.result(20).error is None
            assert accounts(bank) == [[MINE, OTHERS]] * 2
    said = gone.error if isinstance(gone, Left) else gone
    assert isinstance(said, interrupt)
    assert "may stand committed" in said.__notes__[0]
    until(lambda: is_over(bank))
    due = sorted([MINE, *[OTHERS] * others])
    assert (accounts(bank), bank.prepared()) == ([due] * 2, [])
    assert sorted(bank.told()) == sorted(["1000", *map(str, due)])


@INTERRUPTS
def test_what_no_turn_has_is_rolled_back_and_the_others_share(
    bank: Bank, monkeypatch: pytest.MonkeyPatch, interrupt: type[BaseException]
) -> None:
    interrupted, line = Interrupted(monkeypatch, interrupt), line_of(bank)
    with ThreadPoolExecutor(3) as threads, line.batcher._turn:
        first = threads.submit(interrupted.run, bank, opening(bank, MINE))
        until(lambda: len(line.batcher._waiting) == 1)
        others = [threads.submit(run, bank, opening(bank, account)) for account in (OTHERS, OTHERS + 1)]
        until(lambda: len(line.batcher._waiting) == 3)
        gone = interrupted.now(first)
    said = gone.error if isinstance(gone, Left) else gone
    assert isinstance(said, interrupt)
    assert not getattr(said, "__notes__", [])
    left = [other.result(20) for other in others]
    assert [each.error for each in left] == [None, None]
    assert branches(bank, left) == [0, 2]
    until(lambda: is_over(bank))
    assert (accounts(bank), bank.prepared()) == ([[OTHERS, OTHERS + 1]] * 2, [])
    assert sorted(bank.told()) == ["1000", str(OTHERS), str(OTHERS + 1)]


def test_whoever_is_in_a_turn_with_one_that_went_hears_his_own_no(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted, line = Interrupted(monkeypatch, KeyboardInterrupt), line_of(bank)

    def lapsed(owner: BlockOwner, *_: object) -> None:
        raise NumberLapsed(owner.life.txid)

    with ThreadPoolExecutor(2) as threads:
        with line.batcher._turn:
            first = threads.submit(interrupted.run, bank, opening(bank, MINE))
            until(lambda: len(line.batcher._waiting) == 1)
            other = threads.submit(run, bank, opening(bank, OTHERS))
            until(lambda: len(line.batcher._waiting) == 2)
            interrupted.now(first)
            monkeypatch.setattr(BlockOwner, "decide", lapsed)
        assert isinstance(other.result(20).error, NumberLapsed)


def test_what_was_left_to_a_turn_takes_no_more_where_that_turn_fails(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted, line, blocks = Interrupted(monkeypatch, KeyboardInterrupt), line_of(bank), list[Coordinated]()

    def work(tx: Coordinated) -> None:
        blocks.append(tx)
        opening(bank, MINE)(tx)

    with ThreadPoolExecutor(2) as threads:
        with held(monkeypatch, "ask_at_once") as come:
            first, other = in_line(
                line,
                lambda: threads.submit(interrupted.run, bank, work),
                lambda: threads.submit(run, bank, opening(bank, 1_000)),  # which is there already
            )
            assert come.wait(20)
            assert isinstance(interrupted.now(first), KeyboardInterrupt)
        assert isinstance(other.result(20).error, IntegrityViolated)
    until(lambda: is_over(bank))
    (tx,) = blocks
    with pytest.raises(TransactionError):
        tx.send(TRANSFERS, b"late")
    assert (accounts(bank), bank.prepared(), bank.told()) == ([[]] * 2, [], ["1000"])


@INTERRUPTS
def test_an_answer_that_is_not_heard_says_that_it_may_stand(
    bank: Bank, monkeypatch: pytest.MonkeyPatch, interrupt: type[BaseException]
) -> None:
    line_of(bank)
    interrupt_behind(monkeypatch, BlockOwner, "finish", interrupt)
    with pytest.raises(interrupt) as said, bank.producer.coordinated(*bank.engines) as tx:
        opening(bank, MINE)(tx)
    assert "may stand committed" in said.value.__notes__[0]
    assert accounts(bank) == [[MINE]] * 2


def test_a_turn_of_ones_own_is_left_by_oneself(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    line = line_of(bank)

    class Turns(dict[object, float]):
        def pop(self, *_: object) -> float:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(line, "_turns", Turns())
        with pytest.raises(KeyboardInterrupt), bank.producer.coordinated(*bank.engines) as tx:
            opening(bank, MINE)(tx)
    assert is_over(bank)
    assert accounts(bank) == [[MINE]] * 2


@INTERRUPTS
def test_what_stands_is_never_done_again(
    looping: LoopedBank, monkeypatch: pytest.MonkeyPatch, interrupt: type[BaseException]
) -> None:
    names, said = list(looping.loops), list[BaseException]()

    async def block(account: int) -> None:
        try:
            async with looping.bank.producer.coordinated(*names) as tx:
                for name in names:
                    tx.journal(name).execute(OPEN, {"id": account})
                await tx.send(TRANSFERS, str(account).encode())
        except BaseException as cut_off:  # noqa: BLE001  # looked at below
            said.append(cut_off)

    async def all_at_once() -> None:
        await block(1_000)
        interrupt_behind(monkeypatch, _Line, "_together", interrupt)
        await asyncio.gather(*(block(account) for account in (MINE, OTHERS, OTHERS + 1)))

    looping.run(all_at_once)
    mine, *others = sorted(said, key=lambda each: not isinstance(each, interrupt))
    assert isinstance(mine, interrupt)
    assert "may stand committed" in mine.__notes__[0]
    assert all(isinstance(each, OutcomeUnknown) for each in others)
    assert accounts(looping.bank) == [[MINE, OTHERS, OTHERS + 1]] * 2


@pytest.mark.parametrize(("kind", "step"), [(Hand, "take"), (Resources, "ask_at_once")])
def test_whoever_is_interrupted_in_a_turn_of_his_own_rolls_back(
    bank: Bank, monkeypatch: pytest.MonkeyPatch, kind: type, step: str
) -> None:
    line_of(bank)
    interrupt_behind(monkeypatch, kind, step, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt), bank.producer.coordinated(*bank.engines) as tx:
        opening(bank, MINE)(tx)
    assert (accounts(bank), bank.prepared(), is_over(bank)) == ([[]] * 2, [], True)
    assert tx._owner not in bank.broker.kernel.running._unwritten


def test_a_journal_that_was_given_up_before_its_vote_is_in_no_decision(bank: Bank) -> None:
    tx = bank.producer.coordinated(*bank.engines).__enter__()
    opening(bank, MINE)(tx)
    work = tx._owner.work
    work.open_journals(work.take_journals())
    first, *others = bank.engines
    work.drop(first)
    with pytest.raises(TransactionError, match="given up before its vote"):
        work.named(dict.fromkeys(others, Vote.PREPARED))
    tx._owner.leave()


@pytest.mark.rule("R9")
def test_what_a_turn_left_is_closed_whoever_opened_it_again(bank: Bank) -> None:
    tx = bank.producer.coordinated(*bank.engines).__enter__()
    _leave(EndedBlock(tx._owner, (), {}, tx._close, tx._reopen, Hand()))
    with pytest.raises(TransactionError, match="is closed"):
        tx.journal(next(iter(bank.engines)))
