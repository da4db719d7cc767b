"""
What a step or its compensation does, described so that another process can do it.

An action holds the name of a function, a statement, an address or a topic: no code and no secrets. Only functions that
a module registered under a name are ever called: nothing in the store names code to be loaded. A saga with a name that
is unknown here waits for a process that knows it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from datetime import timedelta
from importlib import import_module
from typing import Any, Never, Self, TypedDict, TypeVar

from txsaga.core.arguments import check_function, check_kind, check_seconds, check_text
from txsaga.core.stored_json import as_json
from txsaga.errors import CodeMissing, ConfigError
from txsaga.flows.requests import Start
from txsaga.flows.step import StepKind

RETRIES = 5
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 60.0
"""Seconds before the second try, and the longest pause between two."""


class StepTimes(TypedDict, total=False):
    """Retries, the seconds that a try may take, and the seconds before the second try."""

    retries: int
    timeout: float | None
    pause: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Work for any process that knows what it names."""

    kind: StepKind
    what: str
    resource: str | None = None
    input: Mapping[str, object] | None = None  # None: the input of the step it undoes
    retries: int | None = RETRIES  # None: retry until it is done
    timeout: float | None = None
    pause: float = FIRST_PAUSE
    options: Mapping[str, object] = field(default_factory=dict)  # of its kind: a method, a message's key

    def written(self) -> str:
        """Return it as the store keeps it."""
        return as_json(asdict(self), f"what is to be done by {self.what!r}")

    @classmethod
    def read(cls, text: str) -> Self:
        """Read what `written` returned."""
        found = json.loads(text)
        return cls(**{**found, "kind": StepKind(found["kind"])})

    def pause_before(self, attempt: int, jitter: float) -> float:
        """Return the seconds to wait before another try, doubled each time."""
        return min(self.pause * 2.0 ** min(attempt - 1, 60), LONGEST_PAUSE) * jitter


@dataclass(frozen=True, slots=True)
class Http:
    """A call to a service: the input as JSON, with the step's id as `Idempotency-Key`.

    2xx means done; 4xx, except 408, 425 and 429, is a definite no; anything else leaves it unknown. Headers are kept in
    the store: put no secrets there.
    """

    url: str
    _: KW_ONLY
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Send:
    """A message that is published at once, with the step's id in the header `txsaga-step`.

    Without a body it contains the input as JSON.
    """

    topic: str
    body: str | None = None
    _: KW_ONLY
    key: str | None = None
    tag: str | None = None


@dataclass(frozen=True, slots=True)
class Undo:
    """A compensation with options that differ from its step's: resource, input, retries and times."""

    do: object
    _: KW_ONLY
    on: str | None = None
    input: Mapping[str, object] | None = None
    retries: int = RETRIES
    timeout: float | None = None
    pause: float = FIRST_PAUSE


Function = TypeVar("Function", bound=Callable[..., object])
OUTPUT, ID = "output", "step"
"""A function with a parameter of such a name gets the step's result, or the step's id."""


class RegisteredFunctions:
    """Functions by name."""

    def __init__(self) -> None:
        self._functions: dict[str, Callable[..., object]] = {}
        self._names: dict[Callable[..., object], str] = {}
        self.unloaded: dict[str, str] = {}  # modules that could not be loaded, and why

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
        if (name := self._names.get(function)) is None:
            raise ConfigError(
                f"other processes must find {getattr(function, '__qualname__', function)!r} if this one is "
                "killed; register it with @txsaga.compensation('a-name') in a module that TXSAGA_SAGAS names"
            )
        return name

    def find(self, name: str) -> Callable[..., object]:
        """Return the function registered under a name."""
        if name not in self._functions:
            raise CodeMissing(name, "".join(f"; module {m!r} can't be loaded: {w}" for m, w in self.unloaded.items()))
        return self._functions[name]

    def load(self, modules: Iterable[str]) -> None:
        """Import modules, which register functions; a failure is reported when one is needed."""
        for module in modules:
            try:
                import_module(module)
                self.unloaded.pop(module, None)
            except Exception as reason:  # noqa: BLE001  # other sagas go on
                self.unloaded[module] = f"{type(reason).__name__}: {reason}"


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
                raise ConfigError("a statement runs in a resource; pass on=… to choose it")
            return StepKind.SQL
        case Http() | Send():
            if on is not None:
                raise ConfigError(f"{type(do).__name__} does not work in a resource; leave on= out")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedStep:
    """A step as the user requests it."""

    name: str
    action: Action  # of the requesting process: a function needs no registered name
    undo: Action | None
    input: Mapping[str, object]
    function: Callable[..., object] | None
    expires: timedelta | None

    def start(self, number: int) -> Start:
        """Return what is written before the step runs."""
        kept = as_json(dict(self.input), f"the input of step {self.name!r}")
        undo = None if self.undo is None else self.undo.written()
        return Start(number, self.name, self.action.kind, self.action.resource, kept, undo, expires=self.expires)

    def later(self, retries: int | None, output: object) -> Action:
        """Return what any process does after the decision; `output` is what the try that it confirms returned."""
        what = self.action.what if self.function is None else CODE.name_of(self.function)
        options = self.action.options if output is None else {**self.action.options, OUTPUT: output}
        return replace(self.action, what=what, retries=retries, options=options)

    def told(self, output: object) -> str | None:
        """Return its result as JSON; for a statement, the number of rows it changed."""
        if output is None or (self.action.kind is StepKind.SQL and not isinstance(output, int)):
            return None
        return as_json(output, f"what step {self.name!r} returned")


