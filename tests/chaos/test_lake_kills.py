"""Kill each program that writes into tables at each fact: tables, messages and rows agree afterwards."""

import pytest

from tests.chaos import gated
from tests.chaos import lake_programs as programs
from tests.chaos.conftest import Worlds
from tests.chaos.killing import kill_all_points
from tests.chaos.matrix import Scenario, nothing_more

pytestmark = [pytest.mark.kill, pytest.mark.slow, pytest.mark.postgres, pytest.mark.timeout(900)]

SHARE = 1
ROLES = "Publishing:1"
"""The news that the roles begin with: their own facts are those of another program."""
WRITE = Scenario(
    name="three tables created, two of them appended to, messages",
    roles_from=ROLES,
    sure=(*programs.WRITES, *programs.DECIDES),
    run=programs.write,
    after=(programs.recover,),
    check=programs.tables_agree,
    end=nothing_more,
)
AT_ONCE = Scenario(
    name="the same, tried again at once",
    roles_from=ROLES,
    sure=(*programs.WRITES, *programs.DECIDES),
    run=programs.write,
    after=(programs.write,),
    check=programs.tables_agree,
    end=programs.both_are_there,
)
HOME = Scenario(
    name="rows for a table of the home database, and messages, tried again",
    roles_from=ROLES,
    sure=(*programs.FILLS, *programs.DECIDES),
    run=programs.fill,
    after=(programs.recover, programs.fill),
    check=programs.rows_agree,
    end=programs.rows_are_there,
)
BRANCHES = Scenario(
    name="two tables changed on branches, messages, tried again",
    roles_from=ROLES,
    sure=(*programs.BRANCHES, *programs.DECIDES),
    run=programs.change,
    after=(programs.recover, programs.change),
    check=programs.tables_agree,
    end=programs.branches_are_gone,
)
LOCAL = Scenario(
    name="two tables, a message and a row of a bank",
    roles_from=ROLES,
    sure=(*programs.WRITES, *programs.DECIDES, "Working:1", "Worked:1"),
    run=programs.write_beside_local_work,
    after=(programs.recover,),
    check=programs.bank_agrees,
    end=nothing_more,
)
DATABASES = Scenario(
    name="three tables, one of them overwritten, a message and two databases",
    roles_from=ROLES,
    sure=(*programs.WRITES, "Voting:2", "Voted:2", "Deciding:2", "Decided:2", "Finishing:1"),
    run=programs.write_beside_databases,
    after=(programs.recover, programs.write_beside_databases),
    check=programs.databases_agree,
    end=programs.both_are_there,
)
GATED = Scenario(
    name="a table and a branch, each behind a gate that refuses one of two entries, messages, tried again",
    roles_from=ROLES,
    sure=(*gated.SURE, *programs.DECIDES),
    run=gated.write,
    after=(programs.recover, gated.write),
    check=gated.gates_agree,
    end=gated.the_others_are_there,
)
SCENARIOS = (WRITE, AT_ONCE, HOME, BRANCHES, LOCAL, DATABASES, GATED)


@pytest.mark.req("RMQ-01", "IBM-02", "IBM-08")
@pytest.mark.rule("R2")
@pytest.mark.sampled(4)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_whoever_is_killed_tables_follow_the_decision(
    scenario: Scenario, houses: Worlds, seed: int, pytestconfig: pytest.Config
) -> None:
    kill_all_points(scenario, houses, seed, SHARE, pytestconfig)
