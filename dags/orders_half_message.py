"""
An order and its message in one transaction: the order is booked and the message becomes visible, or neither.

It is an Airflow DAG file. The first task creates the shop's table; the topic is `orders`.
"""

from airflow.sdk import DAG, Param

from txsaga.provider import LocalTransaction

TABLE = "CREATE TABLE IF NOT EXISTS orders (run text PRIMARY KEY, item text NOT NULL, pieces int CHECK (pieces > 0))"
BOOK = "INSERT INTO orders (run, item, pieces) VALUES (:run, :item, :pieces)"

ABOUT = """
### A half message, local work, a decision

`order` stores a half message, which no consumer sees, books the order in the shop's database, and decides: three steps
in one task. If the booking is refused, the message is dropped. If the process dies in between, check-back reads the
evidence that the booking left in the shop's database, and decides accordingly.

Trigger it with 0 pieces: the order is refused, and no message arrives.
"""

with DAG(
    "orders_half_message",
    schedule=None,
    catchup=False,
    tags=["txsaga", "example"],
    doc_md=ABOUT,
    render_template_as_native_obj=True,
    params={
        "item": Param("lamp", type="string", minLength=1, title="What is ordered"),
        "pieces": Param(1, type="integer", minimum=0, maximum=100, title="Pieces", description="0 is refused"),
    },
) as orders_half_message:
    LocalTransaction(
        task_id="order",
        topic="orders",
        body={"item": "{{ params.item }}", "pieces": "{{ params.pieces }}"},
        key="{{ run_id }}",
        connection="shop",
        sql=[TABLE, BOOK],
        parameters={"run": "{{ run_id }}", "item": "{{ params.item }}", "pieces": "{{ params.pieces }}"},
    )
