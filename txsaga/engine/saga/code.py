"""
Functions that another process must be able to find: compensations, and steps behind the point of no return.

What is written down of a saga is a name; this is where the name leads in this process. Only what a module registered
is ever called: nothing that lies in the store names code to be loaded. A saga whose name leads nowhere here waits for
a process that knows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import TypeVar

from txsaga.errors import ConfigError
from txsaga.errors.saga import CodeMissing
from txsaga.model.arguments import check_function, check_kind

Function = TypeVar("Function", bound=Callable[..., object])
OUTPUT, ID = "output", "step"
"""A function that has a parameter of such a name gets what the step returned, or the step's id."""


class Code:
    """Functions by name."""

    def __init__(self) -> None:
        self._functions: dict[str, Callable[..., object]] = {}
        self._names: dict[Callable[..., object], str] = {}
        self._unloaded: dict[str, str] = {}

    def register(self, name: str, function: Callable[..., object]) -> None:
        """Let a name lead to a function; to the same one each time."""
        check_kind(name, str, "the name of a function", "give a text that stays the same from release to release")
        check_function(function, "what is registered", "decorate a function")
        known = self._functions.get(name)
        if not name or (known is not None and _place(known) != _place(function)):
            raise ConfigError(f"{name!r} is registered already, or empty; choose another name")
        self._functions[name], self._names[function] = function, name

    def name_of(self, function: Callable[..., object]) -> str:
        """Return the name that leads to a function."""
        name = self._names.get(function)
        if name is None:
            raise ConfigError(
                f"{getattr(function, '__qualname__', function)!r} must be found by another process when this one is "
                'killed; register it with @txsaga.compensation("a-name") in a module that TXSAGA_SAGAS names'
            )
        return name

    def find(self, name: str) -> Callable[..., object]:
        """Return the function that a name leads to."""
        if name not in self._functions:
            raise CodeMissing(name, "".join(f"; module {m!r} can't be loaded: {w}" for m, w in self._unloaded.items()))
        return self._functions[name]

    def load(self, modules: Iterable[str]) -> None:
        """Import modules, which register what is theirs; one that fails is told of by whoever needs it."""
        for module in modules:
            try:
                import_module(module)
                self._unloaded.pop(module, None)
            except Exception as reason:  # noqa: BLE001  # whatever it is: other sagas go on
                self._unloaded[module] = f"{type(reason).__name__}: {reason}"

    @property
    def unloaded(self) -> Mapping[str, str]:
        """The modules that could not be loaded, and why."""
        return self._unloaded


CODE = Code()
"""What the modules of this process registered."""


def compensation(name: str) -> Callable[[Function], Function]:
    """Register a function under a name, so that any process with its module can run it: to undo a step, or forward."""

    def register(function: Function) -> Function:
        CODE.register(name, function)
        return function

    return register


def called(function: Callable[..., object], *first: object, input: Mapping[str, object], **special: object) -> object:
    """Call a function with its input, and with what else it has parameters for."""
    code = getattr(function, "__code__", None)
    names = () if code is None else code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return function(*first, **{**{name: special[name] for name in special if name in names}, **input})


def _place(function: Callable[..., object]) -> tuple[object, object]:
    return getattr(function, "__module__", None), getattr(function, "__qualname__", function)
