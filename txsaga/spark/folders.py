"""
A DataFrame as part files of a Parquet directory, written by Spark's executors out of readers' sight.

The executors count the rows. Executors that don't share the folder silently write to their own disks, and the append
then finds fewer files, or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # the conventional name

from txsaga.errors import FormatRefused
from txsaga.resources.files.parquet import CODEC, require_columns


def write(rows: Any, place: Path, partitions: Sequence[str]) -> int:
    """Write a DataFrame; return how many rows the executors report."""
    frame: DataFrame = rows
    if frame.isStreaming:
        raise FormatRefused("the rows are a stream; append each batch of it, with foreachBatch")
    require_columns(partitions, frame.columns)
    observed = Observation()
    counted = frame.observe(observed, F.count(F.lit(1)).alias("rows"))
    writer = counted.write.mode("errorifexists").option("compression", CODEC)
    (writer.partitionBy(*partitions) if partitions else writer).parquet(place.as_uri())
    return int(observed.get.get("rows", 0))
