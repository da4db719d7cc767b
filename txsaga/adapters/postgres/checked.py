"""
The checks of a transaction in its history: what came of each goes there when the transaction leaves the list of doubts.

It is part of the statement that takes it off. If it were left out, nobody could say afterwards who was asked, and how
often, before somebody decided.
"""

KEPT = """SELECT gone.txid, CAST(r ->> 'at' AS timestamptz), 'CHECK ' || (r ->> 'answer'), r ->> 'who', r ->> 'why'
  FROM gone, jsonb_array_elements(gone.remarks) AS r"""
INTO = "INSERT INTO {s}.event (txid, at, what, who, why)"


def unlisting(doubts: str) -> str:
    """Write what takes doubts off the list, by what says which (of `d`), and keeps their checks."""
    gone = f"DELETE FROM {{s}}.doubt d {doubts} RETURNING d.txid, d.remarks"
    return f"WITH gone AS ({gone})\n{INTO}\n{KEPT}"
