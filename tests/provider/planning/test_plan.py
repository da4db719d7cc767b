"""A plan asks no resource for what it can't do, and says who votes and in which order."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from tests.provider.planning.planned import (
    CLUSTER,
    flow,
    lane,
    resource,
    run,
    settles,
    works,
)
from tests.provider.planning.refused import OUT, PG, PG2, ballot
from txsaga.core.decision import Decision
from txsaga.flows.declaration import (
    BallotRule,
    DeclaredStep,
    FlowDeclaration,
    Hold,
    Input,
    InputKind,
    Output,
    ResourceMode,
    Statement,
    StepMode,
    TransactionMode,
)
from txsaga.provider.planning.modes import DECLARED, NOTHING, Settles
from txsaga.provider.planning.plan import FlowPhase, Problems, RunPlan, Voter, plan
from txsaga.resources.capabilities import Capabilities, ResourceKind

INPUTS = st.builds(
    Input,
    name=st.just("transfers"),
    kind=st.sampled_from(InputKind),
    persistent=st.sampled_from([*[True] * 5, False]),
    transaction=st.sampled_from([TransactionMode.AUTOMATIC] * 5 + [*TransactionMode]),
)
STATEMENTS = st.builds(Statement, text=st.just("UPDATE t"), uncoordinated=st.sampled_from([False, False, True]))


@st.composite
def flows(draw: st.DrawFn) -> FlowDeclaration:
    """Draw a flow that is not seldom one that can be kept."""
    coordinated = draw(st.sampled_from([True, True, False]))
    databases, seldom = st.sampled_from(["postgresql", "mariadb", "sqlite"]), st.sampled_from([*[False] * 5, True])
    resources = []
    for name in "abc":
        mode = draw(st.sampled_from([ResourceMode.MAIN] * 3 + [*ResourceMode]))
        home, last = draw(seldom), coordinated and mode is ResourceMode.MAIN and draw(seldom)
        kind = (
            "postgresql"
            if home
            else draw(databases)
            if draw(st.booleans())
            else draw(st.sampled_from([*ResourceKind, "db2"]))
        )
        resources.append(resource(name, kind, mode, home=home, last=last and not home, no_mix=draw(seldom)))
    steps = [
        DeclaredStep(
            name=f"step {number}",
            resource=draw(st.sampled_from("abc")),
            statements=tuple(draw(st.lists(STATEMENTS, min_size=1, max_size=2))),
            mode=draw(st.sampled_from([StepMode.AUTOMATIC] * 3 + [*StepMode])),
            hold=draw(st.sampled_from([None, None, *Hold])),
            settle=draw(st.sampled_from([*[None] * 9, *Decision])),
        )
        for number in range(draw(st.integers(1, 4)))
    ]
    return flow(*resources, *steps, draw(INPUTS), coordinated=coordinated)


FLOWS = flows()


@given(FLOWS)
def test_a_plan_is_the_same_every_time(of: FlowDeclaration) -> None:
    assert plan(of) == plan(replace(of))


def abilities(of: FlowDeclaration) -> dict[str, Capabilities]:
    """Return what the resources of a flow can do, by their names."""
    return {each.name: DECLARED.get(each.kind, NOTHING) for each in of.resources}


@pytest.mark.req("IBM-13", "IBM-14")
@given(FLOWS)
def test_a_plan_asks_no_resource_for_what_it_can_not_do(of: FlowDeclaration) -> None:
    found = plan(of)
    if isinstance(found, Problems):
        reject()
    able = abilities(of)
    for each in found.runs:
        assert all(able[voter.resource].two_phase for voter in each.voters)
        assert all(able[work.resource].aux for work in each.works if work.lane)
        assert all(able[work.resource].two_phase for work in each.works if work.hold is Hold.PREPARED)
        assert each.last_resource is None or able[each.last_resource].last_resource


@pytest.mark.rule("R12")
@given(FLOWS)
def test_whoever_has_work_in_main_votes_or_is_the_last_or_lies_at_home(of: FlowDeclaration) -> None:
    found = plan(of)
    if isinstance(found, Problems):
        reject()
    home = {each.name for each in of.resources if each.home}
    for each in found.runs:
        main = {work.resource for work in each.works if work.settles is Settles.MAIN}
        voters = {voter.resource for voter in each.voters}
        assert main <= voters | {each.last_resource} | home
        assert each.last_resource is None or not home & main - voters


def test_who_votes_is_a_step_held_prepared_or_all_that_a_resource_journalled() -> None:
    of = flow(
        PG,
        PG2,
        works("a", "current"),
        works("b", "mortgage", hold=Hold.JOURNAL),
        works("c", "current"),
        works("d", "mortgage", hold=Hold.JOURNAL),
        CLUSTER,
        OUT,
    )
    assert run(of).voters == (
        Voter(resource="current", work=("a",), hold=Hold.PREPARED),
        Voter(resource="current", work=("c",), hold=Hold.PREPARED),
        Voter(resource="mortgage", work=("b", "d"), hold=Hold.JOURNAL),
        Voter(resource="shop", work=("done",), hold=Hold.PREPARED),
    )


@pytest.mark.rule("R12")
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_the_last_resource_does_not_vote_and_commits_behind_those_who_do(kind: str) -> None:
    found = run(flow(resource("last", kind, last=True), PG, works("a", "last"), works("b", "current")))
    assert [voter.resource for voter in found.voters] == ["current"]
    assert found.last_resource == "last"
    phases = found.phases
    assert phases.index(FlowPhase.PREPARE) < phases.index(FlowPhase.LAST_RESOURCE) < phases.index(FlowPhase.DECIDE)


def test_a_ballot_that_only_warns_does_not_decide() -> None:
    ballots = (ballot("a"), replace(ballot("a"), name="drift", rule=BallotRule.WARN))
    assert run(flow(ballots=ballots)).ballots == ("approval",)


HOME_OUT = Output(name="done", topic="transferred")
P = FlowPhase


@pytest.mark.req("IBM-43")
@pytest.mark.parametrize(
    ("of", "phases"),
    [
        (flow(), (P.RECEIVE, P.END, P.DECIDE, P.QUIET)),
        (flow(HOME_OUT), (P.RECEIVE, P.END, P.DECIDE, P.RELEASE, P.QUIET)),
        (
            flow(PG, works("debit", "current"), HOME_OUT),
            (P.RECEIVE, P.WORK, P.END, P.PREPARE, P.DECIDE, P.FINISH, P.RELEASE, P.QUIET),
        ),
        (
            flow(PG, works("debit", "current"), HOME_OUT, coordinated=False),
            (P.RECEIVE, P.WORK, P.END, P.DECIDE, P.RELEASE, P.QUIET),
        ),
        (
            flow(lane("audit"), works("note", "audit"), ballots=(ballot("a"),)),
            (P.RECEIVE, P.WORK, P.VOTE, P.END, P.DECIDE, P.LANES, P.QUIET),
        ),
        (
            flow(lane("audit"), works("note", "audit"), settles("keep", "audit")),
            (P.RECEIVE, P.WORK, P.END, P.DECIDE, P.QUIET),
        ),
    ],
)
def test_the_phases_follow_one_order_and_idle_ones_are_left_out(
    of: FlowDeclaration, phases: tuple[FlowPhase, ...]
) -> None:
    found: RunPlan = run(of)
    assert found.phases == phases
    assert list(phases) == sorted(phases)
