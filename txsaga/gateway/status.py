"""What a client is answered: the protocol's codes, and the one that each error of txsaga becomes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

from txsaga import errors
from txsaga.gateway import wire

logger = logging.getLogger("txsaga")


class Code(IntEnum):
    """The codes of the protocol that this server answers with."""

    OK = 20_000
    MULTIPLE_RESULTS = 30_000
    BAD_REQUEST = 40_000
    ILLEGAL_TOPIC = 40_002
    ILLEGAL_CONSUMER_GROUP = 40_003
    ILLEGAL_MESSAGE_TAG = 40_004
    ILLEGAL_MESSAGE_KEY = 40_005
    ILLEGAL_MESSAGE_GROUP = 40_006
    ILLEGAL_MESSAGE_PROPERTY_KEY = 40_007
    INVALID_TRANSACTION_ID = 40_008
    ILLEGAL_FILTER_EXPRESSION = 40_010
    ILLEGAL_INVISIBLE_TIME = 40_011
    ILLEGAL_DELIVERY_TIME = 40_012
    INVALID_RECEIPT_HANDLE = 40_013
    MESSAGE_PROPERTY_CONFLICT_WITH_TYPE = 40_014
    UNRECOGNIZED_CLIENT_TYPE = 40_015
    MESSAGE_CORRUPTED = 40_016
    CLIENT_ID_REQUIRED = 40_017
    ILLEGAL_OFFSET = 40_019
    UNAUTHORIZED = 40_100
    FORBIDDEN = 40_300
    MESSAGE_NOT_FOUND = 40_401
    TOPIC_NOT_FOUND = 40_402
    CONSUMER_GROUP_NOT_FOUND = 40_403
    OFFSET_NOT_FOUND = 40_404
    MESSAGE_BODY_TOO_LARGE = 41_301
    MESSAGE_BODY_EMPTY = 41_302
    PRECONDITION_FAILED = 42_800
    TOO_MANY_REQUESTS = 42_900
    MESSAGE_PROPERTIES_TOO_LARGE = 43_101
    INTERNAL_SERVER_ERROR = 50_001
    HA_NOT_AVAILABLE = 50_002
    NOT_IMPLEMENTED = 50_100
    FAILED_TO_CONSUME_MESSAGE = 60_000


class CallRefused(Exception):
    """A call is refused with a code of the protocol."""

    def __init__(self, code: Code, why: str) -> None:
        super().__init__(why)
        self.code = code


OF_ERRORS: Mapping[type[Exception], Code] = {
    errors.UnknownTopic: Code.TOPIC_NOT_FOUND,
    errors.ReservedName: Code.ILLEGAL_TOPIC,
    errors.TopicTypeMismatch: Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
    errors.InvalidMessage: Code.BAD_REQUEST,
    errors.ConfigError: Code.BAD_REQUEST,
    errors.UnknownGroup: Code.CONSUMER_GROUP_NOT_FOUND,
    errors.GroupInUse: Code.ILLEGAL_CONSUMER_GROUP,
    errors.GroupKindMismatch: Code.ILLEGAL_CONSUMER_GROUP,
    errors.UnknownTransaction: Code.INVALID_TRANSACTION_ID,
    errors.EndRefused: Code.INVALID_TRANSACTION_ID,
    errors.DecidedOtherwise: Code.PRECONDITION_FAILED,
    errors.Superseded: Code.PRECONDITION_FAILED,
    errors.TransactionClosed: Code.PRECONDITION_FAILED,
    errors.ClaimLost: Code.INVALID_RECEIPT_HANDLE,
    errors.TransactionsRejected: Code.FORBIDDEN,
    errors.RightsMissing: Code.FORBIDDEN,
    errors.NotPrimary: Code.HA_NOT_AVAILABLE,
    errors.StoreBusy: Code.TOO_MANY_REQUESTS,
}
"""By the class of an error, or the nearest one above it; any other is INTERNAL_SERVER_ERROR."""


def status(code: Code, text: str = "") -> Any:
    """Return a status for an answer."""
    return wire.new("Status", code=int(code), message=text or code.name)


def of_all(entries: Sequence[Any]) -> Any:
    """Return the status of a call with several entries: theirs, if they agree; its text has the name of the code."""
    first = entries[0].status
    if len({each.status.code for each in entries}) > 1:
        return status(Code.MULTIPLE_RESULTS)
    return first if first.code == Code.OK else status(first.code, f"{Code(first.code).name}: {first.message}")


def of_error(error: Exception) -> Any:
    """Return the status that an error is answered with; what is no refusal is logged, and clients get no text of it."""
    if isinstance(error, CallRefused):
        return status(error.code, str(error))
    if not isinstance(error, errors.TxSagaError):
        logger.error("a call of the gateway failed", exc_info=error)
        return status(Code.INTERNAL_SERVER_ERROR, type(error).__name__)
    if isinstance(error, errors.StoreUnavailable | errors.OutcomeUnknown):  # the text names the server
        return status(Code.INTERNAL_SERVER_ERROR, "the store is unavailable; try again")
    known = (OF_ERRORS[kind] for kind in type(error).__mro__ if kind in OF_ERRORS)
    return status(next(known, Code.INTERNAL_SERVER_ERROR), str(error))
