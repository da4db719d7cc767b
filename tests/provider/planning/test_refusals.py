"""A flow that can't be kept is refused with every reason: each names the resource and says what to do instead."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.provider.planning.declared import (
    flow,
    lane,
    local,
    problems,
    resource,
    settles,
    step,
    works,
)
from tests.provider.planning.refused import PG, REFUSED, req
from txsaga.errors import ConfigError, FlowRefused
from txsaga.flows.step import Hold
from txsaga.provider.planning import refusals
from txsaga.provider.planning.modes import (
    DeclaredResource,
    DeclaredStep,
    FlowDeclaration,
    Input,
    Output,
    StepMode,
)
from txsaga.provider.planning.refusals import Refusal
from txsaga.resources.capabilities import CAPABILITIES, Capabilities, ResourceKind


@pytest.mark.parametrize(("refused", "refusal", "subject", "says"), REFUSED)
def test_what_can_not_be_kept_is_refused_by_name_and_with_a_remedy(
    refused: FlowDeclaration, refusal: Refusal, subject: str, says: str
) -> None:
    assert problems(refused) == [(refusal, subject)]
    (told,) = map(str, refusals.problems(refused))
    assert re.match(f"{subject}: .*{says}", told)


def test_every_refusal_is_shown_once_at_least() -> None:
    assert {case.values[1] for case in REFUSED} == set(Refusal)


ACCEPTED = [
    pytest.param(flow(), marks=req("IBM-43")),
    pytest.param(flow(PG, works("debit", "current"), works("credit", "current")), marks=req("IBM-48", "IBM-39")),
    pytest.param(flow(lane("lite", "sqlite"), works("note", "lite")), marks=req("IBM-14")),
    pytest.param(flow(local("old", "db2"), works("debit", "old")), marks=req("IBM-48")),
    pytest.param(flow(resource("old", "db2"), works("debit", "old"), coordinated=False), marks=req("IBM-12")),
    pytest.param(flow(resource("old", "db2"), step("a", "old", propagates=("b",)), step("b"), coordinated=False)),
    pytest.param(
        flow(resource("a", no_mix=True), lane("b", no_mix=True), works("x", "a"), works("y", "b")), marks=req("IBM-31")
    ),
    pytest.param(flow(resource("db2", no_mix=True), works("x", "db2"), coordinated=False), marks=req("IBM-31")),
    pytest.param(flow(PG, works("x", "current"), works("y", "current", mode=StepMode.COMMIT)), marks=req("IBM-31")),
    pytest.param(flow(coordinators=(), coordinated=False), marks=req("IBM-47")),
    pytest.param(flow(coordinators=("home", "home")), marks=req("IBM-47")),
]


@pytest.mark.parametrize("accepted", ACCEPTED)
def test_what_can_be_kept_is_not_refused(accepted: FlowDeclaration) -> None:
    assert problems(accepted) == []


@pytest.mark.req("IBM-48", "IBM-57")
def test_what_a_kind_declares_is_what_counts() -> None:
    of = flow(resource("old", "db2"), works("debit", "old"))
    declared = {"db2": Capabilities(kind=ResourceKind.CALLABLE, two_phase=True)}
    assert refusals.problems(of, declared) == []
    found = refusals.problems(of, {"db2": Capabilities(kind=ResourceKind.CALLABLE)})
    assert [each.refusal for each in found] == [Refusal.NO_TWO_PHASE]


@pytest.mark.req("IBM-31")
def test_a_kind_that_can_not_mix_needs_no_flag() -> None:
    of = flow(resource("db2", "db2"), works("debit", "db2"), works("note", "db2", mode=StepMode.COMMIT))
    declared = replace(CAPABILITIES[ResourceKind.POSTGRESQL], mixing=False)
    found = refusals.problems(of, {"db2": declared})
    assert [each.refusal for each in found] == [Refusal.NO_MIX]


@pytest.mark.req("IBM-40")
@pytest.mark.parametrize("kind", [ResourceKind.FILES, ResourceKind.QUEUE, ResourceKind.HTTP, ResourceKind.CALLABLE])
def test_files_and_queues_declare_fewer_abilities(kind: ResourceKind) -> None:
    assert (CAPABILITIES[kind].aux, CAPABILITIES[kind].joint_commit) == (False, False)


Part = DeclaredResource | DeclaredStep | Input | Output
FAULTS: dict[Refusal, Callable[[int], tuple[Part, ...]]] = {
    Refusal.NO_TWO_PHASE: lambda n: (resource(f"r{n}", "sqlite"), works(f"s{n}", f"r{n}")),
    Refusal.UNDECLARED: lambda n: (resource(f"r{n}", "db2"), works(f"s{n}", f"r{n}")),
    Refusal.NO_LANE: lambda n: (lane(f"r{n}", "http"), works(f"s{n}", f"r{n}")),
    Refusal.QUEUE_LANE: lambda n: (lane(f"r{n}", "queue"), works(f"s{n}", f"r{n}")),
    Refusal.NO_MIX: lambda n: (
        resource(f"r{n}", no_mix=True),
        works(f"s{n}", f"r{n}"),
        works(f"m{n}", f"r{n}", mode=StepMode.COMMIT),
    ),
    Refusal.HOLD_PREPARED: lambda n: (lane(f"r{n}", "sqlite"), works(f"s{n}", f"r{n}", hold=Hold.PREPARED)),
    Refusal.JOURNAL_BLIND: lambda n: (resource(f"r{n}"), step(f"s{n}", f"r{n}", hold=Hold.JOURNAL)),
    Refusal.NOTHING_TO_SETTLE: lambda n: (lane(f"r{n}"), settles(f"s{n}", f"r{n}")),
    Refusal.UNKNOWN: lambda n: (step(f"s{n}", f"nowhere {n}"),),
}


@pytest.mark.req("IBM-13", "IBM-14", "IBM-48")
@given(st.lists(st.sampled_from(sorted(FAULTS, key=lambda each: each.name)), min_size=1, max_size=8))
def test_all_problems_are_told_not_the_first_alone(faults: list[Refusal]) -> None:
    of = flow(PG, works("good", "current"), *(part for n, fault in enumerate(faults) for part in FAULTS[fault](n)))
    found = refusals.problems(of)
    for n, fault in enumerate(faults):
        named = [each for each in found if each.subject in (f"r{n}", f"s{n}", f"i{n}")]
        assert fault in [each.refusal for each in named]
        assert all(str(each).startswith(f"{each.subject}: ") and each.refusal.remedy in str(each) for each in named)
    assert len(set(found)) == len(found)


def test_a_refusal_is_a_mistake_in_the_configuration() -> None:
    assert issubclass(FlowRefused, ConfigError)
