"""
Refusals, in the words and with the types of the REST specification: clients act on them.
"""

from __future__ import annotations

from txsaga import errors
from txsaga.iceberg.refusals import BadUpdate, RequirementFailed


class Refusal(Exception):
    """A request is refused."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind = status, kind


def bad(message: str) -> Refusal:
    """Refuse a request that makes no sense."""
    return Refusal(400, "BadRequestException", message)


def missing(what: str, name: object) -> Refusal:
    """Refuse a request for something that does not exist: a namespace, a table or a view."""
    return Refusal(404, f"NoSuch{what}Exception", f"{what} does not exist: {name}")


def taken(message: str) -> Refusal:
    """Refuse to create what exists."""
    return Refusal(409, "AlreadyExistsException", message)


def conflict(message: str) -> Refusal:
    """Refuse a commit that another one overtook."""
    return Refusal(409, "CommitFailedException", message)


def refusal(error: Exception) -> Refusal:
    """Return how an error of the product is answered."""
    match error:
        case Refusal():
            return error
        case RequirementFailed() | errors.EffectConflict() | errors.TableTaken():
            return conflict(str(error))
        case BadUpdate():
            return Refusal(400, "IllegalArgumentException", str(error))  # as Iceberg's clients know it
        case errors.RightsMissing():
            return Refusal(403, "ForbiddenException", str(error))
        case errors.OutcomeUnknown() | errors.InDoubt() if not isinstance(error, errors.WarehouseAway):
            return Refusal(500, "CommitStateUnknownException", str(error))
        case errors.StoreUnavailable() | errors.WarehouseAway():
            return Refusal(503, "ServiceUnavailableException", str(error))
        case errors.TxSagaError():
            return bad(str(error))
        case _:
            return Refusal(500, "InternalServerError", "the server failed; its log has the reason")
