"""
A table, or what a query says of tables, as messages: one for each row, its columns as JSON.

    python -m txsaga.spark spark_jobs/publish_table.py --key day-1 topic=balances table=bank.account key=account
    … topic=rich table=bank.account query='SELECT * FROM account WHERE cents > 100000'

A query finds each table under the last word of its name, all of them as they were at one moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from txsaga.spark.job import Job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def run(job: Job) -> dict[str, object]:
    """Send the rows of a table or a query."""
    names = job.argument("table").split(",")
    with job.tables(*names) as tables:
        for name, frame in tables.items():
            frame.createOrReplaceTempView(name.rpartition(".")[2])
        query = job.argument("query", f"SELECT * FROM {names[0].rpartition('.')[2]}")
        rows = messages(job.spark.sql(query), job.arguments.get("key"))
        job.send(job.argument("topic"), rows)
        return {"topic": job.argument("topic"), "query": query}


def messages(frame: DataFrame, key: str | None = None) -> DataFrame:
    """Return rows as messages: the columns as JSON, one of them as the key too."""
    from pyspark.sql import functions as F  # as everybody calls them

    body = F.to_json(F.struct(*(F.col(f"`{name}`") for name in frame.columns)), {"ignoreNullFields": "false"})
    columns = [body.alias("body")]
    if key is not None:
        columns.append(F.col(f"`{key}`").cast("string").alias("key"))
    return frame.select(*columns)
