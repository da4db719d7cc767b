"""
Evidence: a row that local work writes in its own database, in its own commit.

    txsaga_database   the uuid of this database, so that a wrong URL can't answer for another one
    txsaga_evidence   (store, incarnation, txid, branch) -> 1 committed | 2 rolled back: the barrier
    txsaga_inbox      (group, message): the effect of the message is done in this database

The row is the first write of a local transaction. A barrier is the same row, written by check-back. The primary key
admits only one of the two: the row shows the outcome of the work, and after a barrier no late commit can succeed.

Nothing here decides. If a process dies between any two lines, either none of the local work is committed and the next
barrier records that, or all of it is committed with its row.
"""
