"""Group commit: order, isolation of failures, bounds, forks, and who runs a batch."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future

import pytest

from tests.contracts.samples import start
from tests.scene.threads import fail_to_start_once
from txsaga.core.batcher import Batcher
from txsaga.errors import BrokerClosed, InvalidMessage, OutcomeUnknown, StoreBusy, StoreUnavailable, TxSagaError


class Gate:
    """A batch function that waits at a gate and remembers what it ran."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.threads: list[str] = []
        self.open = threading.Event()
        self.entered = threading.Event()

    def __call__(self, items: Sequence[int]) -> Sequence[int | TxSagaError]:
        self.batches.append(list(items))
        self.threads.append(threading.current_thread().name)
        self.entered.set()
        assert self.open.wait(10)
        return [item * 10 for item in items]


def test_a_lone_caller_runs_its_own_batch_in_its_own_thread() -> None:
    gate = Gate()
    gate.open.set()
    batcher = Batcher("test", gate)
    assert batcher.call(4) == 40
    assert gate.threads == [threading.current_thread().name]


def test_calls_that_come_while_a_batch_runs_make_the_next_batch_in_their_order() -> None:
    gate = Gate()
    batcher = Batcher("test", gate)
    first = batcher.submit(1)
    assert gate.entered.wait(10)
    rest = [batcher.submit(item) for item in (2, 3, 4)]
    gate.open.set()
    assert [call.result(10) for call in (first, *rest)] == [10, 20, 30, 40]
    assert gate.batches == [[1], [2, 3, 4]]


def test_one_bad_item_never_fails_its_neighbours() -> None:
    def run(items: Sequence[int]) -> Sequence[int | TxSagaError]:
        if 3 in items:
            raise InvalidMessage("three is bad")
        return list(items)

    batcher = Batcher("test", run)
    calls = [batcher.submit(item) for item in range(6)]
    for item, call in enumerate(calls):
        if item == 3:
            with pytest.raises(InvalidMessage, match="three is bad"):
                call.result(10)
        else:
            assert call.result(10) == item


def test_an_error_at_the_place_of_an_item_is_raised_to_its_caller_only() -> None:
    def run(items: Sequence[int]) -> Sequence[int | TxSagaError]:
        return [InvalidMessage(str(item)) if item % 2 else item for item in items]

    batcher = Batcher("test", run)
    assert batcher.call(2) == 2
    with pytest.raises(InvalidMessage, match="5"):
        batcher.call(5)


def test_a_full_queue_waits_and_then_says_what_to_do() -> None:
    gate = Gate()
    batcher = Batcher("test", gate, capacity=2, patience=0.05)
    calls = [batcher.submit(1)]
    assert gate.entered.wait(10)
    calls += [batcher.submit(2), batcher.submit(3)]
    with pytest.raises(StoreBusy, match=r"2 calls wait.*retry later"):
        batcher.submit(4)
    gate.open.set()
    assert [call.result(10) for call in calls] == [10, 20, 30]


def test_closing_finishes_what_is_queued_and_refuses_more() -> None:
    gate = Gate()
    batcher = Batcher("test", gate)
    calls = [batcher.submit(item) for item in range(5)]
    gate.open.set()
    batcher.close()
    assert [call.result(0) for call in calls] == [0, 10, 20, 30, 40]
    with pytest.raises(BrokerClosed, match="open another"):
        batcher.call(1)


def test_batches_respect_their_limit() -> None:
    gate = Gate()
    batcher = Batcher("test", gate, limit=3)
    calls = [batcher.submit(0)]
    assert gate.entered.wait(10)
    calls += [batcher.submit(item) for item in range(1, 8)]
    gate.open.set()
    for call in calls:
        call.result(10)
    assert [len(batch) for batch in gate.batches] == [1, 3, 3, 1]


