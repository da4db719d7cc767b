"""
What a flow must not ask for, and what to do instead: in its own shape, and of resources that can't do it.

Each kind of refusal has a remedy, which is shown to the user and in the reference of Airflow. A message names its
subject, usually the resource, first. Every check yields all problems it finds. Otherwise the resource itself would fail
in the middle of a run, after other work was done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from txsaga.flows.journal import reading
from txsaga.flows.step import Hold
from txsaga.provider.planning import modes
from txsaga.provider.planning.modes import (
    DECLARED,
    QUEUE_KINDS,
    Abilities,
    DeclaredResource,
    DeclaredStep,
    FlowDeclaration,
    PlacedWork,
    ResourceMode,
    Settles,
    StepMode,
)
from txsaga.resources.capabilities import Capabilities


class Refusal(Enum):
    """What is refused, with the remedy."""

    TWICE = ("one name for two things of the same kind", "give each a different name")
    UNKNOWN = ("a resource that the flow does not declare", "declare it, or correct the name")
    NO_COORDINATOR = ("coordination without a coordinator", "name one: the connection of the home database")
    COORDINATORS = ("more than one coordinator", "keep one")
    UNDECLARED = (
        "coordinated, auxiliary or held work on an unknown kind of resource",
        "use a known kind, or make the resource local: then it commits at the end of each step",
    )
    NO_TWO_PHASE = (
        "coordinated work on a resource without two-phase commit",
        "use a resource that supports it, or make this one an auxiliary lane",
    )
    NO_LANE = (
        "an auxiliary lane of a resource that can't have one",
        "use a database, or make the resource local: then it commits at the end of each step",
    )
    QUEUE_LANE = (
        "a lane of a queue, or its COMMIT or ROLLBACK",
        "this is a limit of the queue system: an uncoordinated message commits at once; use an output of the flow "
        "or a database",
    )
    NO_MIX = (
        "coordinated and uncoordinated work on one instance that can't mix them",
        "use two instances, one for each kind of work",
    )
    NOTHING_TO_SETTLE = (
        "a COMMIT or ROLLBACK of a lane without work of an earlier step",
        "let an earlier step work in the lane, or remove this one",
    )
    HOLD_PREPARED = ("prepared work on a resource without two-phase commit", "hold the work in the journal")
    HOLD_JOURNAL = ("a journal for a resource that is not a database", "hold the work prepared")
    JOURNAL_READS = (
        "a journalled statement that returns rows",
        "the statement runs only at the decision, after the step: hold the step prepared, or read in another step",
    )
    JOURNAL_BLIND = (
        "a function's work in a journal",
        "a journal takes only statements: use them, or hold the step prepared on a resource with two-phase commit",
    )
    CANNOT_WAIT = (
        "commit mode with a path below it, on a resource that commits at once",
        "remove the path, or use a database",
    )
    RETRIES = ("retries of an input that a rollback puts back", "remove them: its consumer group counts attempts")

    def __init__(self, asked: str, remedy: str) -> None:
        self.asked, self.remedy = asked, remedy


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason why a flow can't run as declared."""

    refusal: Refusal
    subject: str
    what: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.what}; {self.refusal.remedy}"


def problems(flow: FlowDeclaration, abilities: Abilities = DECLARED) -> list[Problem]:
    """Return all reasons why a flow can't run as declared, by the capabilities of its resources' kinds.

    It needs no connection. Whether a server can do what its kind can is checked by `probe`, before any write.
    """
    return list(dict.fromkeys(_problems(flow, abilities)))


def _problems(flow: FlowDeclaration, abilities: Abilities) -> Iterator[Problem]:
    for check_shape in (_input, _names, _references, _coordinators):
        yield from check_shape(flow)
    look = EnlistingCheck(flow=flow, abilities=abilities, works=modes.works(flow, abilities))
    for resource in flow.resources:
        for check in (_declared, _two_phase, _lane):
            yield from check(look, resource)
    yield from _steps(look)
    yield from _mixing_problems(look)


def _input(flow: FlowDeclaration) -> Iterator[Problem]:
    if flow.input.retries and flow.input.put_back:
        yield Problem(Refusal.RETRIES, flow.input.name, "the input has retries, and a rollback puts it back")


def _names(flow: FlowDeclaration) -> Iterator[Problem]:
    for kind, things in (
        ("resources", flow.resources),
        ("steps", flow.steps),
        ("outputs", flow.outputs),
        ("ballots", flow.ballots),
    ):
        for name, times in Counter(each.name for each in things).items():
            if times > 1:
                yield Problem(Refusal.TWICE, name, f"two {kind} of the flow have this name")


def _references(flow: FlowDeclaration) -> Iterator[Problem]:
    for step in flow.steps:
        if step.resource is not None and flow.resource_of(step) is None:
            yield Problem(Refusal.UNKNOWN, step.name, f"it uses resource {step.resource!r}, which is not declared")


