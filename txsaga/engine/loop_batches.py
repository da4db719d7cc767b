"""
Group commit within an event loop: whoever finds nobody at it runs the batch, waiting as a task does.

While its batch is under way the others of the loop gather, and the first of them runs the next. So no answer crosses
from a thread to the loop, and a loop that stands still holds up its own tasks alone. Whoever runs a batch hears its
answer before a cancellation: its neighbours are in it. One that is interrupted leaves them in doubt and the line to the
next, at the latest when its task is done. If a batch never runs, its callers were never answered and nothing of it is
visible.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from txsaga.engine.waiting import Aside
from txsaga.errors import OutcomeUnknown

Item = TypeVar("Item")

_NONE: Any = object()


class Place:
    """The place of a call in the line of its loop: it waits for its answer, or to run the next batch."""

    __slots__ = ("_waiter", "answer", "aside", "task", "told")

    def __init__(self, aside: Aside) -> None:
        self.aside, self.task = aside, asyncio.current_task()
        self.answer, self.told = _NONE, False
        self._waiter: asyncio.Future[None] | None = None

    def __await__(self) -> Generator[object, None, None]:
        """Wait until it is told something."""
        if not self.told:
            self._waiter = asyncio.get_running_loop().create_future()
            yield from self._waiter

    def cancelled(self) -> bool:
        """Tell that nobody can take it back: it may be in a batch already."""
        return False

    def tell(self) -> None:
        """Let it go on."""
        self.told = True
        if self._waiter is not None and not self._waiter.done():
            with suppress(RuntimeError):  # in a loop that was closed nobody waits any more
                self._waiter.set_result(None)


class LoopBatches(Generic[Item]):
    """The batches of one loop, one at a time, in order of arrival."""

    def __init__(
        self,
        fitting: Callable[[deque[tuple[Item, Place]]], int],
        answers: Callable[[list[Item]], Sequence[object]],
        *,
        gathers: bool = False,
    ) -> None:
        self._fitting, self._answers, self._gathers = fitting, answers, gathers
        self.waiting = deque[tuple[Item, Place]]()
        self.leader: Place | None = None  # it runs a batch, or was told to
        self._many = False  # whoever ran the last batch had neighbours
        self._batch: list[tuple[Item, Place]] = []

    def call(self, aside: Aside, item: Item) -> Any:  # noqa: ANN401  # the answer that belongs to the item
        """Run a call to its end: in the batch of another task, or in one's own."""
        place = Place(aside)
        try:
            if self._is_led_by(aside):  # a call from within its batch: nobody else would run it
                (place.answer,) = self._answers([item])
            else:
                self._run(place, item)
            if isinstance(place.answer, BaseException):
                raise place.answer
            return place.answer
        except BaseException:
            if place.answer is _NONE or self.leader is place:
                self._let_go(place)
            raise
        finally:
            place.answer = None  # an error knows this very frame

    def _is_led_by(self, aside: Aside) -> bool:
        return self.leader is not None and self.leader.aside is aside

    def _run(self, place: Place, item: Item) -> None:
        self.waiting.append((item, place))
        if self.leader is None:
            self._appoint(place)
        else:
            place.aside.until(place)
        if place.answer is _NONE:
            self._lead(place)

    def _appoint(self, place: Place) -> None:
        if place.task is not None:
            place.task.add_done_callback(self._is_gone)
        self.leader = place

    def _lead(self, own: Place) -> None:
        """Run the next batch and hand on; what is interrupted `_let_go` mends."""
        if self._gathers and (self._many or own.told):  # who is alone has nobody to wait for
            own.aside.until(_turn())
        fitting = self._fitting(self.waiting)
        self._many = fitting > 1 or own.told
        self._batch = batch = [self.waiting[at] for at in range(fitting)]
        for _ in batch:
            self.waiting.popleft()
        answers = self._answers([item for item, _ in batch])
        for (_, place), answer in zip(batch, answers, strict=True):
            place.answer = answer if place is own else _for_others(answer)
        self._hand_on(own)

    def _hand_on(self, leader: Place) -> None:
        for _, place in self._batch:
            place.tell()
        self._batch = []
        if self.waiting:
            self._appoint(self.waiting[0][1])
            self.waiting[0][1].tell()
        else:
            self.leader = None
        if leader.task is not None:
            leader.task.remove_done_callback(self._is_gone)

    def _is_gone(self, task: asyncio.Task[Any]) -> None:
        if self.leader is not None and self.leader.task is task:
            self._let_go(self.leader)
        elif self.leader is not None:
            self.leader.tell()  # whoever handed on did not come to that

    def _let_go(self, left: Place) -> None:
        """Give up a place in the line, and what it had begun for others."""
        if self.leader is left:
            for _, place in self._batch:
                if place.answer is _NONE:
                    place.answer = OutcomeUnknown("whoever ran the batch was interrupted")
        staying = [each for each in self.waiting if each[1] is not left and each[1].answer is _NONE]
        self.waiting.clear()  # the same line: whoever waits for room looks at it
        self.waiting.extend(staying)
        if self.leader is left:
            self._hand_on(left)
        elif self.leader is not None:
            self.leader.tell()


def _turn() -> asyncio.Future[None]:
    """Give what is there with the next turn of the loop: whoever was told in this one has called again by then."""
    loop = asyncio.get_running_loop()
    turn = loop.create_future()
    loop.call_soon(turn.set_result, None)
    return turn


def _for_others(answer: object) -> object:
    """Tell an interruption of whoever ran the batch as what it is to the others."""
    if isinstance(answer, BaseException) and not isinstance(answer, Exception):
        return OutcomeUnknown("whoever ran the batch was interrupted")
    return answer