INPUT = "give a mapping of names to JSON values"
HELD = {
    **dict.fromkeys(
        ("hold", "on", "journal"),
        "keeps work from others until the decision, and each step here commits when it ends; use a flow: "
        "flow.step(…) holds work, and flow.call(…, compensate=…) commits",
    ),
    "lane": "lets work commit before the rest, and each step here commits when it ends; use a step without "
    "compensate=, or a flow with lanes=[…]",
}
"""What only a block with a vote offers: why, and what to take."""
COMMITTED = dict.fromkeys(
    ("step", "call", "parallel", "reserve", "no_return"),
    "is for work that commits at once and has a compensation, but here nothing is visible before the decision; use a "
    "flow: flow.call(…, compensate=…) commits, and flow.step(…) holds work",
)
"""What only a block with compensations offers: why, and what to take."""
OUTLIVES = {
    **dict.fromkeys(("on", "journal"), "ends with its process, and this work outlives it; take flow.step(…, on=…)"),
    "parallel": "is for threads of one process, and these steps may be in several; join the flow in each of them",
    **dict.fromkeys(
        ("reserve", "no_return"), "is kept by one process until it decides, and any may end this work; take a saga"
    ),
}
"""What only a block of one process offers: why, and what to take."""


def elsewhere(why: Mapping[str, str]) -> Callable[[object, str], Never]:
    """Return the `__getattr__` of a block, which tells why it does not have an attribute."""

    def refuse(block: object, name: str) -> Never:
        told = f"{name}() {why[name]}" if name in why else f"{type(block).__name__!r} object has no attribute {name!r}"
        raise AttributeError(told, name=name, obj=block)

    return refuse


class StepOptions(StepTimes, total=False):
    """The options of a step."""

    compensate: Doing | Undo | None
    on: str | None
    name: str | None
    input: Mapping[str, object] | None


def asked(
    do: Doing,
    *,
    compensate: Doing | Undo | None = None,
    on: str | None = None,
    name: str | None = None,
    input: Mapping[str, object] | None = None,
    retries: int = 0,
    timeout: float | None = None,
    pause: float = FIRST_PAUSE,
    expires: timedelta | None = None,
    **others: object,
) -> RequestedStep:
    """Check the options of a step."""
    for option in others:
        raise ConfigError(f"{option}= {HELD[option]}") if option in HELD else TypeError(f"a step takes no {option}=")
    if on is not None:
        check_text(on, "the resource of a step", "give the name of a registered one")
    check_times(timeout, pause)
    more = {"retries": checked_retries(retries), "timeout": timeout, "pause": pause}
    action = action_of(do, on, registered=False, **more)
    if input is not None:
        check_kind(input, Mapping, "the input of a step", INPUT)
        for key in input:
            check_kind(key, str, "a name in the input of a step", INPUT)
    if name not in (None, ""):
        check_text(name, "the name of a step", "give a text")
    return RequestedStep(
        name=name or name_of(do),
        action=action,
        undo=undoing(compensate, on),
        input=input or {},
        function=do if callable(do) else None,
        expires=expires,
    )
