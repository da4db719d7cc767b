"""
Batches of a stream, each a transaction of its own, once.

    def write(tx, frame):
        tx.table("bank.posting").append(frame)
        txsaga.spark.send(broker, tx, "posted", frame.selectExpr("to_json(struct(*)) AS body"))

    batches = stream.writeStream.foreachBatch(each_batch(producer, "postings", write))

Spark repeats a batch whose end it had not written down. It has the number that it had before, so its transaction has
the same key; if that is committed the batch is passed over. If this were left out, what a repeated batch writes would
be there twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from txsaga.errors import AlreadyCommitted
from txsaga.model.validation import validate_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from txsaga.engine.producer import Producer
    from txsaga.engine.transaction import Transaction

logger = logging.getLogger("txsaga")


def each_batch(
    producer: Producer, query: str, write: Callable[[Transaction, DataFrame], object]
) -> Callable[[DataFrame, int], None]:
    """Return what `foreachBatch` takes: it writes each batch in a transaction with the key `query/number`, once."""
    validate_key(query)

    def batch(frame: DataFrame, number: int) -> None:
        try:
            with producer.transaction(key=f"{query}/{number}") as transaction:
                write(transaction, frame)
        except AlreadyCommitted:
            logger.info("batch %d of %s was committed before; it is passed over", number, query)

    return batch
