"""A flow that is not refused asks no resource for what it can't do."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.provider.planning.declared import flow, problems, resource, run
from txsaga.core.decision import Decision
from txsaga.flows.step import Hold
from txsaga.provider.planning.modes import (
    DECLARED,
    DeclaredStep,
    FlowDeclaration,
    Input,
    ResourceMode,
    Settles,
    StepMode,
    TransactionMode,
    able,
)
from txsaga.resources.capabilities import Capabilities, ResourceKind

INPUTS = st.builds(
    Input,
    name=st.just("transfers"),
    put_back=st.booleans(),
    persistent=st.sampled_from([*[True] * 5, False]),
    transaction=st.sampled_from([TransactionMode.AUTOMATIC] * 5 + [*TransactionMode]),
)


@st.composite
def flows(draw: st.DrawFn) -> FlowDeclaration:
    """Draw a flow that is not seldom one that can be kept."""
    coordinated = draw(st.sampled_from([True, True, False]))
    databases, seldom = st.sampled_from(["postgresql", "mariadb", "sqlite"]), st.sampled_from([*[False] * 5, True])
    resources = []
    for name in "abc":
        mode = draw(st.sampled_from([ResourceMode.MAIN] * 3 + [*ResourceMode]))
        home = draw(seldom)
        kind = (
            "postgresql"
            if home
            else draw(databases)
            if draw(st.booleans())
            else draw(st.sampled_from([*ResourceKind, "db2"]))
        )
        resources.append(resource(name, kind, mode, home=home, no_mix=draw(seldom)))
    steps = [
        DeclaredStep(
            name=f"step {number}",
            resource=draw(st.sampled_from("abc")),
            statements=("UPDATE t",) * draw(st.integers(1, 2)),
            mode=draw(st.sampled_from([StepMode.AUTOMATIC] * 3 + [*StepMode])),
            hold=draw(st.sampled_from([None, None, *Hold])),
            settle=draw(st.sampled_from([*[None] * 9, *Decision])),
        )
        for number in range(draw(st.integers(1, 4)))
    ]
    return flow(*resources, *steps, draw(INPUTS), coordinated=coordinated)


def abilities(of: FlowDeclaration) -> dict[str, Capabilities]:
    """Return what each resource of a flow can do."""
    return {each.name: able(each, DECLARED) for each in of.resources}


@pytest.mark.req("IBM-13", "IBM-14")
@given(flows())
def test_what_is_not_refused_asks_no_resource_for_what_it_can_not_do(of: FlowDeclaration) -> None:
    assume(not problems(of))
    can, resources = abilities(of), {each.name: each for each in of.resources}
    for work in run(of).works:
        resource = resources[work.resource]
        at_home = resource.home and work.hold is Hold.JOURNAL
        assert can[work.resource].aux or not work.lane
        assert can[work.resource].two_phase or work.hold is not Hold.PREPARED
        assert can[work.resource].two_phase or work.settles is not Settles.MAIN or at_home
