"""
Iceberg tables of the home catalog, written before the decision and published by it.

PyIceberg and Arrow are an optional extra and are imported when the first table is used. Unpublished files have names
that begin with `_txsaga`, which no engine reads.
"""
