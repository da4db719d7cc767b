"""
Proof that the books balance: postings and accounts of one moment say the same, and all postings come to nothing.

    python -m txsaga.spark spark_jobs/reconcile.py

Both tables are read by one cut: two reads of two tables could see different decisions, and differ without a fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.ledger import ACCOUNTS, POSTINGS, accounts
from txsaga.errors import TxSagaError
from txsaga.spark.job import Job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SHOWN = 5


class BooksDiffer(TxSagaError):
    """The books do not balance."""


def run(job: Job) -> dict[str, int]:
    """Compare the tables of one moment."""
    with job.tables(POSTINGS, ACCOUNTS) as tables:
        postings, kept = tables[POSTINGS], tables[ACCOUNTS]
        wrong = differences(postings, kept)
        found = wrong.limit(SHOWN).collect()
        if found:
            told = "; ".join(f"{row['account']}: {row['posted']} posted, {row['kept']} kept" for row in found)
            raise BooksDiffer(f"{wrong.count()} accounts differ from their postings: {told}")
        sum_of_all = total(postings)
        if sum_of_all:
            raise BooksDiffer(f"all postings come to {sum_of_all}, not to nothing")
        return {"accounts": kept.count(), "postings": postings.count(), "total": sum_of_all}


def differences(postings: DataFrame, kept: DataFrame) -> DataFrame:
    """Return the accounts whose postings come to something else than is kept of them."""
    from pyspark.sql import functions as F  # as everybody calls them

    posted = accounts(postings).select("account", F.col("cents").alias("posted"))
    joined = posted.join(kept.select("account", F.col("cents").alias("kept")), "account", "full")
    return joined.where(~F.col("posted").eqNullSafe(F.col("kept")))


def total(postings: DataFrame) -> int:
    """Return what all postings come to."""
    from pyspark.sql import functions as F  # as everybody calls them

    (row,) = postings.agg(F.coalesce(F.sum("cents"), F.lit(0)).alias("total")).collect()
    return int(row["total"])
