"""
Refusals, in the words and with the types of the REST specification: clients act on them.
"""

from __future__ import annotations

from collections.abc import Mapping

from txsaga import errors
from txsaga.iceberg.refusals import BadUpdate, RequirementFailed


class CatalogRefusal(Exception):
    """A request is refused."""

    def __init__(self, status: int, kind: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.kind, self.headers = status, kind, headers


def bad(message: str) -> CatalogRefusal:
    """Refuse a request that makes no sense."""
    return CatalogRefusal(400, "BadRequestException", message)


def missing(what: str, name: object) -> CatalogRefusal:
    """Refuse a request for something that does not exist: a namespace, a table or a view."""
    return CatalogRefusal(404, f"NoSuch{what}Exception", f"{what} does not exist: {name}")


def taken(message: str) -> CatalogRefusal:
    """Refuse to create what exists."""
    return CatalogRefusal(409, "AlreadyExistsException", message)


def conflict(message: str) -> CatalogRefusal:
    """Refuse a commit that another one overtook."""
    return CatalogRefusal(409, "CommitFailedException", message)


def refusal(error: Exception) -> CatalogRefusal:
    """Return how an error of the product is answered."""
    match error:
        case CatalogRefusal():
            return error
        case errors.NotCarried():
            return CatalogRefusal(400, "ValidationException", str(error))
        case RequirementFailed() | errors.EffectConflict() | errors.TableTaken():
            return conflict(str(error))
        case BadUpdate():
            return CatalogRefusal(400, "IllegalArgumentException", str(error))  # as Iceberg's clients know it
        case errors.RightsMissing():
            return CatalogRefusal(403, "ForbiddenException", str(error))
        case errors.OutcomeUnknown() | errors.InDoubt() if not isinstance(error, errors.WarehouseAway):
            return CatalogRefusal(500, "CommitStateUnknownException", str(error))
        case errors.StoreUnavailable() | errors.WarehouseAway():
            return CatalogRefusal(503, "ServiceUnavailableException", str(error))
        case errors.TxSagaError():
            return bad(str(error))
        case UnicodeEncodeError():
            return bad(f"the text can't be stored: {error.reason}")
        case _:
            return CatalogRefusal(500, "InternalServerError", "the server failed; its log has the reason")
