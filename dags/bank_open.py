"""
The tables and accounts that `bank_transfer` works on; run it once, or again.

It is an Airflow DAG file.
"""

from txsaga.provider import local, message_flow, step

TABLE = "CREATE TABLE IF NOT EXISTS account (id int PRIMARY KEY, cents bigint NOT NULL CHECK (cents >= 0))"
OPEN = "INSERT INTO account SELECT id, 10000 FROM generate_series(1, 100) AS id ON CONFLICT DO NOTHING"
AUDIT = "CREATE TABLE IF NOT EXISTS audit (run text, what text)"


@message_flow(
    resources={
        "current": local("bank_current"),
        "mortgage": local("bank_mortgage"),
        "audit": local("bank_audit"),
    },
    schedule=None,
    catchup=False,
    tags=["txsaga", "example"],
    doc_md="Creates the accounts of the bank. Each step commits when it ends; you can run it again.",
)
def bank_open() -> None:
    """Open a hundred accounts with 100.00 in each of two banks."""
    step.sql("open_current", [TABLE, OPEN], on="current")
    step.sql("open_mortgage", [TABLE, OPEN], on="mortgage")
    step.sql("open_audit", AUDIT, on="audit")


bank_open()
