"""A moment has a time zone, or it is refused in one line: when the file is parsed, or in the log of its task."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.sdk import DAG

from tests.provider.house import House
from txsaga.errors import ConfigError, FlowRefused
from txsaga.provider import Publish, message_flow, publish

NAIVE, AWARE = datetime(2026, 3, 1, 8), datetime(2020, 3, 1, 8, tzinfo=UTC)  # noqa: DTZ001  # it is what is refused
pytestmark = pytest.mark.req("CARD-08")


@pytest.mark.parametrize(
    "said", [{"start_date": NAIVE}, {"end_date": NAIVE}, {"default_args": {"start_date": NAIVE}}], ids=str
)
def test_a_flow_that_begins_or_ends_without_a_zone_is_an_import_error(said: dict[str, Any]) -> None:
    with pytest.raises(
        FlowRefused, match=r"test_moments\.py, line \d+: .* is 2026-03-01 08:00:00, without a time zone"
    ):

        @message_flow(schedule=None, **said)
        def naive() -> None:
            publish("told")


def test_a_message_for_a_moment_without_a_zone_is_an_import_error() -> None:
    @message_flow(schedule=None)
    def naive() -> None:
        publish("later", mode="plain", deliver_at=NAIVE)

    with pytest.raises(
        FlowRefused, match=r"line \d+: .* deliver_at of task 'publish_later' is 2026-03-01 08:00:00, with"
    ):
        naive()


def test_what_goes_with_a_transaction_can_not_come_later() -> None:
    with DAG("later", schedule=None), pytest.raises(ConfigError, match='use mode="plain"'):
        Publish(task_id="later", topic="later", delay=timedelta(seconds=1))


def test_what_is_rendered_is_looked_at_in_the_task(house: House, capfd: pytest.CaptureFixture[str]) -> None:
    house.topic("later", type="delay")
    retried: dict[str, Any] = {"retries": 2, "retry_delay": timedelta(0)}
    with DAG("rendered", schedule=None, default_args=retried) as dag:
        for name, moment in (
            ("given", AWARE),
            ("aware", "{{ '2020-03-01T08:00:00+01:00' }}"),
            ("naive", "{{ '2026-03-01T08:00:00' }}"),
            ("nothing", "{{ 'tomorrow' }}"),
        ):
            Publish(task_id=name, topic="later", body=name, mode="plain", deliver_at=moment)
        Publish(task_id="soon", topic="later", body="soon", mode="plain", delay=timedelta(microseconds=1))
    run = house.run(dag)
    assert run.tasks == {
        "given": "success",
        "aware": "success",
        "naive": "failed",
        "nothing": "failed",
        "soon": "success",
    }
    assert (run.tries()["naive"], run.tries()["nothing"]) == (1, 1)
    told = capfd.readouterr()
    for line in (
        "deliver_at of task 'naive' is 2026-03-01 08:00:00, without a time zone; give pendulum.datetime(…, tz=…)",
        "deliver_at of task 'nothing' is 'tomorrow', which is not a time",
    ):
        assert line in told.out + told.err
