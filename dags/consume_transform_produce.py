"""
Read from one topic and write to another: the readings are acknowledged exactly if the alarms become visible.

It is an Airflow DAG file. The topics are `readings` and `alarms`.
"""

from airflow.sdk import Param

from txsaga import Ballot
from txsaga.provider import ConsumeStep, Publish, message_flow, vote

FAULTS = {
    "none": "nothing: everything is read and written once",
    "after": "a task fails after the write; all readings are delivered again",
}

ABOUT = """
### Consume, transform, produce, exactly once

`take` receives up to a hundred readings for this run. Each is published as an alarm. The decision of `end` acknowledges
the readings and makes the alarms visible. If anything fails, the next run gets the readings again, as another attempt.
"""


@message_flow(
    ballots=[Ballot(name="check", voters=("check",))],
    schedule=None,
    catchup=False,
    tags=["txsaga", "example"],
    doc_md=ABOUT,
    render_template_as_native_obj=True,
    params={"fault": Param("none", enum=list(FAULTS), values_display=FAULTS, title="What goes wrong")},
)
def consume_transform_produce() -> None:
    """Make an alarm of each reading."""
    take = ConsumeStep(task_id="take", topics="readings", consumer_group="alarm-app")
    alarms = Publish.partial(task_id="alarm", topic="alarms").expand(
        body=take.output.map(lambda reading: {"alarm": reading["body"]})
    )
    alarms >> vote("check", ballot="check", yes="{{ params.fault == 'none' }}", trigger_rule="none_failed")


consume_transform_produce()
