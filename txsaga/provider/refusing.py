"""
What a task says when txsaga refuses: whatever a retry can't mend fails the task at once, in one line.

What a retry may mend (a store that is away, a lock, an unknown outcome) comes out as it is, and Airflow tries again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow.sdk.exceptions import AirflowFailException

from txsaga.errors import (
    AlreadyCommitted,
    ConfigError,
    DecidedOtherwise,
    InvalidMessage,
    ReservedName,
    ResourceUnknown,
    TransactionClosed,
    UnknownTopic,
)

FOR_GOOD = (ConfigError, InvalidMessage, ReservedName, ResourceUnknown, TransactionClosed, UnknownTopic)
CLEAR_ALL = "clear the whole run, its first task included, to run it again as a new life of the transaction"


class FlowRolledBack(AirflowFailException):
    """The flow was rolled back: its task and its run are red, and no retry changes that."""


@contextmanager
def refused_for_good() -> Iterator[None]:
    """Turn what no retry can mend into a failure without retries."""
    try:
        yield
    except AlreadyCommitted as decided:
        raise AirflowFailException(
            f"transaction {decided.txid} is committed; a task can't add to it any more"
        ) from None
    except DecidedOtherwise as decided:
        raise AirflowFailException(f"transaction {decided.txid} is rolled back; {CLEAR_ALL}") from None
    except FOR_GOOD as refused:
        raise AirflowFailException(f"{type(refused).__name__}: {refused}") from refused
