"""
Evidence: one row that local work leaves in its own database, by its own commit.

    txsaga_database   the uuid of this very database: a wrong URL can't answer for another one
    txsaga_evidence   (store, incarnation, txid, branch) -> 1 committed | 2 rolled back: the barrier
    txsaga_inbox      (group, message): what the message was to do here is done

The row is the first write of a local transaction. A barrier is the same row, written by check-back. Their primary key
admits only one of them: who reads the row knows what became of the work, and after a barrier no late commit succeeds.

Nothing here decides. If a process dies between any two lines, either nothing of the local work is there and the next
barrier says so, or all of it is there with its row.
"""
