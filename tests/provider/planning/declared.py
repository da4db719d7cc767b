"""Flows for tests: a coordinated one that can be kept, and the parts to make others."""

from __future__ import annotations

from dataclasses import dataclass, replace

from txsaga.core.decision import Decision
from txsaga.provider.planning import modes, refusals
from txsaga.provider.planning.modes import (
    DeclaredResource,
    DeclaredStep,
    FlowDeclaration,
    Input,
    Output,
    ResourceMode,
    Statement,
)
from txsaga.provider.planning.refusals import Refusal

INPUT = Input(name="transfers")


def resource(
    name: str, kind: str = "postgresql", mode: ResourceMode = ResourceMode.MAIN, **said: object
) -> DeclaredResource:
    return replace(DeclaredResource(name=name, kind=kind, mode=mode), **said)  # type: ignore[arg-type]


def lane(name: str, kind: str = "postgresql", **said: object) -> DeclaredResource:
    return resource(name, kind, ResourceMode.LANE, **said)


def local(name: str, kind: str = "postgresql", **said: object) -> DeclaredResource:
    return resource(name, kind, ResourceMode.LOCAL, **said)


def sql(*texts: str, uncoordinated: bool = False) -> tuple[Statement, ...]:
    return tuple(Statement(text=text, uncoordinated=uncoordinated) for text in texts or ("UPDATE account SET x = 1",))


def step(name: str, on: str | None = None, *statements: Statement, **said: object) -> DeclaredStep:
    return replace(DeclaredStep(name=name, resource=on, statements=statements), **said)  # type: ignore[arg-type]


def works(name: str, on: str, **said: object) -> DeclaredStep:
    """Make a step with one statement."""
    return step(name, on, *sql(), **said)


def marked(name: str, on: str, **said: object) -> DeclaredStep:
    """Make a step with one uncoordinated statement."""
    return step(name, on, *sql(uncoordinated=True), **said)


def settles(name: str, on: str, decision: Decision = Decision.COMMIT) -> DeclaredStep:
    return step(name, on, settle=decision)


def flow(
    *parts: DeclaredResource | DeclaredStep | Input | Output, coordinated: bool = True, **said: object
) -> FlowDeclaration:
    """Make a flow of its parts, coordinated by `home`, started by one persistent message unless they say otherwise."""

    def of(kind: type) -> tuple[object, ...]:
        return tuple(part for part in parts if isinstance(part, kind))

    made = FlowDeclaration(
        name="transfer",
        inputs=of(Input) or (INPUT,),  # type: ignore[arg-type]
        resources=of(DeclaredResource),  # type: ignore[arg-type]
        steps=of(DeclaredStep),  # type: ignore[arg-type]
        outputs=of(Output),  # type: ignore[arg-type]
        coordinated=coordinated,
        coordinators=("home",),
    )
    return replace(made, **said)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Placed:
    """Where the work of a flow is settled when an input receives something."""

    flow: FlowDeclaration
    input: Input

    @property
    def received(self) -> modes.Received:
        return modes.received(self.flow, self.input)

    @property
    def works(self) -> tuple[modes.PlacedWork, ...]:
        return modes.works(self.flow, self.input, modes.DECLARED)

    @property
    def outputs(self) -> tuple[modes.PlacedSends, ...]:
        return modes.sends(self.flow, self.input)

    @property
    def units(self) -> tuple[modes.PlacedUnit, ...]:
        return modes.units(self.flow, self.works)


def run(of: FlowDeclaration) -> Placed:
    """Place the work of a flow without problems, for its first input."""
    assert not refusals.problems(of)
    return Placed(of, of.inputs[0])


def problems(of: FlowDeclaration) -> list[tuple[Refusal, str]]:
    """Return what is refused of a flow, and of what."""
    return [(each.refusal, each.subject) for each in refusals.problems(of)]


def places(of: FlowDeclaration) -> list[str]:
    """Return where each piece of work settles, in order."""
    return [each.settles.value for each in run(of).works]
