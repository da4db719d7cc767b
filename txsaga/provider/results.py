"""
The result of a step, kept for retries of its task in Airflow's task state, together with its transaction id.

A step may be done although its process died before it wrote its XCom; the retry then does not repeat the step but
returns the kept result. So a result is kept before its step is done, in Airflow's XCom format, and a step whose result
can't be kept fails. If no result was kept, the retry returns none and logs that.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException

from txsaga.errors import ConfigError

logger = logging.getLogger(__name__)

PLACE = "txsaga_result"
MAX_RESULT = 1024 * 1024
"""The largest result, in bytes as stored in Airflow's database."""


def keep_result(context: Context, txid: int, result: object, most: int | None = None) -> None:
    """Keep the result of a step before it is done; fail the task if it can't be serialized or is too large."""
    plain = as_plain(result, most)
    store: Any = context.get("task_state_store")
    if store is None or (result is None and context["ti"].try_number <= 1):
        return  # nothing to keep, and no earlier attempt kept anything
    store.set(PLACE, json.dumps({"txid": txid, "result": plain}))


def find_result(context: Context, txid: int) -> object:
    """Return what an earlier attempt kept for this transaction."""
    store: Any = context.get("task_state_store")
    found = None if store is None else store.get(PLACE)
    if isinstance(found, str):
        kept = json.loads(found)
        if kept.get("txid") == txid:
            return from_plain(kept["result"])
    logger.info("no result of the attempt that did the step was kept")
    return None


def as_plain(result: object, most: int | None = None) -> object:
    """Return a result as JSON in Airflow's XCom format; fail if that is impossible or it has more than `most` bytes."""
    from airflow.sdk.serde import serialize

    try:
        plain = serialize(result)
        size = len(json.dumps(plain))
    except (TypeError, ValueError, AttributeError, RecursionError) as reason:
        raise AirflowFailException(
            f"the step returns a {type(result).__name__} that can't be handed on ({reason}); "
            "return plain values, or set do_xcom_push=False"
        ) from None
    if most is not None and size > most:
        raise AirflowFailException(
            f"the step returns {size:,} bytes, and at most {most:,} are handed on, by way of Airflow's database; keep "
            "them in a table or a file and return its name, allow more by max_result=, or set do_xcom_push=False"
        )
    return plain


def from_plain(kept: Any) -> object:
    """Return the result of what `as_plain` returned."""
    from airflow.sdk.serde import deserialize

    try:
        return deserialize(kept)
    except ImportError as refused:
        raise AirflowFailException(
            f"the result of the attempt that did the step can't be read: {refused}; "
            "name its class in allowed_deserialization_classes of Airflow's [core]"
        ) from None


def result_limit(said: object, task: str) -> int:
    """Validate how many bytes a step's result may have."""
    if type(said) is not int or said < 1:
        raise ConfigError(f"max_result of step {task!r} is {said!r}; give a number of bytes, 1 or more")
    return said
