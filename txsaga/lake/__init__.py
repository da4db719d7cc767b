"""
Tables of the home catalog in Iceberg's format, written before the decision and published by it.

PyIceberg and Arrow are imported when the first table is asked for: they are an extra. Files that are not published yet
lie under names that begin with `_txsaga`, where no engine looks.
"""
