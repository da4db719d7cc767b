"""
The books of a bank in Iceberg tables: Spark stages them, a gate checks them, and a message and a row go with them.

It is an Airflow DAG file. The DAG `lake_open` creates the topics, the transfers and the table of reports.
"""

from airflow.sdk import Param

from txsaga.gate import expect
from txsaga.provider import message_flow, publish, step

SOUND = [
    {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "account"}},
    {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "cents"}},
    {"type": "expect_column_sum_to_be_between", "kwargs": {"column": "cents", "min_value": 0, "max_value": 0}},
]
FAULTS = {
    "none": "nothing: everything becomes visible",
    "spoilt": "a transfer has no recipient: the gate rejects it",
    "after the gate": "a step fails after the gate has accepted the rows",
}

ABOUT = """
### Two tables, a message and a row, one decision

| task | what | visible |
|---|---|---|
| `books` | Spark stages `bank.posting` and `bank.account` | with the flow |
| `audit` | Great Expectations checks the staged postings and votes | |
| `report` | a row in a database, held prepared | with the flow |
| `publish_lake_books` | a message | with the flow |
| `end` | | decides |

Trigger it with a *fault*: nothing becomes visible, and `txsaga tx ballots` shows what the gate found.
"""


@message_flow(
    coordinated=True,
    resources={"reports": "lake_reports"},
    schedule=None,
    catchup=False,
    tags=["txsaga", "example", "spark"],
    doc_md=ABOUT,
    render_template_as_native_obj=True,
    params={"fault": Param("none", enum=list(FAULTS), values_display=FAULTS, title="What goes wrong")},
)
def lake_publish() -> None:
    """Keep the books of a bank in tables."""
    books = step.spark(
        "books",
        "spark_jobs/ledger.py",
        arguments={"topic": "{{ 'lake_spoilt' if params.fault == 'spoilt' else 'lake_transfers' }}", "gate": "later"},
        conf={"spark.sql.shuffle.partitions": "2"},
    )
    audit = step.gate("audit", expect(SOUND, name="postings", allow_empty=True), table="bank.posting")
    report = step.sql(
        "report",
        "INSERT INTO report VALUES (:run, :postings / CAST(:divisor AS int))",
        on="reports",
        parameters={
            "run": "{{ run_id }}",
            "postings": "{{ ti.xcom_pull(task_ids='books')['postings'] }}",
            "divisor": "{{ 0 if params.fault == 'after the gate' else 1 }}",
        },
    )
    tell = publish(
        "lake_books", {"run": "{{ run_id }}", "kept": "{{ ti.xcom_pull(task_ids='books') }}"}, key="{{ run_id }}"
    )
    books >> audit >> report >> tell


lake_publish()
