"""
What `lake_publish` works on: the table of reports, and transfers in two topics; run it once, or again for more.

It is an Airflow DAG file. The topics are `lake_transfers`, `lake_spoilt` and `lake_books`, of type transaction.
"""

from txsaga.provider import local, message_flow, publish, step

GOOD = [
    {"id": 1, "from": "current", "to": "mortgage", "cents": 2500},
    {"id": 2, "from": "mortgage", "to": "fees", "cents": 100},
]
SPOILT = {"id": 3, "from": "current", "to": None, "cents": 7}


@message_flow(
    resources={"reports": local("lake_reports")},
    schedule=None,
    catchup=False,
    tags=["txsaga", "example", "spark"],
    doc_md="Creates the table of reports, two good transfers, and one that the gate rejects.",
)
def lake_open() -> None:
    """Make what the books are kept from."""
    step.sql("open_reports", "CREATE TABLE IF NOT EXISTS report (run text, postings int)", on="reports")
    publish("lake_transfers", GOOD[0], name="transfer_1")
    publish("lake_transfers", GOOD[1], name="transfer_2")
    publish("lake_spoilt", SPOILT, name="spoilt")


lake_open()
