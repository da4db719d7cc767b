"""Where each part of a flow is settled follows the mode tables, whatever the cut into steps."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.provider.planning.declared import (
    flow,
    lane,
    local,
    places,
    resource,
    run,
    settles,
    step,
    works,
)
from txsaga.core.decision import Decision
from txsaga.flows.step import Hold
from txsaga.provider.planning import modes
from txsaga.provider.planning.modes import (
    INPUTS,
    OUTPUTS,
    PERSISTENCE,
    QUEUES,
    STEPS,
    FlowDeclaration,
    Input,
    Output,
    Persistence,
    ResourceMode,
    Settles,
    StepMode,
    TransactionMode,
    fitting,
)

MAIN, LANE, OWN_END, AT_ONCE = "with the flow", "with its lane", "at its own end", "at once"
AUTOMATIC, YES, NO = TransactionMode
PG, PG2 = resource("current"), resource("mortgage")
TABLES: Mapping[str, tuple[Mapping[tuple[object, ...], object], tuple[type[Enum] | type[bool], ...]]] = {
    "inputs": (INPUTS, (TransactionMode, bool, bool)),  # type: ignore[dict-item]
    "steps": (STEPS, (ResourceMode, StepMode, bool)),  # type: ignore[dict-item]
    "outputs": (OUTPUTS, (TransactionMode, bool)),  # type: ignore[dict-item]
    "persistence": (PERSISTENCE, (Persistence, bool, bool)),  # type: ignore[dict-item]
}


@pytest.mark.req("IBM-45", "IBM-51", "IBM-52", "IBM-53", "IBM-54", "IBM-56")
@pytest.mark.parametrize("name", TABLES)
def test_each_declaration_has_one_entry_in_its_table(name: str) -> None:
    table, kinds = TABLES[name]
    used = set()
    for declared in product(*((False, True) if kind is bool else tuple(kind) for kind in kinds)):
        fitting(table, declared)
        used |= {key for key in table if modes._fits(key, declared)}
    assert used == set(table)


def test_a_queue_has_an_answer_for_every_place_of_a_step() -> None:
    assert set(QUEUES) == set(STEPS.values())
    assert set(QUEUES.values()) == {Settles.MAIN, Settles.AT_ONCE}


@pytest.mark.req("IBM-12", "IBM-46")
def test_a_flow_is_not_coordinated_unless_it_asks() -> None:
    assert not FlowDeclaration(name="transfer", input=Input(name="run")).coordinated
    assert places(flow(PG, PG2, works("debit", "current"), works("credit", "mortgage"), coordinated=False)) == [
        OWN_END,
        OWN_END,
    ]
    assert places(flow(PG, PG2, works("debit", "current"), works("credit", "mortgage"))) == [MAIN, MAIN]


@pytest.mark.req("IBM-45", "IBM-54")
@pytest.mark.parametrize(
    ("mode", "coordinated", "place"),
    [
        (StepMode.AUTOMATIC, True, MAIN),
        (StepMode.COMMIT, True, OWN_END),
        (StepMode.AUTOMATIC, False, OWN_END),
        (StepMode.COMMIT, False, OWN_END),
    ],
)
def test_a_step_joins_or_commits_when_it_ends(mode: StepMode, coordinated: bool, place: str) -> None:
    assert places(flow(PG, works("debit", "current", mode=mode), coordinated=coordinated)) == [place]


@pytest.mark.req("IBM-54")
def test_the_mode_is_the_step_s_and_not_the_table_s() -> None:
    of = flow(PG, works("log", "current", mode=StepMode.COMMIT), works("debit", "current"))
    assert places(of) == [OWN_END, MAIN]


@pytest.mark.req("IBM-55")
@pytest.mark.parametrize(
    ("mode", "path", "hold"),
    [
        (StepMode.COMMIT, ("below",), Hold.PREPARED),
        (StepMode.COMMIT, (), None),
        (StepMode.AUTOMATIC, ("below",), None),
    ],
)
def test_a_committing_step_holds_its_work_for_the_path_below_it(
    mode: StepMode, path: tuple[str, ...], hold: Hold | None
) -> None:
    of = flow(local("current"), works("log", "current", mode=mode, propagates=path), step("below"))
    assert [(each.settles.value, each.hold) for each in run(of).works] == [(OWN_END, hold)]


@pytest.mark.req("IBM-51")
@pytest.mark.parametrize("coordinated", [True, False])
@pytest.mark.parametrize(("persistent", "output"), [(True, MAIN), (False, AT_ONCE)])
def test_automatic_follows_the_input_from_end_to_end(persistent: bool, output: str, coordinated: bool) -> None:
    of = flow(
        PG,
        works("debit", "current"),
        Input(name="transfers", persistent=persistent),
        Output(name="done", topic="transferred"),
        coordinated=coordinated,
    )
    found = run(of)
    assert found.received.inherited is persistent
    assert found.received.settles.value == output
    assert [each.settles.value for each in found.outputs] == [output]
    assert [each.settles.value for each in found.works] == [MAIN if persistent and coordinated else OWN_END]


@pytest.mark.req("IBM-52")
@pytest.mark.parametrize(
    ("mode", "coordinated", "input", "output"),
    [
        (YES, True, MAIN, MAIN),
        (YES, False, MAIN, AT_ONCE),
        (NO, True, AT_ONCE, AT_ONCE),
        (NO, False, AT_ONCE, AT_ONCE),
    ],
)
@pytest.mark.parametrize("persistent", [True, False])
def test_yes_and_no_of_an_input_reach_as_far_as_coordination_does(
    mode: TransactionMode, coordinated: bool, input: str, output: str, persistent: bool
) -> None:
    given = Input(name="transfers", transaction=mode, persistent=persistent)
    found = run(flow(given, Output(name="done", topic="transferred"), coordinated=coordinated))
    assert (found.received.settles.value, found.outputs[0].settles.value) == (input, output)


@pytest.mark.req("IBM-52", "IBM-53")
@pytest.mark.parametrize("input", TransactionMode)
@pytest.mark.parametrize(("mode", "place"), [(YES, MAIN), (NO, AT_ONCE)])
def test_an_output_that_says_yes_or_no_does_not_ask_the_input(
    input: TransactionMode, mode: TransactionMode, place: str
) -> None:
    of = flow(Input(name="transfers", transaction=input), Output(name="done", topic="transferred", transaction=mode))
    assert [each.settles.value for each in run(of).outputs] == [place]


@pytest.mark.req("IBM-53")
@pytest.mark.parametrize(
    ("persistence", "input", "topic", "persistent"),
    [
        (Persistence.AUTOMATIC, True, False, True),
        (Persistence.AUTOMATIC, False, True, False),
        (Persistence.YES, False, False, True),
        (Persistence.NO, True, True, False),
        (Persistence.AS_QUEUE, False, True, True),
        (Persistence.AS_QUEUE, True, False, False),
    ],
)
def test_an_output_chooses_its_persistence(
    persistence: Persistence, input: bool, topic: bool, persistent: bool
) -> None:
    output = Output(name="done", topic="transferred", persistence=persistence, topic_persistent=topic)
    assert run(flow(Input(name="transfers", persistent=input), output)).outputs[0].persistent is persistent


@pytest.mark.req("IBM-56")
def test_files_settle_at_their_own_end_and_have_retries() -> None:
    found = run(flow(PG, works("debit", "current"), Input(name="drop", put_back=False, retries=2)))
    assert found.received.settles.value == OWN_END
    assert found.works[0].settles is Settles.MAIN


@pytest.mark.req("IBM-56")
def test_a_step_that_takes_no_part_settles_at_its_own_end_and_the_end_has_nothing_to_do() -> None:
    found = run(flow(local("current", "http"), step("call", "current")))
    assert [(each.settles.value, each.lane, each.hold) for each in found.works] == [(OWN_END, None, None)]


@pytest.mark.req("IBM-15")
def test_a_resource_can_be_given_to_a_lane() -> None:
    found = run(flow(PG, lane("audit"), works("debit", "current"), works("note", "audit")))
    assert [(each.settles.value, each.lane) for each in found.works] == [(MAIN, None), (LANE, "audit")]


@pytest.mark.req("IBM-26", "IBM-23")
def test_a_data_source_has_one_lane_whatever_its_names() -> None:
    of = flow(
        lane("t1", instance="db1"),
        lane("t2", instance="db1"),
        lane("t3", instance="db2"),
        *(works(f"write {name}", name) for name in ("t1", "t2", "t3")),
        settles("keep", "t2"),
    )
    assert [each.lane for each in run(of).works] == ["db1", "db1", "db2"]
    assert run(of).settled_lanes == {"keep": ("write t1", "write t2")}


@pytest.mark.req("IBM-25", "IBM-29")
def test_a_lane_is_used_again_after_settling_and_what_is_open_follows_the_outcome() -> None:
    of = flow(
        lane("db1"),
        lane("db2"),
        works("one", "db1"),
        works("other", "db2"),
        settles("keep", "db1"),
        works("two", "db1"),
        works("more", "db1"),
        settles("drop", "db1", Decision.ROLLBACK),
        works("three", "db1"),
    )
    assert run(of).settled_lanes == {"keep": ("one",), "drop": ("two", "more")}


def test_a_step_may_work_in_a_lane_and_settle_it() -> None:
    of = flow(lane("audit"), works("note", "audit", settle=Decision.COMMIT))
    assert run(of).settled_lanes == {"note": ("note",)}


@pytest.mark.req("IBM-34", "IBM-35")
@pytest.mark.parametrize("kind", ["queue", "broker"])
def test_uncoordinated_work_on_a_queue_commits_at_once_each_by_itself(kind: str) -> None:
    of = flow(local("orders", kind), works("put", "orders"), works("get", "orders"))
    assert [(each.settles.value, each.lane, each.hold) for each in run(of).works] == [(AT_ONCE, None, None)] * 2
    assert places(flow(resource("orders", kind), works("put", "orders"), coordinated=False)) == [AT_ONCE]


def test_a_broker_takes_part_in_main() -> None:
    assert places(flow(resource("other", "broker"), step("put", "other"))) == [MAIN]


@pytest.mark.req("IBM-39")
def test_any_mix_of_steps_and_lanes_on_databases_has_a_plan() -> None:
    lanes = [lane(f"db{number}") for number in range(4)]
    steps = [works(f"step {number}", ("current", *(each.name for each in lanes))[number % 5]) for number in range(20)]
    found = run(flow(PG, *lanes, *steps))
    assert [each.settles.value for each in found.works] == [MAIN, *[LANE] * 4] * 4
    assert len({each.lane for each in found.works if each.lane}) == 4


STATEMENTS = st.lists(st.sampled_from(["current", "mortgage", "audit"]), min_size=1)


@pytest.mark.req("IBM-38")
@given(STATEMENTS, st.data())
def test_the_cut_into_steps_changes_no_place(statements: list[str], data: st.DataObject) -> None:
    def placed(groups: list[list[int]]) -> list[tuple[str, str, str | None]]:
        steps = [
            step(f"step {number}", statements[group[0]], *(f"UPDATE t{at}" for at in group))
            for number, group in enumerate(groups)
        ]
        found = run(flow(PG, PG2, lane("audit"), *steps))
        return [(each.statement, each.settles.value, each.lane) for each in found.works]

    one_by_one = [[at] for at in range(len(statements))]
    joined: list[list[int]] = []
    for at, on in enumerate(statements):
        if joined and statements[joined[-1][0]] == on and data.draw(st.booleans()):
            joined[-1].append(at)
        else:
            joined.append([at])
    assert placed(one_by_one) == placed(joined)


@pytest.mark.rule("R2")
@pytest.mark.parametrize("coordinated", [True, False])
def test_work_in_the_home_database_is_under_the_one_decision_without_coordination(coordinated: bool) -> None:
    found = run(flow(resource("ledger", home=True), works("book", "ledger"), coordinated=coordinated))
    assert [(each.settles.value, each.hold) for each in found.works] == [(MAIN, Hold.JOURNAL)]
