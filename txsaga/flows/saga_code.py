"""
Functions that another process must be able to find: compensations, and steps after the point of no return.

The store keeps only a name; this registry resolves it. Only functions that a module registered are ever called: nothing
in the store names code to be loaded. A saga with a name unknown here waits for a process that knows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, TypeVar

from txsaga.core.arguments import check_function, check_kind, check_seconds
from txsaga.errors import CodeMissing, ConfigError
from txsaga.flows.saga_values import Action, Http, Send, Undo
from txsaga.flows.step import StepKind

Function = TypeVar("Function", bound=Callable[..., object])
OUTPUT, ID = "output", "step"
"""A function with a parameter of such a name gets the step's result, or the step's id."""


class RegisteredFunctions:
    """Functions by name."""

    def __init__(self) -> None:
        self._functions: dict[str, Callable[..., object]] = {}
        self._names: dict[Callable[..., object], str] = {}
        self._unloaded: dict[str, str] = {}

    def register(self, name: str, function: Callable[..., object]) -> None:
        """Register a function under a name, which always leads to the same function."""
        check_kind(name, str, "the name of a function", "give a text that stays the same from release to release")
        check_function(function, "what is registered", "decorate a function")
        known = self._functions.get(name)
        if not name or (known is not None and _place(known) != _place(function)):
            raise ConfigError(f"{name!r} is registered already, or empty; choose another name")
        self._functions[name], self._names[function] = function, name

    def name_of(self, function: Callable[..., object]) -> str:
        """Return the name under which a function is registered."""
        name = self._names.get(function)
        if name is None:
            raise ConfigError(
                f"{getattr(function, '__qualname__', function)!r} must be found by another process when this one is "
                'killed; register it with @txsaga.compensation("a-name") in a module that TXSAGA_SAGAS names'
            )
        return name

    def find(self, name: str) -> Callable[..., object]:
        """Return the function registered under a name."""
        if name not in self._functions:
            raise CodeMissing(name, "".join(f"; module {m!r} can't be loaded: {w}" for m, w in self._unloaded.items()))
        return self._functions[name]

    def load(self, modules: Iterable[str]) -> None:
        """Import modules, which register functions; a failure is reported when one is needed."""
        for module in modules:
            try:
                import_module(module)
                self._unloaded.pop(module, None)
            except Exception as reason:  # noqa: BLE001  # other sagas go on
                self._unloaded[module] = f"{type(reason).__name__}: {reason}"

    @property
    def unloaded(self) -> Mapping[str, str]:
        """The modules that could not be loaded, and why."""
        return self._unloaded


CODE = RegisteredFunctions()
"""The functions registered in this process."""


def compensation(name: str) -> Callable[[Function], Function]:
    """Register a function by name, so that any process with its module can run it: to undo a step, or forward."""

    def register(function: Function) -> Function:
        CODE.register(name, function)
        return function

    return register


def called(function: Callable[..., object], *first: object, input: Mapping[str, object], **special: object) -> object:
    """Call a function with its input, and with those special values that it has parameters for."""
    code = getattr(function, "__code__", None)
    names = () if code is None else code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return function(*first, **{**{name: special[name] for name in special if name in names}, **input})


def _place(function: Callable[..., object]) -> tuple[object, object]:
    return getattr(function, "__module__", None), getattr(function, "__qualname__", function)


Doing = Callable[..., object] | str | Http | Send
ADVICE = "give a function, a statement, an Http or a Send"


def kind_of(do: object, on: str | None) -> StepKind:
    """Return what kind of work something is."""
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
    """Return a name for a step, from what it does."""
    match do:
        case str():
            return " ".join(do.split())[:60]
        case Http():
            return do.url
        case Send():
            return f"message to {do.topic}"
    return getattr(do, "__name__", type(do).__name__)


def action_of(do: Doing, on: str | None, *, registered: bool = True, **more: Any) -> Action:
    """Describe what is to be done; a function that only this process runs needs no registered name."""
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
    """Describe what undoes a step; options that are not given are the step's."""
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
    """Raise `ConfigError` unless both are valid numbers of seconds."""
    check_seconds(pause, "pause")
    if timeout is not None:
        check_seconds(timeout, "timeout")
