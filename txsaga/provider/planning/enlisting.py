"""
Check what a flow asks of its resources against what they can do.

Every check yields all problems it finds. Otherwise the resource itself would fail in the middle of a run, after other
work has been done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from txsaga.clusters.policies import PolicyName
from txsaga.flows.declaration import DeclaredResource, DeclaredStep, FlowDeclaration, Hold, ResourceMode, StepMode
from txsaga.flows.journal import reading
from txsaga.provider.planning.modes import QUEUE_KINDS, Settles
from txsaga.provider.planning.placing import Abilities, PlacedSends, PlacedWork, able, home_effect, units
from txsaga.provider.planning.refusals import Problem, Refusal, problem
from txsaga.resources.capabilities import Capabilities


@dataclass(frozen=True, slots=True, kw_only=True)
class EnlistingCheck:
    """A flow, and where its work is settled when one of its inputs receives something."""

    flow: FlowDeclaration
    abilities: Abilities
    works: tuple[PlacedWork, ...]
    sends: tuple[PlacedSends, ...]

    def of(self, resource: DeclaredResource, *where: Settles) -> list[PlacedWork]:
        """Return the work on a resource, settled in the given places or in any."""
        return [each for each in self.works if each.resource == resource.name and (not where or each.settles in where)]

    def can(self, resource: DeclaredResource) -> Capabilities:
        """Return the capabilities of a resource."""
        return able(resource, self.abilities)

    def enlisted(self, resource: DeclaredResource) -> bool:
        """Return whether the resource has work in main that the decision's own commit does not do."""
        return any(not home_effect(resource, each.hold) for each in self.of(resource, Settles.MAIN))


def enlisting_problems(look: EnlistingCheck) -> Iterator[Problem]:
    """Yield what the flow asks of its resources that they can't do."""
    for resource in look.flow.resources:
        for check in (_declared, _two_phase, _lane, _last):
            yield from check(look, resource)
    for check_all in (_lasts, _steps, _outputs):
        yield from check_all(look)


def mixing_problems(looks: Sequence[EnlistingCheck]) -> Iterator[Problem]:
    """Yield data sources with work in main and elsewhere, in one run or across runs, that can't mix the two."""
    first = looks[0]
    for source, resources in _sources(first.flow).items():
        if all(first.can(each).mixing and not each.no_mix for each in resources):
            continue
        works = [work for look in looks for each in resources for work in look.of(each)]
        if len({work.settles is Settles.MAIN for work in works}) > 1:
            names = ", ".join(each.name for each in resources)
            yield problem(Refusal.NO_MIX, source, f"it is used both ways (by {names}) and can't mix them")


def _declared(look: EnlistingCheck, resource: DeclaredResource) -> Iterator[Problem]:
    asked = look.enlisted(resource) or any(each.hold for each in look.of(resource)) or _wants_lane(look, resource)
    if asked and resource.kind not in look.abilities:
        known = ", ".join(look.abilities)
        yield problem(
            Refusal.UNDECLARED, resource.name, f"nothing is known about kind {resource.kind!r} (declared: {known})"
        )


def _two_phase(look: EnlistingCheck, resource: DeclaredResource) -> Iterator[Problem]:
    if resource.kind not in look.abilities or resource.last or look.can(resource).two_phase:
        return
    if look.enlisted(resource):
        yield problem(Refusal.NO_TWO_PHASE, resource.name, f"a {resource.kind} has no two-phase commit")


def _lane(look: EnlistingCheck, resource: DeclaredResource) -> Iterator[Problem]:
    if resource.kind not in look.abilities or look.can(resource).aux or not _wants_lane(look, resource):
        return
    refusal = Refusal.QUEUE_LANE if resource.kind in QUEUE_KINDS else Refusal.NO_LANE
    if resource.mode is ResourceMode.LANE or look.of(resource, Settles.LANE):
        yield problem(refusal, resource.name, f"a {resource.kind} has no auxiliary transactions")
    for step in look.flow.steps:
        if step.resource == resource.name and step.settle:
            what = f"step {step.name!r} asks for the {step.settle.name} of its lane, and a {resource.kind} has none"
            yield problem(refusal, resource.name, what)


def _wants_lane(look: EnlistingCheck, resource: DeclaredResource) -> bool:
    settled = any(step.settle for step in look.flow.steps if step.resource == resource.name)
    return resource.mode is ResourceMode.LANE or settled or bool(look.of(resource, Settles.LANE))


