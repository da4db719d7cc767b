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


def step(name: str, on: str | None = None, *statements: str, **said: object) -> DeclaredStep:
    return replace(DeclaredStep(name=name, resource=on, statements=statements), **said)  # type: ignore[arg-type]


def works(name: str, on: str, **said: object) -> DeclaredStep:
    """Make a step with one statement."""
    return step(name, on, "UPDATE account SET x = 1", **said)


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
        input=next((part for part in parts if isinstance(part, Input)), INPUT),
        resources=of(DeclaredResource),  # type: ignore[arg-type]
        steps=of(DeclaredStep),  # type: ignore[arg-type]
        outputs=of(Output),  # type: ignore[arg-type]
        coordinated=coordinated,
        coordinators=("home",),
    )
    return replace(made, **said)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Placed:
    """Where the work of a flow is settled."""

    flow: FlowDeclaration

    @property
    def received(self) -> modes.Received:
        return modes.received(self.flow)

    @property
    def works(self) -> tuple[modes.PlacedWork, ...]:
        return modes.works(self.flow, modes.DECLARED)

    @property
    def outputs(self) -> tuple[modes.PlacedSends, ...]:
        return modes.sends(self.flow)

    @property
    def settled_lanes(self) -> dict[str, tuple[str, ...]]:
        return modes.settled_lanes(self.flow, self.works)


def run(of: FlowDeclaration) -> Placed:
    """Place the work of a flow without problems."""
    assert not refusals.problems(of)
    return Placed(of)


def problems(of: FlowDeclaration) -> list[tuple[Refusal, str]]:
    """Return what is refused of a flow, and of what."""
    return [(each.refusal, each.subject) for each in refusals.problems(of)]


def places(of: FlowDeclaration) -> list[str]:
    """Return where each piece of work settles, in order."""
    return [each.settles.value for each in run(of).works]
