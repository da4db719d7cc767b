"""
The plan of a flow: where each piece of work is settled, who votes, in which order; or why the flow can't run.

`plan` is a pure function of the flow and of the capabilities of its resources' kinds, so it needs no connection and
runs when a flow is loaded. It returns a plan or all problems, never only the first. Whether a server can do what its
kind can is checked by `probe`, before any write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from txsaga.errors import ConfigError, FlowRefused
from txsaga.flows.declaration import BallotRule, FlowDeclaration, Hold, Input
from txsaga.provider.planning import modes
from txsaga.provider.planning.modes import (
    DECLARED,
    Abilities,
    PlacedSends,
    PlacedUnit,
    PlacedWork,
    Settles,
    home_effect,
)
from txsaga.provider.planning.refusals import Problem, problems


class FlowPhase(IntEnum):
    """What happens in which order once an input has received something; phases with nothing to do are left out."""

    RECEIVE = 1  # the input is taken, the transaction opens
    WORK = 2
    VOTE = 3  # ballots
    END = 4  # nothing can be added from here on
    PREPARE = 5  # branches vote
    LAST_RESOURCE = 6  # its commit is the decision
    DECIDE = 7
    LANES = 8  # open units follow the outcome
    FINISH = 9  # branches carry out the decision
    RELEASE = 10  # outputs become visible
    QUIET = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class Voter:
    """One branch of the coordinated transaction: a prepared step, all work a resource journals, or a cluster."""

    resource: str
    work: tuple[str, ...]  # its steps or outputs
    hold: Hold


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """What happens when one input of a flow receives something."""

    input: str
    settles: Settles
    transactional: bool  # whether work in automatic mode takes part
    retries: int
    works: tuple[PlacedWork, ...]
    outputs: tuple[PlacedSends, ...]
    voters: tuple[Voter, ...]
    ballots: tuple[str, ...]  # those that can vote no
    last_resource: str | None
    units: tuple[PlacedUnit, ...]
    phases: tuple[FlowPhase, ...]

    @property
    def at_once(self) -> tuple[str, ...]:
        """The outputs that are sent at once, regardless of the flow's outcome."""
        return tuple(each.output for each in self.outputs if each.settles is Settles.AT_ONCE)

    @property
    def lanes(self) -> tuple[str, ...]:
        """The data sources that have a lane, each once."""
        return tuple(dict.fromkeys(unit.lane for unit in self.units))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of a flow: each input that receives something opens its own transaction."""

    flow: FlowDeclaration
    runs: tuple[RunPlan, ...]

    def run(self, input: str) -> RunPlan:
        """Return what happens when an input receives something."""
        found = next((each for each in self.runs if each.input == input), None)
        if found is None:
            raise ConfigError(f"flow {self.flow.name!r} has no input {input!r}")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Problems:
    """All reasons why a flow can't run as declared."""

    flow: str
    found: tuple[Problem, ...]

    def error(self) -> FlowRefused:
        """Return one error that lists all problems."""
        return FlowRefused(f"flow {self.flow!r} can't run as it is declared: {'. '.join(map(str, self.found))}")


def plan(flow: FlowDeclaration, abilities: Abilities = DECLARED) -> Plan | Problems:
    """Return the plan of a flow, or all problems."""
    if found := tuple(dict.fromkeys(problems(flow, abilities))):
        return Problems(flow=flow.name, found=found)
    return Plan(flow=flow, runs=tuple(_run(flow, each, abilities) for each in flow.inputs))


def planned(flow: FlowDeclaration, abilities: Abilities = DECLARED) -> Plan:
    """Return the plan of a flow, or raise `FlowRefused`."""
    found = plan(flow, abilities)
    if isinstance(found, Problems):
        raise found.error()
    return found


def _run(flow: FlowDeclaration, input: Input, abilities: Abilities) -> RunPlan:
    placed, outputs = modes.works(flow, input, abilities), modes.sends(flow, input)
    taken = modes.received(flow, input)
    voters = tuple(_voters(flow, placed, outputs))
    ballots = tuple(each.name for each in flow.ballots if each.rule is not BallotRule.WARN)
    last = next((each.name for each in flow.resources if each.last and _in_main(placed, each.name)), None)
    parts = modes.units(flow, placed)
    return RunPlan(
        input=input.name,
        settles=taken.settles,
        transactional=taken.inherited,
        retries=input.retries,
        works=placed,
        outputs=outputs,
        voters=voters,
        ballots=ballots,
        last_resource=last,
        units=parts,
        phases=tuple(_phases(flow, voters, ballots, last, parts, outputs)),
    )


def _in_main(placed: Iterable[PlacedWork], resource: str) -> bool:
    return any(each.resource == resource and each.settles is Settles.MAIN for each in placed)


def _voters(flow: FlowDeclaration, placed: tuple[PlacedWork, ...], outputs: tuple[PlacedSends, ...]) -> Iterator[Voter]:
    for resource in flow.resources:
        main = [each for each in placed if each.resource == resource.name and each.settles is Settles.MAIN]
        journalled = tuple(dict.fromkeys(each.step for each in main if each.hold is Hold.JOURNAL))
        for step in dict.fromkeys(each.step for each in main if each.hold is Hold.PREPARED):
            yield Voter(resource=resource.name, work=(step,), hold=Hold.PREPARED)
        if journalled and not resource.last and not home_effect(resource, Hold.JOURNAL):
            yield Voter(resource=resource.name, work=journalled, hold=Hold.JOURNAL)
    for cluster in flow.clusters:
        sent = tuple(e.output for e in outputs if e.cluster == cluster.name and e.settles is Settles.MAIN)
        if sent:
            yield Voter(resource=cluster.name, work=sent, hold=Hold.PREPARED)


def _phases(
    flow: FlowDeclaration,
    voters: tuple[Voter, ...],
    ballots: tuple[str, ...],
    last: str | None,
    parts: tuple[PlacedUnit, ...],
    outputs: tuple[PlacedSends, ...],
) -> Iterator[FlowPhase]:
    idle = {
        FlowPhase.WORK: not flow.steps and not any(each.settles is Settles.AT_ONCE for each in outputs),
        FlowPhase.VOTE: not ballots,
        FlowPhase.PREPARE: not voters,
        FlowPhase.LAST_RESOURCE: last is None,
        FlowPhase.LANES: all(each.decision for each in parts),
        FlowPhase.FINISH: not voters,
        FlowPhase.RELEASE: not any(each.settles is Settles.MAIN for each in outputs),
    }
    return (phase for phase in FlowPhase if not idle.get(phase, False))
