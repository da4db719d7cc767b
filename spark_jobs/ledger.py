"""
The books of a bank from its transfers: two postings of each, and what every account comes to.

    python -m txsaga.spark spark_jobs/ledger.py --key night-2025-03-03 topic=transfers

A message is a transfer: {"id": 7, "from": "current", "to": "mortgage", "cents": 2500}. What is in the books already is
not posted again: each posting says which message it is from. The accounts are replaced as a whole, so that of two runs
at once one is refused. With gate=later the postings are left to a gate of the flow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from txsaga.gate import expect
from txsaga.spark.job import Job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

POSTINGS, ACCOUNTS = "bank.posting", "bank.account"
POSTING = {"queue": "int", "offset": "long", "transfer": "long", "account": "string", "cents": "long"}
ACCOUNT = {"account": "string", "cents": "long", "postings": "long"}
TRANSFER = "id long, `from` string, `to` string, cents long"
SOUND = [
    {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "account"}},
    {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "cents"}},
    {"type": "expect_column_sum_to_be_between", "kwargs": {"column": "cents", "min_value": 0, "max_value": 0}},
]
"""Postings name their accounts, and come to nothing."""


def run(job: Job) -> dict[str, int]:
    """Post what is new, and count the accounts anew."""
    messages = job.messages(job.argument("topic", "transfers"))
    for name, columns in ((POSTINGS, POSTING), (ACCOUNTS, ACCOUNT)):
        if not job.is_there(name):
            job.transaction.table(name).create(columns)
    known = job.spark.createDataFrame([], ", ".join(f"{name} {kind}" for name, kind in POSTING.items()))
    if job.is_there(POSTINGS):
        with job.tables(POSTINGS) as tables:
            known = tables[POSTINGS]
    new = postings(unseen(messages, known)).cache()
    try:
        gate = expect(SOUND, name="postings", allow_empty=True) if job.argument("gate", "here") == "here" else None
        posted = job.append(POSTINGS, new, gate=gate)
        kept = job.overwrite(ACCOUNTS, accounts(known.unionByName(new)))
    finally:
        new.unpersist()
    return {"postings": posted, "accounts": kept}


def unseen(messages: DataFrame, postings: DataFrame) -> DataFrame:
    """Return the messages that no posting is from."""
    return messages.join(postings.select("queue", "offset").distinct(), ["queue", "offset"], "left_anti")


def postings(messages: DataFrame) -> DataFrame:
    """Return two postings of each transfer: what one account gives, another gets."""
    from pyspark.sql import functions as F  # as everybody calls them

    said = F.from_json(F.col("body").cast("string"), TRANSFER)
    read = messages.select("queue", "offset", said.alias("t"))
    sides = F.array(
        F.struct(F.col("t.from").alias("account"), (-F.col("t.cents")).alias("cents")),
        F.struct(F.col("t.to").alias("account"), F.col("t.cents").alias("cents")),
    )
    split = read.select("queue", "offset", F.col("t.id").alias("transfer"), F.explode(sides).alias("side"))
    return split.select("queue", "offset", "transfer", "side.account", "side.cents")


def accounts(postings: DataFrame) -> DataFrame:
    """Return what every account comes to."""
    from pyspark.sql import functions as F  # as everybody calls them

    return postings.groupBy("account").agg(F.sum("cents").alias("cents"), F.count("*").alias("postings"))
