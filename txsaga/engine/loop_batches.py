"""
Group commit within an event loop: whoever finds nobody at it runs the batch, waiting as a task does.

While its batch is under way the others of the loop gather, and the first of them runs the next. So no answer crosses
from a thread to the loop, and a loop that stands still holds up its own tasks alone. Whoever runs a batch hears its
answer before a cancellation: its neighbours are in it. If a batch never runs, its callers were never answered and
nothing of it is visible.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, Generic, TypeVar

from txsaga.engine.waiting import Aside
from txsaga.errors import OutcomeUnknown

Item = TypeVar("Item")

_NONE: Any = object()


class Place:
    """The place of a call in the line of its loop: it waits for its answer, or to run the next batch."""

    __slots__ = ("_waiter", "answer", "told")

    def __init__(self) -> None:
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
            self._waiter.set_result(None)


Line = deque[tuple[Item, Place]]


class LoopBatches(Generic[Item]):
    """The batches of one loop, one at a time, in order of arrival."""

    def __init__(
        self,
        gathered: Callable[[Line[Item]], list[tuple[Item, Place]]],
        answers: Callable[[list[Item]], Sequence[object]],
    ) -> None:
        self._gathered, self._answers = gathered, answers
        self.waiting: Line[Item] = deque()
        self.led = False  # somebody runs a batch, or was told to

    def call(self, aside: Aside, item: Item) -> Any:  # noqa: ANN401  # the answer that belongs to the item
        """Run a call to its end: in the batch of another task, or in one's own."""
        place = Place()
        self.waiting.append((item, place))
        try:
            if self.led:
                aside.until(place)
            if place.answer is _NONE:
                self._lead(place)
            if isinstance(place.answer, BaseException):
                raise place.answer
            return place.answer
        except BaseException:
            if place.answer is _NONE:
                self._leave(place)
            raise
        finally:
            place.answer = None  # an error knows this very frame

    def _lead(self, own: Place) -> None:
        self.led, batch = True, list[tuple[Item, Place]]()
        try:
            batch = self._gathered(self.waiting)
            answers = self._answers([item for item, _ in batch])
            for (_, place), answer in zip(batch, answers, strict=True):
                place.answer = answer if place is own else _for_others(answer)
        finally:
            for _, place in batch:
                if place.answer is _NONE:
                    place.answer = OutcomeUnknown("whoever ran the batch was interrupted")
                place.tell()
            self._hand_on()

    def _hand_on(self) -> None:
        self.led = bool(self.waiting)
        if self.led:
            self.waiting[0][1].tell()

    def _leave(self, left: Place) -> None:
        """Give up a place in the line: its task is gone."""
        waiting = [entry for entry in self.waiting if entry[1] is not left]
        if len(waiting) < len(self.waiting):
            self.waiting = deque(waiting)
            if left.told:  # it was to run the next batch
                self._hand_on()


def _for_others(answer: object) -> object:
    """Tell an interruption of whoever ran the batch as what it is to the others."""
    if isinstance(answer, BaseException) and not isinstance(answer, Exception):
        return OutcomeUnknown("whoever ran the batch was interrupted")
    return answer
