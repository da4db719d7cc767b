"""
The books of a bank, kept in tables by Spark: staged, looked at by a gate, and published with a message and a row.

It is an Airflow DAG file. The report and the transfers are made by the DAG `lake_open`, which names the topics, too.
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
    "none": "everything goes well: all of it is there",
    "spoilt": "a transfer goes to nobody: the gate says no",
    "behind the gate": "a step fails behind the yes of the gate",
}

ABOUT = """
### Two tables, a message and a row, one decision

| task | what | visible |
|---|---|---|
| `books` | Spark stages `bank.posting` and `bank.account` | with the flow |
| `audit` | Great Expectations looks at the staged postings, and votes | |
| `report` | a row in a database, held prepared | with the flow |
| `publish_lake_books` | a message | with the flow |
| `end` | | decides |

Trigger it with a *fault*: nothing of it is there, and `txsaga tx ballots` tells what the gate found.
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
            "divisor": "{{ 0 if params.fault == 'behind the gate' else 1 }}",
        },
    )
    tell = publish(
        "lake_books", {"run": "{{ run_id }}", "kept": "{{ ti.xcom_pull(task_ids='books') }}"}, key="{{ run_id }}"
    )
    books >> audit >> report >> tell


lake_publish()
