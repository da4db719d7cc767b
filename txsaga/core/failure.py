"""What is done when a block fails, by an interrupt too; and calls whose interrupts must not end a thread of ours."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Answer = TypeVar("Answer")


class report_failure:  # a class: the error is at hand, and goes on
    """Call a function with the error if the block fails; the error goes on.

    An interrupt that strikes between the end of the block and the next statement is not seen: what that leaves behind
    must be found by check-back or freed with its objects.
    """

    def __init__(self, tell: Callable[[BaseException], object]) -> None:
        self._tell = tell

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._tell(error)


class on_failure(report_failure):
    """Call a function if the block fails."""

    def __init__(self, clean_up: Callable[..., object], *arguments: object) -> None:
        self._tell = lambda _: clean_up(*arguments)


def contained(call: Callable[[], Answer], raised: type[Exception] = RuntimeError) -> Answer:
    """Call a function that may try to end its thread: that becomes an ordinary error."""
    try:
        return call()
    except Exception:
        raise
    except BaseException as leaving:
        raise raised(f"{type(leaving).__name__}: {leaving}") from leaving


def complete(future: Future[Answer], call: Callable[[], Answer]) -> None:
    """Call a function and hand over its result, or whatever it raises, to the thread that waits."""
    try:
        answer = call()
    except BaseException as error:  # noqa: BLE001  # raised where the result is requested
        future.set_exception(error)
    else:
        future.set_result(answer)
    finally:
        del future, call  # its error refers to this frame
