"""
Looking at the evidence of one transaction for a person: nothing is fenced, and nothing is decided by it.

What is not there may come yet: only the rollback barrier could make sure that it does not.
"""

from __future__ import annotations

from txsaga.engine.kernel import Kernel
from txsaga.errors import ConfigError, EvidenceMissing, ResourceUnknown, StoreError
from txsaga.model.steps import Looked
from txsaga.model.trace import Trace


def look(kernel: Kernel, trace: Trace) -> Looked | None:
    """Say what the evidence of a transaction's local work says; None where none is recorded."""
    recorded = trace.resource
    if recorded is None:
        return None
    try:
        _, evidence = kernel.evidence(recorded.name)
        if evidence.database != recorded.database:
            return Looked(committed=None, why=f"{recorded.name!r} leads to another database than the recorded one")
        outcome = evidence.read(kernel.store.registry.identity.transaction(trace.txid))
    except (ConfigError, EvidenceMissing, ResourceUnknown, StoreError) as reason:
        return Looked(committed=None, why=str(reason))
    if outcome is None:
        return Looked(committed=None, why="there is no evidence, and no rollback barrier yet")
    return Looked(committed=outcome.committed, why=f"the {'evidence' if outcome.committed else 'barrier'} is there")
