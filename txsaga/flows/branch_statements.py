"""
SQL about branches, and the parameters and answers of what is a function too; a write handles many transactions.

What is bound to a transaction (ballots, late bodies, offsets, messages) is applied by the one decision path only: such
a transaction is left unchanged here, and the caller decides it there.
"""

from txsaga.store import sql_files

SQL = sql_files.read("flows/sql/branch.sql")

BEGIN_TYPES = ("int4[]", "text[]", "int4[]", "int4[]", "int4[]")
BEGIN_ANSWERS = "ord int8, txid int8, token bytea"
RESOLVE_TYPES = (
    *("int8[]", "int4[]", "int4[]", "text[]", "text[]", "int4[]"),
    *("int8[]", "int4[]", "int4[]", "int4[]", "bytea[]"),
    *("int8[]", "int4[]", "int4[]", "text[]"),
)
RESOLVE_ANSWERS = "txid int8"
CONCLUDE_TYPES = (
    *("int8[]", "int4[]", "bytea[]", "int4[]", "text[]", "text[]", "int4[]"),
    *("int8[]", "int4[]", "int4[]", "int4[]", "bytea[]"),
    *("int8[]", "int4[]", "int4[]", "text[]"),
)
CONCLUDE_ANSWERS = "txid int8, done bool"
OPENED, ENDED = 3, 0
"""The decision column of undecided transactions: open, or sealed."""

NUMBERS_TYPES = ("int4", "int4")
NUMBERS_ANSWERS = "txid int8, token bytea, given bytea"
FENCE_TYPES = ("int8[]", "text[]", "text[]")
FENCE_ANSWERS = "txid int8"
NOTE_TYPES = ("int8[]", "int4[]", "int4[]", "text[]", "text[]")
NOTE_ANSWERS = "txid int8, number int4, attempt int4"
