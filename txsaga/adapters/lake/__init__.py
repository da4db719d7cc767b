"""
The lake: tables of the home catalog in Iceberg's format, written beside the decision and published by it.

Nothing here is imported before a table is asked for: PyIceberg and Arrow are an extra of their own. What is written
ahead of a decision lies under names that begin with `_txsaga`, where no engine looks.
"""
