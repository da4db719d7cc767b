"""
What the home database answers instead of an answer: it said no, it is away, or nobody knows.

If one of these is caught and dropped, nothing is lost: what was stored is found again by its number.
"""

from txsaga.errors.root import TxSagaError


class StoreError(TxSagaError):
    """The home database said no."""


class StoreUnavailable(StoreError):
    """The home database can't be reached or did not answer in time; safe to retry."""

    retryable = True
    code = "SERVICE_NOT_AVAILABLE"


class OutcomeUnknown(StoreError):
    """The connection broke, or the broker was closed, while a commit was under way; read back before anything else."""


class StoreBusy(StoreError):
    """Too many calls wait already."""

    retryable = True


class NotPrimary(StoreError):
    """A standby was asked to write."""

    code = "SLAVE_NOT_AVAILABLE"


class ChunkDamaged(StoreError):
    """A stored chunk of messages can't be read: it is not what was written, or was written wrong."""


class SchemaMissing(StoreError):
    """The namespace holds no schema of txsaga, or an older one."""


class SchemaTooNew(StoreError):
    """The schema is newer than this program."""


class ServerTooOld(StoreError):
    """The server is older than txsaga can work with."""


class RightsMissing(StoreError):
    """The database user lacks a right."""


class IdentityChanged(StoreError):
    """The server is not the one this store was created on."""


class EmbeddedDatabaseError(StoreError):
    """The embedded PostgreSQL can't run; the message says what to do."""


class DataFolderDamaged(EmbeddedDatabaseError):
    """The data folder of the embedded PostgreSQL is not whole."""
