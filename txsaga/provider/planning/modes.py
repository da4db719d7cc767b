"""
A message flow as declared, and where each piece of its work is settled: the mode tables, and their use.

A declaration is plain data, in the order of declaration. Its defaults are those of local one-phase work: coordination
must be requested. The key of a table is what was declared; None in a key matches any value. Exactly one entry matches
each declaration. How the work is divided into steps makes no difference: each statement is placed by itself. Whether a
resource is able to do it is checked in `refusals`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple, TypeAlias, TypeVar

from txsaga.core.decision import Decision
from txsaga.flows.ballot import Ballot
from txsaga.flows.step import Hold
from txsaga.resources.capabilities import CAPABILITIES, Capabilities, ResourceKind


class TransactionMode(StrEnum):
    """Whether an input or output is transactional."""

    AUTOMATIC = "automatic"
    YES = "yes"
    NO = "no"


class Persistence(StrEnum):
    """Whether sent messages are persistent."""

    AUTOMATIC = "automatic"  # as the input was
    YES = "yes"
    NO = "no"
    AS_QUEUE = "as-queue"  # as configured for its topic


class ResourceMode(StrEnum):
    """How a flow uses a resource."""

    MAIN = "main"  # in the coordinated transaction, if the flow has one
    LANE = "lane"  # auxiliary work, committed or rolled back by itself
    LOCAL = "local"  # it takes no part


class StepMode(StrEnum):
    """When the work of a step is settled."""

    AUTOMATIC = "automatic"  # with the flow
    COMMIT = "commit"  # when the step and the path below it end


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """What starts the flow: one transaction for each item received."""

    name: str
    put_back: bool = True  # a rollback restores it; otherwise it settles at its own end and has retries instead
    persistent: bool = True
    transaction: TransactionMode = TransactionMode.AUTOMATIC
    retries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredResource:
    """A resource that steps work on."""

    name: str
    kind: str
    mode: ResourceMode = ResourceMode.MAIN
    instance: str | None = None  # its data source, if two names share one
    no_mix: bool = False  # this instance can't mix coordinated and uncoordinated work
    home: bool = False  # it is in the home database: journalled work is part of the decision's own commit

    @property
    def source(self) -> str:
        """Its data source, which has one lane."""
        return self.instance or self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredStep:
    """One step: work on a resource, or settling its lane, or a function alone."""

    name: str
    resource: str | None = None
    statements: tuple[str, ...] = ()
    mode: StepMode = StepMode.AUTOMATIC
    hold: Hold | None = None  # None: what its resource supports
    propagates: tuple[str, ...] = ()  # the steps that it calls and waits for
    settle: Decision | None = None  # for the open unit of its resource's lane, after its own statements

    @property
    def work(self) -> tuple[str, ...]:
        """Its statements on its resource; an empty one is the work of a function."""
        if self.resource is None or (self.settle and not self.statements):
            return ()
        return self.statements or ("",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A destination of the flow's messages."""

    name: str
    topic: str
    transaction: TransactionMode = TransactionMode.AUTOMATIC
    persistence: Persistence = Persistence.AUTOMATIC
    topic_persistent: bool = True  # as configured for the topic


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowDeclaration:
    """A message flow."""

    name: str
    input: Input
    resources: tuple[DeclaredResource, ...] = ()
    steps: tuple[DeclaredStep, ...] = ()
    outputs: tuple[Output, ...] = ()
    ballots: tuple[Ballot, ...] = ()
    coordinated: bool = False  # foreign resources use two-phase commit; otherwise each commits by itself
    coordinators: tuple[str, ...] = ()

    def resource_of(self, step: DeclaredStep) -> DeclaredResource | None:
        """Return the declared resource of a step, if there is one."""
        return next((each for each in self.resources if each.name == step.resource), None)


Key = TypeVar("Key", bound=tuple[object, ...])
Entry = TypeVar("Entry")


class Settles(StrEnum):
    """What settles a piece of work."""

    MAIN = "with the flow"  # by the flow's one decision
    LANE = "with its lane"  # by the lane's own commit or rollback, otherwise by the flow's decision
    OWN_END = "at its own end"  # when its step ends; in commit mode, when the path below the step ends
    AT_ONCE = "at once"  # by itself; it cannot be undone


class Received(NamedTuple):
    """What the mode of an input means."""

    settles: Settles  # what settles the input itself
    inherited: bool  # whether steps and outputs in automatic mode take part


INPUTS: Mapping[tuple[TransactionMode, bool | None, bool | None], Received] = {
    (TransactionMode.AUTOMATIC, None, True): Received(Settles.MAIN, True),
    (TransactionMode.AUTOMATIC, None, False): Received(Settles.AT_ONCE, False),
    (TransactionMode.YES, True, None): Received(Settles.MAIN, True),
    (TransactionMode.YES, False, None): Received(Settles.MAIN, False),
    (TransactionMode.NO, None, None): Received(Settles.AT_ONCE, False),
}
"""Key: the input's mode, whether the flow is coordinated, whether the received data is persistent."""

STEPS: Mapping[tuple[ResourceMode, StepMode | None, bool | None], Settles] = {
    (ResourceMode.MAIN, StepMode.AUTOMATIC, True): Settles.MAIN,
    (ResourceMode.MAIN, StepMode.AUTOMATIC, False): Settles.OWN_END,
    (ResourceMode.MAIN, StepMode.COMMIT, None): Settles.OWN_END,
    (ResourceMode.LANE, StepMode.AUTOMATIC, None): Settles.LANE,
    (ResourceMode.LANE, StepMode.COMMIT, None): Settles.OWN_END,
    (ResourceMode.LOCAL, None, None): Settles.OWN_END,
}
"""Key: resource mode, step mode, whether the resource takes part."""

