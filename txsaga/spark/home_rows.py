"""
A DataFrame as rows of a staging table, by Spark's own JDBC writer.

That writer commits each task separately, so it never writes to the target itself. Each row carries a number that a
rerun of its task assigns again: rows of a task that committed twice are detected, not taken for additional ones.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from txsaga.errors import FormatRefused, LakeMissing, StoreError

if TYPE_CHECKING:
    from txsaga.lake.home_rows_store import Access

DRIVER = "org.postgresql.Driver"
BATCH = 5000
SAID = re.compile(r"PSQLException: ERROR: (.+)")
MISSING = "this session lacks the JDBC driver of PostgreSQL: `make jars`, set TXSAGA_SPARK_JARS, start a new session"


def columns(frame: Any) -> list[str]:
    """Return the columns of a frame that can be written."""
    if frame.isStreaming:
        raise FormatRefused("the rows are a stream; write each batch of it, with foreachBatch")
    return list(frame.columns)


def write(frame: Any, staging: str, number: str, access: Access) -> None:
    """Write a frame, with a number for each row, into an existing table."""
    from pyspark.sql import functions as F  # the conventional name

    numbered = frame.withColumn(number, F.monotonically_increasing_id())
    writer = numbered.write.format("jdbc").mode("append")
    try:
        writer.options(**access.jdbc, dbtable=staging, driver=DRIVER, batchsize=BATCH).save()
    except Exception as error:
        if "ClassNotFoundException" in str(error) and DRIVER in str(error):
            raise LakeMissing(MISSING) from error
        if (refused := SAID.search(str(error))) is not None:
            raise StoreError(f"the home database did not take the rows: {refused[1]}") from error
        raise
