"""
Messages to three brokers in one transaction: a policy chooses the brokers, and one decision makes them visible.

It is an Airflow DAG file. The brokers are the connections `broker_east`, `broker_west` and `broker_north`, each with a
topic `orders`; the store of `txsaga_default` coordinates.
"""

from airflow.sdk import DAG, Param

from txsaga.provider import ClusterPublish

ABOUT = """
### One transaction over a cluster of brokers

A branch with the same transaction id is opened on every broker that is available. Brokers with messages vote; the
others are rolled back. An unavailable broker is skipped, unless it already has messages: then everything is rolled
back.
"""

with DAG(
    "cluster_publish",
    schedule=None,
    catchup=False,
    tags=["txsaga", "example"],
    doc_md=ABOUT,
    render_template_as_native_obj=True,
    params={
        "orders": Param([1, 2, 3], type="array", minItems=1, title="Orders to publish"),
    },
) as cluster_publish:
    ClusterPublish(
        task_id="publish",
        topic="orders",
        messages="{{ params.orders }}",
        brokers={"east": "broker_east", "west": "broker_west", "north": "broker_north"},
        policy="round-robin",
    )
