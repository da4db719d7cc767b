"""Group commit from tasks of an event loop: who is answered, and what becomes of a task that is cancelled."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

import pytest

from tests.scene.loop_gate import Gate, batcher_of, behind, call
from tests.scene.looped_shop import while_it_runs
from txsaga.errors import InvalidMessage, StoreBusy, TxSagaError
from txsaga.wiring.connecting import in_loop


def test_the_loop_goes_on_while_a_batch_waits() -> None:
    gate = Gate()
    batcher = batcher_of(gate)

    async def work() -> tuple[int, int]:
        asyncio.get_running_loop().call_later(0.2, gate.open.set)
        return await while_it_runs(call(batcher, 1))

    answer, turns = asyncio.run(work())
    assert answer == 10
    assert turns > 10


def test_many_tasks_are_all_answered_with_their_own_answer() -> None:
    batcher = batcher_of(Gate().opened())

    async def one(first: int) -> list[int]:
        return [await call(batcher, item) - 10 * item for item in range(first, first + 40)]

    async def work() -> list[list[int]]:
        return await asyncio.gather(*(one(1000 * at) for at in range(12)))

    assert asyncio.run(work()) == [[0] * 40] * 12


def test_one_bad_item_never_fails_its_neighbours() -> None:
    gate = Gate()

    def run(items: Sequence[int]) -> Sequence[int | TxSagaError]:
        answers = gate(items)
        if 3 in items:
            raise InvalidMessage("three is bad")
        return [InvalidMessage("odd") if item == 5 else answer for item, answer in zip(items, answers, strict=True)]

    batcher = batcher_of(run)

    async def work() -> list[int | BaseException]:
        tasks = await behind(batcher, gate, 1, 3, 5)
        gate.open.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    assert [str(answer) for answer in asyncio.run(work())] == ["0", "10", "three is bad", "odd"]


@pytest.mark.parametrize("at", range(4))
def test_a_task_that_is_cancelled_hears_its_answer_first_and_harms_nobody(at: int) -> None:
    gate, heard = Gate(), list[int]()
    batcher = batcher_of(gate)

    async def work() -> list[int | BaseException]:
        tasks = await behind(batcher, gate, 1, 2, 3)
        for _ in range(2):
            tasks[at].cancel()
            await asyncio.sleep(0.01)
            assert not tasks[at].done()
        gate.open.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        heard.append(await call(batcher, 4))
        return answers

    answers = asyncio.run(work())
    assert isinstance(answers.pop(at), asyncio.CancelledError)
    assert answers == [item * 10 for item in range(4) if item != at]
    assert heard == [40]
    assert gate.batches == [[0], [1, 2, 3], [4]]


def test_batches_respect_their_limit_and_their_weight() -> None:
    gate = Gate()
    batcher = batcher_of(gate, limit=3, weigh=lambda item: item, weight=10)

    async def work() -> None:
        tasks = await behind(batcher, gate, 1, 1, 1, 1, 9, 4, 30, 2)
        gate.open.set()
        await asyncio.gather(*tasks)

    asyncio.run(work())
    assert gate.batches == [[0], [1, 1, 1], [1, 9], [4], [30], [2]]


def test_a_full_line_waits_and_then_says_what_to_do_while_the_loop_goes_on() -> None:
    gate = Gate()
    batcher = batcher_of(gate, capacity=2, patience=0.1)

    async def work() -> tuple[int, list[int]]:
        tasks = await behind(batcher, gate, 1, 2)

        async def refused() -> None:
            with pytest.raises(StoreBusy, match=r"2 calls wait.*retry later"):
                await call(batcher, 3)

        _, turns = await while_it_runs(refused())
        gate.open.set()
        return turns, await asyncio.gather(*tasks)

    turns, answers = asyncio.run(work())
    assert answers == [0, 10, 20]
    assert turns > 5


def test_a_call_from_within_a_batch_is_run_at_once() -> None:
    inner: list[int] = []

    def run(items: Sequence[int]) -> Sequence[int | TxSagaError]:
        if 1 in items:  # as an observer that sends
            inner.append(batcher.call(7))
        return [item * 10 for item in items]

    batcher = batcher_of(run)

    async def work() -> list[int]:
        return await asyncio.gather(*(call(batcher, item) for item in (0, 1, 2)))

    assert asyncio.run(asyncio.wait_for(work(), 10)) == [0, 10, 20]
    assert inner == [70]


def test_a_task_that_is_cancelled_while_it_waits_for_room_is_let_go_and_hands_over_nothing() -> None:
    gate = Gate()
    batcher = batcher_of(gate, capacity=1)

    async def work() -> list[int]:
        tasks = await behind(batcher, gate, 1)
        late = asyncio.ensure_future(call(batcher, 2))
        await asyncio.sleep(0.02)
        late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(late, 5)
        gate.open.set()
        return await asyncio.gather(*tasks)

    assert asyncio.run(work()) == [0, 10]
    assert gate.batches == [[0], [1]]


@pytest.mark.rule("R14")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("within", [False, True], ids=["beside a batch", "within a batch"])
def test_a_forked_child_starts_empty_and_works(*, within: bool) -> None:
    gate, parent = Gate(), os.getpid()

    def fork() -> None:
        child = os.fork()
        if child == 0:
            gate.batches.clear()
            gate.open.set()
            good = batcher.call(7) == 70 and asyncio.run(in_loop(lambda: batcher.call(8))) == 80
            os._exit(0 if good and gate.batches == [[7], [8]] else 1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0

    def run(items: Sequence[int]) -> Sequence[int | TxSagaError]:
        if within and os.getpid() == parent:
            fork()
        return gate(items)

    batcher = batcher_of(run)

    async def work() -> list[int]:
        tasks = await behind(batcher, gate, 1)
        if not within:
            fork()
        gate.open.set()
        return await asyncio.gather(*tasks)

    assert asyncio.run(work()) == [0, 10]