QUEUES: Mapping[Settles, Settles] = {
    Settles.MAIN: Settles.MAIN,
    Settles.LANE: Settles.AT_ONCE,
    Settles.OWN_END: Settles.AT_ONCE,
}
"""How a queue settles the same work: outside main, everything on a queue commits by itself."""

QUEUE_KINDS = frozenset({ResourceKind.QUEUE, ResourceKind.BROKER})

OUTPUTS: Mapping[tuple[TransactionMode, bool | None], Settles] = {
    (TransactionMode.AUTOMATIC, True): Settles.MAIN,
    (TransactionMode.AUTOMATIC, False): Settles.AT_ONCE,
    (TransactionMode.YES, None): Settles.MAIN,
    (TransactionMode.NO, None): Settles.AT_ONCE,
}
"""Key: the output's mode, whether outputs in automatic mode take part."""

PERSISTENCE: Mapping[tuple[Persistence, bool | None, bool | None], bool] = {
    (Persistence.AUTOMATIC, True, None): True,
    (Persistence.AUTOMATIC, False, None): False,
    (Persistence.YES, None, None): True,
    (Persistence.NO, None, None): False,
    (Persistence.AS_QUEUE, None, True): True,
    (Persistence.AS_QUEUE, None, False): False,
}
"""Key: the output's persistence, whether the input was persistent, whether the topic is persistent."""


def fitting(table: Mapping[Key, Entry], declared: tuple[object, ...]) -> Entry:
    """Return the entry of a table that matches what was declared."""
    (entry,) = (entry for key, entry in table.items() if _fits(key, declared))
    return entry


def _fits(key: tuple[object, ...], declared: tuple[object, ...]) -> bool:
    return all(wanted is None or wanted == given for wanted, given in zip(key, declared, strict=True))


Abilities: TypeAlias = Mapping[str, Capabilities]
DECLARED: Abilities = MappingProxyType({kind.value: each for kind, each in CAPABILITIES.items()})
"""The declared capabilities of each kind."""
NOTHING = Capabilities(kind=ResourceKind.CALLABLE)
"""The capabilities assumed for an undeclared kind: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedWork:
    """One piece of work and where it is settled."""

    step: str
    resource: str
    statement: str
    settles: Settles
    lane: str | None = None
    hold: Hold | None = None  # None: nothing is held


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedSends:
    """One output and where it is settled."""

    output: str
    settles: Settles
    persistent: bool


def received(flow: FlowDeclaration) -> Received:
    """Return what the mode of its input means in this flow."""
    found = fitting(INPUTS, (flow.input.transaction, flow.coordinated, flow.input.persistent))
    if found.settles is Settles.MAIN and not flow.input.put_back:
        return found._replace(settles=Settles.OWN_END)
    return found


def works(flow: FlowDeclaration, abilities: Abilities) -> tuple[PlacedWork, ...]:
    """Place the work of every step whose resource is declared."""
    inherited = received(flow).inherited
    return tuple(placed for step in flow.steps for placed in _placed(flow, step, inherited, abilities))


def settled_lanes(flow: FlowDeclaration, placed: tuple[PlacedWork, ...]) -> dict[str, tuple[str, ...]]:
    """Return, for each step that settles a lane with open work, the steps whose work that is."""
    found: dict[str, tuple[str, ...]] = {}
    working: dict[str, list[str]] = {}
    for step in flow.steps:
        for lane in dict.fromkeys(each.lane for each in placed if each.step == step.name and each.lane):
            working.setdefault(lane, []).append(step.name)
        resource = flow.resource_of(step)
        if step.settle and resource is not None and resource.source in working:
            found[step.name] = tuple(working.pop(resource.source))
    return found


def able(resource: DeclaredResource, abilities: Abilities) -> Capabilities:
    """Return the capabilities of a resource; none are assumed for an undeclared kind."""
    return abilities.get(resource.kind, NOTHING)


def home_effect(resource: DeclaredResource, hold: Hold | None) -> bool:
    """Return whether work is done by the decision's own commit in the home database."""
    return resource.home and hold is Hold.JOURNAL


def hold_of(step: DeclaredStep, resource: DeclaredResource, abilities: Abilities) -> Hold:
    """Return how a step holds its work: as declared, otherwise as its resource can."""
    if step.hold:
        return step.hold
    journal = resource.home or not able(resource, abilities).two_phase
    return Hold.JOURNAL if journal else Hold.PREPARED


def _placed(flow: FlowDeclaration, step: DeclaredStep, inherited: bool, abilities: Abilities) -> Iterator[PlacedWork]:
    resource = flow.resource_of(step)
    if resource is None:
        return
    hold = hold_of(step, resource, abilities)
    joins = inherited and (flow.coordinated or home_effect(resource, hold))
    for statement in step.work:
        settles = fitting(STEPS, (resource.mode, step.mode, joins))
        if resource.kind in QUEUE_KINDS:
            settles = QUEUES[settles]
        below = settles is Settles.OWN_END and step.mode is StepMode.COMMIT and bool(step.propagates)
        yield PlacedWork(
            step=step.name,
            resource=resource.name,
            statement=statement,
            settles=settles,
            lane=resource.source if settles is Settles.LANE else None,
            hold=hold if below or settles in (Settles.MAIN, Settles.LANE) else None,
        )


def sends(flow: FlowDeclaration) -> tuple[PlacedSends, ...]:
    """Place every output."""
    return tuple(
        PlacedSends(
            output=output.name,
            settles=fitting(OUTPUTS, (output.transaction, received(flow).inherited)),
            persistent=fitting(PERSISTENCE, (output.persistence, flow.input.persistent, output.topic_persistent)),
        )
        for output in flow.outputs
    )
