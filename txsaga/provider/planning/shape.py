"""
Check a flow by itself, whatever its resources can do: names, paths, inputs, coordinators, ballots.

Yields all problems; knows neither where work is settled nor what resources can do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from txsaga.clusters.config import faults
from txsaga.flows.declaration import BallotRule, DeclaredBallot, DeclaredStep, FlowDeclaration
from txsaga.provider.planning.modes import PUT_BACK, QUEUE_KINDS
from txsaga.provider.planning.refusals import Problem, Refusal, problem


def shape_problems(flow: FlowDeclaration) -> Iterator[Problem]:
    """Yield the problems in the shape of a flow."""
    for check in (_inputs, _names, _references, _loops, _coordinators, _ballots, _clusters):
        yield from check(flow)


def called(step: DeclaredStep) -> tuple[str, ...]:
    """Return the steps that a step can lead to."""
    caught = step.catch.to if step.catch else None
    return (*step.propagates, *filter(None, (step.failure, caught)))


def _inputs(flow: FlowDeclaration) -> Iterator[Problem]:
    if not flow.inputs:
        yield problem(Refusal.NO_INPUT, flow.name, "the flow has no input")
    for each in flow.inputs:
        if type(each.retries) is not int or each.retries < 0:
            yield problem(Refusal.RETRIES, each.name, f"retries is {each.retries!r}", "give a number, 0 or more")
        elif each.retries and PUT_BACK[each.kind]:
            yield problem(Refusal.RETRIES, each.name, f"the input has retries, and a rollback puts a {each.kind} back")


def _names(flow: FlowDeclaration) -> Iterator[Problem]:
    for kind, things in (
        ("inputs", flow.inputs),
        ("resources", flow.resources),
        ("steps", flow.steps),
        ("outputs", flow.outputs),
        ("ballots", flow.ballots),
        ("clusters", flow.clusters),
    ):
        for name in _twice(each.name for each in things):
            yield problem(Refusal.TWICE, name, f"two {kind} of the flow have this name")


def _twice(names: Iterable[str]) -> list[str]:
    return [name for name, times in Counter(names).items() if times > 1]


def _references(flow: FlowDeclaration) -> Iterator[Problem]:
    steps, resources = {step.name for step in flow.steps}, {each.name for each in flow.resources}
    clusters = {each.name for each in flow.clusters}
    for step in flow.steps:
        for name in dict.fromkeys(called(step)):
            if name not in steps:
                yield problem(Refusal.UNKNOWN, step.name, f"it leads to step {name!r}, which there is not")
        if step.resource is None and (step.statements or step.settle):
            yield problem(Refusal.NO_RESOURCE, step.name, "it has work and names no resource")
        elif step.resource is not None and step.resource not in resources:
            yield problem(Refusal.UNKNOWN, step.name, f"it works on resource {step.resource!r}, which there is not")
    for output in flow.outputs:
        if output.cluster is not None and output.cluster not in clusters:
            yield problem(Refusal.UNKNOWN, output.name, f"it sends to cluster {output.cluster!r}, which there is not")


def _loops(flow: FlowDeclaration) -> Iterator[Problem]:
    leads = {step.name: called(step) for step in flow.steps}
    done = set[str]()
    for first in leads:
        path: list[str] = []
        yield from _walk(first, leads, path, done)


def _walk(name: str, leads: dict[str, tuple[str, ...]], path: list[str], done: set[str]) -> Iterator[Problem]:
    if name in path:
        circle = [*path[path.index(name) :], name]
        yield problem(Refusal.LOOP, name, f"its path comes back to it ({' → '.join(circle)})")
    elif name in leads and name not in done:
        path.append(name)
        for each in dict.fromkeys(leads[name]):
            yield from _walk(each, leads, path, done)
        path.pop()
        done.add(name)


def _coordinators(flow: FlowDeclaration) -> Iterator[Problem]:
    if not flow.coordinated:
        return
    named = dict.fromkeys(flow.coordinators)
    brokers = {each.name for each in flow.resources if each.kind in QUEUE_KINDS} | {each.name for each in flow.clusters}
    if not named:
        yield problem(Refusal.NO_COORDINATOR, flow.name, "the flow is coordinated and names no coordinator")
    if len(named) > 1:
        yield problem(Refusal.COORDINATORS, flow.name, f"it names {len(named)} coordinators ({', '.join(named)})")
    for name in named:
        if name in brokers:
            yield problem(Refusal.BROKER_COORDINATES, name, "it is a broker and can't coordinate the flow")


def _ballots(flow: FlowDeclaration) -> Iterator[Problem]:
    for ballot in flow.ballots:
        what = _uncountable(ballot)
        if what:
            yield problem(Refusal.BALLOT, ballot.name, what)


def _uncountable(ballot: DeclaredBallot) -> str:
    voters = len(ballot.voters)
    if not voters:
        return "the ballot has no voters"
    if _twice(ballot.voters):
        return f"{', '.join(_twice(ballot.voters))} would vote twice"
    if ballot.rule is not BallotRule.QUORUM:
        return f"it has a quorum and asks for {ballot.rule}" if ballot.quorum is not None else ""
    if type(ballot.quorum) is not int or not 1 <= ballot.quorum <= voters:
        return f"its quorum is {ballot.quorum!r} of {voters} voters"
    return ""


def _clusters(flow: FlowDeclaration) -> Iterator[Problem]:
    for cluster in flow.clusters:
        for fault in faults(cluster):
            yield problem(Refusal.CLUSTER, fault.subject, fault.what, fault.remedy)
