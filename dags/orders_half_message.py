"""
An order and its message with one fate: the order is booked and the message is visible, or neither.

It is an Airflow DAG file. The shop's table is made by the first task; the topic is `orders`.
"""

from airflow.sdk import DAG, Param

from txsaga.provider import LocalTransaction

TABLE = "CREATE TABLE IF NOT EXISTS orders (run text PRIMARY KEY, item text NOT NULL, pieces int CHECK (pieces > 0))"
BOOK = "INSERT INTO orders (run, item, pieces) VALUES (:run, :item, :pieces)"

ABOUT = """
### A half message, local work, a decision

`order` stores a half message that nobody sees, books the order in the shop's database, and decides: three steps in one
task. If the booking is refused, the message never existed. If the process dies between them, check-back asks the
shop's database, where the booking has left evidence, and decides as it says.

Trigger it with no pieces and see nothing come.
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
