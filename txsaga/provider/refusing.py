"""
How a task fails when txsaga refuses: what a retry can't fix fails the task at once, with a one-line error.

Errors that a retry may fix (an unavailable store, a lock, an unknown outcome) pass unchanged, and Airflow tries again.
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
    """The flow was rolled back: its task and its run fail, and no retry changes that."""


@contextmanager
def refused_for_good() -> Iterator[None]:
    """Turn errors that no retry can fix into a failure without retries."""
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
