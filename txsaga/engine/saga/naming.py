"""
What a user hands over as a step or as its compensation, as an action that can be written down.

A function is named by its registration, a statement and an address stand for themselves. What another process could
not do is refused here, before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from txsaga.engine.saga.code import CODE
from txsaga.errors import ConfigError
from txsaga.model.arguments import check_function, check_kind, check_seconds
from txsaga.model.saga import Action, Http, Send, Undo
from txsaga.model.step import StepKind

Doing = Callable[..., object] | str | Http | Send
ADVICE = "give a function, a statement, an Http or a Send"


def kind_of(do: object, on: str | None) -> StepKind:
    """Tell what kind of work something is."""
    match do:
        case str():
            if on is None:
                raise ConfigError("a statement runs in a resource; say on=… which one")
            return StepKind.SQL
        case Http() | Send():
            if on is not None:
                raise ConfigError(f"{type(do).__name__} works in no resource; leave on= out")
            return StepKind.HTTP if isinstance(do, Http) else StepKind.MESSAGE
    check_function(do, "a step", ADVICE)
    return StepKind.CALL


def name_of(do: Doing) -> str:
    """Name a step after what it does."""
    match do:
        case str():
            return " ".join(do.split())[:60]
        case Http():
            return do.url
        case Send():
            return f"message to {do.topic}"
    return getattr(do, "__name__", type(do).__name__)


def action_of(do: Doing, on: str | None, *, registered: bool = True, **more: Any) -> Action:  # noqa: ANN401
    """Write down what is to be done; a function that nobody else runs needs no name."""
    kind = kind_of(do, on)
    match do:
        case str():
            return Action(kind=kind, what=do, resource=on, **more)
        case Http():
            options: Mapping[str, object] = {"method": do.method, "headers": dict(do.headers)}
            return Action(kind=kind, what=do.url, options=options, **more)
        case Send():
            return Action(kind=kind, what=do.topic, options={"body": do.body, "key": do.key, "tag": do.tag}, **more)
    return Action(kind=kind, what=CODE.name_of(do) if registered else name_of(do), resource=on, **more)


def undoing(compensate: Doing | Undo | None, on: str | None) -> Action | None:
    """Write down what undoes a step; what is not said of it is as in its step."""
    if compensate is None:
        return None
    given = compensate if isinstance(compensate, Undo) else Undo(do=compensate)
    works_in = given.on if given.on is not None or isinstance(given.do, Http | Send) else on
    more: dict[str, Any] = {"retries": checked_retries(given.retries), "timeout": given.timeout, "pause": given.pause}
    check_times(given.timeout, given.pause)
    do: Any = given.do
    return action_of(do, works_in, input=given.input, **more)


def checked_retries(retries: object) -> int:
    """Return a number of retries, or raise `ConfigError`."""
    check_kind(retries, int, "retries", "give a number, 0 or more")
    assert isinstance(retries, int)
    if retries < 0:
        raise ConfigError(f"retries is {retries}; give a number, 0 or more")
    return retries


def check_times(timeout: float | None, pause: float) -> None:
    """Raise `ConfigError` unless somebody can wait so long."""
    check_seconds(pause, "pause")
    if timeout is not None:
        check_seconds(timeout, "timeout")
