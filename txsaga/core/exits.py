"""
Exit codes: one per kind of failure, so that a script knows what to do next.

Only the table below maps errors to codes.
"""

from __future__ import annotations

from txsaga import errors

OK = 0
UNEXPECTED = 1
"""Not foreseen: a bug, or an output that can't be written."""
USAGE = 2
MISTAKE = 3
"""A setting, a message or a name is wrong: change it."""
NOT_FOUND = 4
CONFLICT = 5
"""Decided otherwise, in doubt, or refused because of an earlier decision or owner."""
UNAVAILABLE = 6
"""A database does not answer, or the embedded one can't run: try again."""
REFUSED = 7
"""Rights, schema, identity or a damaged disk: an administrator has to act."""
INTERRUPTED = 130
PIPE_CLOSED = 141

CODES: dict[type[errors.TxSagaError], int] = {
    errors.TxSagaError: MISTAKE,
    errors.TransactionError: CONFLICT,
    errors.HostFailed: UNAVAILABLE,
    errors.ClientSilent: UNAVAILABLE,
    errors.TableTaken: CONFLICT,
    errors.WarehouseAway: UNAVAILABLE,
    errors.UnknownTransaction: NOT_FOUND,
    errors.TransactionsRejected: REFUSED,
    errors.UnknownStep: NOT_FOUND,
    errors.ServiceFailed: UNAVAILABLE,
    errors.CodeMissing: MISTAKE,
    errors.UnknownBranch: NOT_FOUND,
    errors.ResourceManagerFailed: UNAVAILABLE,
    errors.SendFailed: UNAVAILABLE,
    errors.TooFewBrokers: UNAVAILABLE,
    errors.EvidenceMissing: REFUSED,
    errors.LeaseLost: CONFLICT,
    errors.ClaimLost: CONFLICT,
    errors.AlreadyDone: CONFLICT,
    errors.OutOfOrder: CONFLICT,
    errors.OffsetOutOfRange: NOT_FOUND,
    errors.UnknownGroup: NOT_FOUND,
    errors.UnknownProducerGroup: NOT_FOUND,
    errors.UnknownLetter: NOT_FOUND,
    errors.GroupInUse: CONFLICT,
    errors.TopicInUse: CONFLICT,
    errors.StoreError: UNAVAILABLE,
    errors.NotPrimary: REFUSED,
    errors.ChunkDamaged: REFUSED,
    errors.DataFolderDamaged: REFUSED,
    errors.SchemaMissing: REFUSED,
    errors.SchemaTooNew: REFUSED,
    errors.ServerTooOld: REFUSED,
    errors.RightsMissing: REFUSED,
    errors.IdentityChanged: REFUSED,
}
"""A class that is not listed has the code of its nearest base."""


def code_of(error: errors.TxSagaError) -> int:
    """Return the exit code of an error."""
    return next(CODES[kind] for kind in type(error).__mro__ if kind in CODES)