def _coordinators(flow: FlowDeclaration) -> Iterator[Problem]:
    if not flow.coordinated:
        return
    named = dict.fromkeys(flow.coordinators)
    if not named:
        yield Problem(Refusal.NO_COORDINATOR, flow.name, "the flow is coordinated but names no coordinator")
    if len(named) > 1:
        yield Problem(Refusal.COORDINATORS, flow.name, f"it names {len(named)} coordinators ({', '.join(named)})")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnlistingCheck:
    """A flow, and where its work is settled."""

    flow: FlowDeclaration
    abilities: Abilities
    works: tuple[PlacedWork, ...]

    def of(self, resource: DeclaredResource, *where: Settles) -> list[PlacedWork]:
        """Return the work on a resource, settled in the given places or in any."""
        return [each for each in self.works if each.resource == resource.name and (not where or each.settles in where)]

    def can(self, resource: DeclaredResource) -> Capabilities:
        """Return the capabilities of a resource."""
        return modes.able(resource, self.abilities)

    def enlisted(self, resource: DeclaredResource) -> bool:
        """Return whether the resource has work in main that the decision's own commit does not do."""
        return any(not modes.home_effect(resource, each.hold) for each in self.of(resource, Settles.MAIN))


def _mixing_problems(look: EnlistingCheck) -> Iterator[Problem]:
    """Yield data sources with work in main and elsewhere that can't mix the two."""
    sources: dict[str, list[DeclaredResource]] = {}
    for resource in look.flow.resources:
        sources.setdefault(resource.source, []).append(resource)
    for source, resources in sources.items():
        if all(look.can(each).mixing and not each.no_mix for each in resources):
            continue
        works = [work for each in resources for work in look.of(each)]
        if len({work.settles is Settles.MAIN for work in works}) > 1:
            names = ", ".join(each.name for each in resources)
            yield Problem(Refusal.NO_MIX, source, f"it can't mix coordinated and uncoordinated work (by {names})")


def _declared(look: EnlistingCheck, resource: DeclaredResource) -> Iterator[Problem]:
    asked = look.enlisted(resource) or any(each.hold for each in look.of(resource)) or _wants_lane(look, resource)
    if asked and resource.kind not in look.abilities:
        known = ", ".join(look.abilities)
        yield Problem(Refusal.UNDECLARED, resource.name, f"kind {resource.kind!r} is not known (known: {known})")


def _two_phase(look: EnlistingCheck, resource: DeclaredResource) -> Iterator[Problem]:
    if resource.kind in look.abilities and not look.can(resource).two_phase and look.enlisted(resource):
        yield Problem(Refusal.NO_TWO_PHASE, resource.name, f"{resource.kind} has no two-phase commit")


def _lane(look: EnlistingCheck, resource: DeclaredResource) -> Iterator[Problem]:
    if resource.kind not in look.abilities or look.can(resource).aux or not _wants_lane(look, resource):
        return
    refusal = Refusal.QUEUE_LANE if resource.kind in QUEUE_KINDS else Refusal.NO_LANE
    if resource.mode is ResourceMode.LANE or look.of(resource, Settles.LANE):
        yield Problem(refusal, resource.name, f"{resource.kind} has no auxiliary transactions")
    for step in look.flow.steps:
        if step.resource == resource.name and step.settle:
            what = f"step {step.name!r} asks for the {step.settle.name} of its lane, but {resource.kind} has no lane"
            yield Problem(refusal, resource.name, what)


def _wants_lane(look: EnlistingCheck, resource: DeclaredResource) -> bool:
    settled = any(step.settle for step in look.flow.steps if step.resource == resource.name)
    return resource.mode is ResourceMode.LANE or settled or bool(look.of(resource, Settles.LANE))


def _steps(look: EnlistingCheck) -> Iterator[Problem]:
    settled = modes.settled_lanes(look.flow, look.works)
    for step in look.flow.steps:
        resource = look.flow.resource_of(step)
        if resource is None:
            continue
        works = [each for each in look.works if each.step == step.name]
        yield from _held(look, step, resource, works)
        if step.settle and look.can(resource).aux and step.name not in settled:
            what = f"step {step.name!r} settles its lane, which has no open work at that point"
            yield Problem(Refusal.NOTHING_TO_SETTLE, resource.name, what)
        if step.mode is StepMode.COMMIT and step.propagates and any(e.settles is Settles.AT_ONCE for e in works):
            what = f"step {step.name!r} commits at once, not when the path below it ({', '.join(step.propagates)}) ends"
            yield Problem(Refusal.CANNOT_WAIT, resource.name, what)


def _held(
    look: EnlistingCheck, step: DeclaredStep, resource: DeclaredResource, works: list[PlacedWork]
) -> Iterator[Problem]:
    holds = {each.hold for each in works}
    can, declared = look.can(resource), resource.kind in look.abilities
    if Hold.PREPARED in holds and declared and not can.two_phase:
        what = f"step {step.name!r} is held prepared, but {resource.kind} has no two-phase commit"
        yield Problem(Refusal.HOLD_PREPARED, resource.name, what)
    if Hold.JOURNAL not in holds:
        return
    if not (can.aux and can.joint_commit):
        if declared and (step.hold or resource.home):
            what = f"step {step.name!r} is journalled, but {resource.kind} can't run statements in one transaction"
            yield Problem(Refusal.HOLD_JOURNAL, resource.name, what)
        return
    for number, each in enumerate(works, 1):
        if each.hold is Hold.JOURNAL:
            yield from _journalled(step, resource, number, each.statement)


def _journalled(step: DeclaredStep, resource: DeclaredResource, number: int, text: str) -> Iterator[Problem]:
    if word := reading(text):
        what = f"statement {number} of step {step.name!r} is journalled and has a {word}"
        yield Problem(Refusal.JOURNAL_READS, resource.name, what)
    elif not text.strip():
        what = f"step {step.name!r} is journalled but has no statement"
        yield Problem(Refusal.JOURNAL_BLIND, resource.name, what)
