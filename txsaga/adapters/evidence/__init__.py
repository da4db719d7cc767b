"""
Evidence: one row that local work leaves in its own database, by its own commit.

    txsaga_database   the uuid of this very database: a wrong URL can't answer for another one
    txsaga_evidence   (store, incarnation, txid, branch) -> 1 committed | 2 rolled back: the barrier
    txsaga_inbox      (group, message): what the message was to do here is done

The row is the first write of a local transaction, the barrier is the same row written by somebody else.
Their primary key lets only one of them in, so whoever reads the row knows what became of the work, and a
barrier makes a late local commit impossible. The rows are authoritative; nobody's memory is.

It must not decide anything: it says what stands. If a process dies between any two lines here, either
nothing of the local work is there and the next fence says so, or all of it is there with its row.
"""

from txsaga.adapters.evidence.creation import create
from txsaga.adapters.evidence.inbox import forget, inbox
from txsaga.adapters.evidence.schema import ddl
from txsaga.adapters.evidence.sql import SqlEvidence

__all__ = ["SqlEvidence", "create", "ddl", "forget", "inbox"]