def _last(look: EnlistingCheck, resource: DeclaredResource) -> Iterator[Problem]:
    if not resource.last:
        return
    if resource.kind in look.abilities and not look.can(resource).last_resource:
        yield problem(Refusal.LAST_UNABLE, resource.name, f"a {resource.kind} can't be the last resource")
    if resource.home:
        what = "it lies in the home database, whose commit is the decision in any case"
        yield problem(Refusal.LAST_IDLE, resource.name, what)
    elif not look.flow.coordinated or resource.mode is not ResourceMode.MAIN:
        yield problem(Refusal.LAST_IDLE, resource.name, "it is the last resource and no coordinated one")
    if any(each.hold is Hold.PREPARED for each in look.of(resource, Settles.MAIN)):
        what = "it is the last resource and held prepared, so it votes like the others"
        yield problem(Refusal.LAST_IDLE, resource.name, what, "hold it in the journal, or leave `last` out")


def _sources(flow: FlowDeclaration) -> Mapping[str, list[DeclaredResource]]:
    sources: dict[str, list[DeclaredResource]] = {}
    for resource in flow.resources:
        sources.setdefault(resource.source, []).append(resource)
    return sources


def _lasts(look: EnlistingCheck) -> Iterator[Problem]:
    lasts = [each for each in look.flow.resources if each.last and look.enlisted(each)]
    if len(lasts) > 1:
        names = ", ".join(each.name for each in lasts)
        yield problem(Refusal.TWO_LAST, lasts[-1].name, f"{len(lasts)} resources would be the last ({names})")
    effects = dict.fromkeys(
        resource.name
        for resource in look.flow.resources
        for each in look.of(resource, Settles.MAIN)
        if home_effect(resource, each.hold)
    )
    for each in lasts if effects else ():
        what = f"it is the last resource beside work in the home database ({', '.join(effects)})"
        yield problem(Refusal.LAST_BESIDE_EFFECTS, each.name, what)


def _steps(look: EnlistingCheck) -> Iterator[Problem]:
    settled = {unit.settled_by for unit in units(look.flow, look.works)}
    for step in look.flow.steps:
        resource = look.flow.resource_of(step)
        if resource is None:
            continue
        works = [each for each in look.works if each.step == step.name]
        yield from _held(look, step, resource, works)
        if step.settle and look.can(resource).aux and step.name not in settled:
            what = f"step {step.name!r} settles its lane, which has no open work then"
            yield problem(Refusal.NOTHING_TO_SETTLE, resource.name, what)
        if step.mode is StepMode.COMMIT and step.propagates and any(e.settles is Settles.AT_ONCE for e in works):
            what = f"step {step.name!r} commits at once, not when the path below it ({', '.join(step.propagates)}) ends"
            yield problem(Refusal.CANNOT_WAIT, resource.name, what)


def _held(
    look: EnlistingCheck, step: DeclaredStep, resource: DeclaredResource, works: list[PlacedWork]
) -> Iterator[Problem]:
    holds = {each.hold for each in works}
    can, declared = look.can(resource), resource.kind in look.abilities
    if Hold.PREPARED in holds and declared and not can.two_phase:
        what = f"step {step.name!r} wants to be held prepared, and a {resource.kind} has no two-phase commit"
        yield problem(Refusal.HOLD_PREPARED, resource.name, what)
    if Hold.JOURNAL not in holds:
        return
    if not (can.aux and can.joint_commit):
        if declared and (step.hold or resource.home):
            what = f"step {step.name!r} would be journalled, and a {resource.kind} can't do statements together"
            yield problem(Refusal.HOLD_JOURNAL, resource.name, what)
        return
    for number, each in enumerate(works, 1):
        if each.hold is Hold.JOURNAL:
            yield from _journalled(step, resource, number, each.statement.text)


def _journalled(step: DeclaredStep, resource: DeclaredResource, number: int, text: str) -> Iterator[Problem]:
    word = reading(text)
    if word:
        what = f"statement {number} of step {step.name!r} is journalled and has a {word}"
        yield problem(Refusal.JOURNAL_READS, resource.name, what)
    elif not text.strip():
        what = f"step {step.name!r} is journalled and gives no statement"
        yield problem(Refusal.JOURNAL_BLIND, resource.name, what)


def _outputs(look: EnlistingCheck) -> Iterator[Problem]:
    outputs = {output.name: output for output in look.flow.outputs}
    for sent in look.sends:
        cluster = look.flow.cluster_of(outputs[sent.output])
        if cluster is None or sent.settles is not Settles.MAIN:
            continue
        what = f"output {sent.output!r} to {sent.topic!r} takes part in the transaction"
        if not look.flow.coordinated:
            yield problem(Refusal.OUTPUT_ALONE, cluster.name, f"{what}, and nothing coordinates the cluster")
        if cluster.policy == PolicyName.BEST_EFFORT:
            yield problem(Refusal.CLUSTER_BEST_EFFORT, cluster.name, f"{what}, and best effort takes part in none")
        elif not cluster.xa:
            yield problem(Refusal.CLUSTER_NOT_XA, cluster.name, f"{what}, and the cluster is not used under XA")
