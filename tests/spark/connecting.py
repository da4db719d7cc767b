"""
A program with a session of Spark Connect, in a process of its own: one that has a classic session can't open it.

    python -m tests.spark.connecting MASTER TABLE

It changes a table on a branch beside a message and prints what it found, as JSON.
"""

import json
import os
import sys

import txsaga
from txsaga.errors import TxSagaError
from txsaga.spark.branching import quoted
from txsaga.spark.sessions import QUICK, application_id, configured

MERGE = """
MERGE INTO {table} t USING (SELECT * FROM VALUES (1, 11.00), (5, 5.00) AS u (id, amount)) u ON t.id = u.id
 WHEN MATCHED THEN UPDATE SET amount = u.amount
 WHEN NOT MATCHED THEN INSERT (id, day, amount, note) VALUES (u.id, date'2025-03-04', u.amount, 'new')"""


def main(master: str, table: str) -> None:
    """Change the table."""
    from pyspark.sql import SparkSession

    with txsaga.connect(roles=False, answering=False) as broker:
        builder = SparkSession.builder.remote(master)
        for key, value in configured(broker, master).items():
            builder = builder.config(key, value)
        builder = builder.config("spark.driver.extraJavaOptions", QUICK)
        spark = builder.getOrCreate()
        producer = broker.producer("connect", checker=lambda question: txsaga.UNKNOWN)
        found: dict[str, object] = {"application": application_id(spark)}
        try:
            with producer.transaction(key="one") as tx:
                with tx.table(table).branch(spark) as ledger:
                    ledger.sql(MERGE)
                    ledger.sql("DELETE FROM {table} WHERE id = 2")
                    frame = spark.sql(f"SELECT 6L AS id, day, amount, note FROM {ledger.identifier} WHERE id = 5")
                    frame.writeTo(ledger.identifier).append()
                    found["inside"] = ledger.sql("SELECT count(*) FROM {table}").collect()[0][0]
                    found["outside"] = spark.table(quoted(ledger.name)).count()
            with producer.transaction(key="two") as tx, tx.table(table).branch(spark) as ledger:
                ledger.sql("DELETE FROM {table} WHERE id = 3")
                spark.sql(f"INSERT INTO {quoted(ledger.name)} VALUES (9, date'2025-03-04', 9.00, 'past it')")
        except TxSagaError as refused:
            found["refused"] = f"{type(refused).__name__}: {refused}"
        print("FOUND", json.dumps(found), flush=True)
        spark.stop()
    os._exit(0)  # a local server is left to its end, and may take a minute


if __name__ == "__main__":
    main(*sys.argv[1:])
