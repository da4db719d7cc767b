"""What is wrong with a flow is told when its file is parsed: all of it, with remedies, and where it stands."""

from __future__ import annotations

import pytest

pytest.importorskip("airflow")

from tests.provider.examples import example
from txsaga.errors import ConfigError, FlowRefused
from txsaga.provider import FlowBegin, lane, main, message_flow, step
from txsaga.provider.flow_dag import declared_flow


@pytest.mark.req("BEYOND-7")
def test_all_that_is_wrong_stands_in_one_error_with_the_users_file_and_line() -> None:
    @message_flow(
        coordinated=True,
        resources={"file": main("sqlite_file", kind="sqlite"), "audit": lane("pg_audit")},
        schedule=None,
    )
    def wrong() -> None:
        step.sql("unknown", "UPDATE x SET y = 1", on="nowhere")
        step.sql("reads", "SELECT 1", on="audit", hold="journal")
        step.sql("votes", "UPDATE x SET y = 1", on="file")

    with pytest.raises(FlowRefused) as refused:
        wrong()
    told = str(refused.value)
    assert f"{__file__}, line " in told
    assert "'nowhere'" in told
    assert "reads" in told and "SELECT" in told
    assert "sqlite has no two-phase commit" in told
    assert told.count("\n  - ") >= 3


def test_a_flow_without_steps_and_a_first_step_with_a_rule_are_refused() -> None:
    @message_flow(schedule=None)
    def empty() -> None:
        """Do nothing."""

    with pytest.raises(FlowRefused, match="at least one step"):
        empty()

    @message_flow(schedule=None)
    def ruled() -> None:
        step.sql("first", "DELETE FROM x", on="home", trigger_rule="all_done")

    with pytest.raises(FlowRefused, match=r"remove the trigger rule of first \(all_done\)"):
        ruled()


@pytest.mark.parametrize(
    "resources",
    [{"home": "pg"}, {"one": ""}, {"one": 3}, {"": "pg"}],
    ids=["home", "nothing", "number", "no name"],
)
def test_resources_that_name_nothing_are_refused(resources: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        FlowBegin(task_id="begin", resources=resources)


def test_a_dag_declares_its_steps_in_the_order_in_which_they_may_run() -> None:
    dag = example("bank_transfer")
    begin = dag.get_task("begin")
    assert isinstance(begin, FlowBegin)
    flow = declared_flow(begin, [each for each in dag.tasks if each is not begin])
    assert [each.name for each in flow.steps] == [
        "debit",
        "audit_begun",
        "credit",
        "fee",
        "audit_booked",
        "commit_audit",
        "check",
        "publish_transfers",
    ]
    assert [each.topic for each in flow.outputs] == ["transfers"]


def test_begin_comes_before_every_first_step_and_end_behind_every_last_one() -> None:
    dag = example("saga_travel")
    begin, end = dag.get_task("begin"), dag.get_task("end")
    assert begin.is_setup and end.is_teardown
    assert {"book_flight", "book_hotel", "book_car"} <= begin.downstream_task_ids
    assert end.upstream_task_ids == {"begin", "seal"}


def test_work_that_must_be_held_is_refused_on_a_resource_that_settles_its_own() -> None:
    from txsaga.provider import GateStep, Publish, local

    class Never:
        """A gate that is never asked."""

        name = "never"

    @message_flow(resources={"reports": local("pg_reports"), "plain": "pg_plain"}, schedule=None)
    def settled() -> None:
        GateStep(task_id="audit", on="reports", sql="SELECT * FROM report", gate=Never())  # type: ignore[arg-type]
        Publish(task_id="told", topic="orders", on="plain")

        @step.python(on="plain")
        def sends(connection: object, flow: object) -> None:
            flow.send("orders", b"x")  # type: ignore[attr-defined]

        @step.python(on="plain")
        def votes(connection: object, flow: object) -> None:
            flow.vote("release", "me", yes=True)  # type: ignore[attr-defined]

        sends() >> votes()

    with pytest.raises(FlowRefused) as refused:
        settled()
    told = str(refused.value)
    assert "gate 'audit' votes about held work, and 'reports' settles its own" in told
    assert "task 'told' publishes with the flow, and 'plain' settles its own work" in told
    assert "step 'sends' calls flow.send, and 'plain' settles its own work" in told
    assert "'votes'" not in told


def test_a_flow_that_is_enclosed_by_hand_is_planned_too() -> None:
    from airflow.sdk import DAG

    from txsaga.provider import FlowEnd, SqlStep, enclose

    with DAG("by_hand", schedule=None), pytest.raises(FlowRefused) as refused:
        begin = FlowBegin(task_id="begin", coordinated=True, resources=["pg_one"])
        SqlStep(task_id="unknown", on="nowhere", sql="UPDATE x SET y = 1")
        enclose(begin, FlowEnd(task_id="end"))
    assert f"{__file__}: flow 'by_hand' can't run as it is declared" in str(refused.value)
    assert "'nowhere'" in str(refused.value)


def test_a_call_on_a_resource_is_in_the_plan() -> None:
    def reserve() -> None: ...

    @message_flow(schedule=None)
    def calling() -> None:
        step.call("reserve", reserve, on="nowhere")

    with pytest.raises(FlowRefused, match="'nowhere'"):
        calling()
    with pytest.raises(ConfigError, match="its rows commit with the flow"):
        step.call("reserve", reserve, on="home")


def test_one_failure_has_one_handler() -> None:
    from txsaga.provider import catch

    @message_flow(resources=["pg_one"], schedule=None)
    def twice() -> None:
        broken = step.sql("broken", "UPDATE x SET y = 1", on="pg_one")
        for name in ("first", "second"):
            catch(broken, step.sql(name, "UPDATE x SET y = 2", on="pg_one"))

    with pytest.raises(FlowRefused, match="'broken' is handled by 'first' and by 'second'; name one handler"):
        twice()