def test_many_threads_are_all_answered_with_their_own_answer() -> None:
    batcher: Batcher[int, int] = Batcher("test", lambda items: [item + 1 for item in items])
    wrong: list[tuple[int, int]] = []

    def work(first: int) -> None:
        for item in range(first, first + 300):
            answer = batcher.call(item)
            if answer != item + 1:
                wrong.append((item, answer))

    threads = [threading.Thread(target=work, args=(1000 * at,)) for at in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not wrong
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.rule("R14", "R18")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_starts_empty_and_works() -> None:
    gate = Gate()
    batcher = Batcher("test", gate)
    waiting = [batcher.submit(item) for item in (1, 2, 3)]
    assert gate.entered.wait(10)
    child = os.fork()
    if child == 0:
        gate.batches.clear()
        gate.open.set()
        good = batcher.call(7) == 70 and batcher.submit(8).result(10) == 80
        os._exit(0 if good and gate.batches == [[7], [8]] else 1)
    _, status = os.waitpid(child, 0)
    gate.open.set()
    assert os.waitstatus_to_exitcode(status) == 0
    assert [call.result(10) for call in waiting] == [10, 20, 30]


def test_a_batch_is_bounded_by_weight_and_a_heavy_item_goes_alone() -> None:
    gate = Gate()
    batcher = Batcher("test", gate, weigh=lambda item: item, weight=10)
    calls = [batcher.submit(0)]
    assert gate.entered.wait(10)
    calls += [batcher.submit(item) for item in (4, 5, 6, 30, 1, 2)]
    gate.open.set()
    for call in calls:
        call.result(10)
    assert gate.batches == [[0], [4, 5], [6], [30], [1, 2]]


def test_a_call_that_was_cancelled_goes_on_and_harms_nobody() -> None:
    gate = Gate()
    batcher = Batcher("test", gate)
    calls = [batcher.submit(item) for item in (1, 2, 3)]

    async def impatient() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.wrap_future(calls[1]), 0.01)

    asyncio.run(impatient())
    assert not calls[2].cancel()
    gate.open.set()
    assert [call.result(10) for call in calls] == [10, 20, 30]
    assert batcher.call(4) == 40


def test_a_callback_may_call_again() -> None:
    gate = Gate()
    gate.open.set()
    batcher = Batcher("test", gate)
    again: Future[int] = Future()
    batcher.submit(1).add_done_callback(lambda _: again.set_result(batcher.call(2)))
    assert again.result(10) == 20
    assert batcher.submit(3).result(10) == 30


def test_a_store_that_nobody_can_reach_is_not_asked_for_each_item() -> None:
    tried: list[int] = []

    def run(items: Sequence[int]) -> Sequence[int]:
        tried.append(len(items))
        if 0 not in items:
            raise StoreUnavailable("nobody there")
        entered.set()
        assert release.wait(10)
        return list(items)

    entered, release = threading.Event(), threading.Event()
    batcher = Batcher("test", run)
    first = batcher.submit(0)
    assert entered.wait(10)
    calls = [batcher.submit(item) for item in range(1, 31)]
    release.set()
    assert first.result(10) == 0
    for call in calls:
        with pytest.raises(StoreUnavailable):
            call.result(10)
    assert tried == [1, 30, 1, 1]


def test_closing_waits_for_a_lone_caller_and_refuses_who_waits_for_room() -> None:
    gate = Gate()
    batcher = Batcher("test", gate, capacity=1)
    lone: Future[int] = start(lambda: batcher.call(1))
    assert gate.entered.wait(10)
    queued = batcher.submit(2)
    late = start(lambda: batcher.submit(3))
    closing = start(batcher.close)
    assert not closing.done()
    gate.open.set()
    closing.result(10)
    assert (lone.result(0), queued.result(0)) == (10, 20)
    try:
        assert late.result(10).result(0) == 30  # it found room before the end
    except BrokerClosed:
        pass


def test_answers_that_do_not_fit_their_calls_are_unknown_and_nobody_hangs() -> None:
    batcher: Batcher[int, int] = Batcher("test", lambda items: [*items, 0])
    with pytest.raises(OutcomeUnknown, match="1 calls had 2 answers"):
        batcher.submit(1).result(10)
    with pytest.raises(OutcomeUnknown):
        batcher.call(2)


def test_of_a_long_queue_half_goes_at_a_time() -> None:
    gate = Gate()
    batcher = Batcher("test", gate)
    calls = [batcher.submit(0)]
    assert gate.entered.wait(10)
    calls += [batcher.submit(item) for item in range(1, 101)]
    gate.open.set()
    for call in calls:
        call.result(10)
    assert [len(batch) for batch in gate.batches] == [1, 50, 32, 18]


def test_a_callback_that_ends_the_program_harms_no_neighbour() -> None:
    gate = Gate()
    batcher = Batcher("test", gate)
    calls = [batcher.submit(item) for item in (1, 2, 3)]
    calls[0].add_done_callback(lambda _: sys.exit(3))
    gate.open.set()
    assert [call.result(10) for call in calls] == [10, 20, 30]
    assert batcher.submit(4).result(10) == 40


def test_a_thread_that_could_not_be_started_once_is_started_for_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    gate.open.set()
    batcher = Batcher("test", gate)
    fail_to_start_once(monkeypatch, "txsaga-test")
    with pytest.raises(RuntimeError, match="can't start"):
        batcher.submit(1)
    assert batcher.submit(2).result(10) == 20
    assert gate.batches == [[2]]  # what was refused is not stored behind its caller's back
    batcher.close()
