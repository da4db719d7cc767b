"""
Spark with transactions: sessions, and DataFrames that are staged as files of tables.

Spark never commits: what it writes is invisible until a decision publishes it. Importing this loads no PySpark; the
functions do.
"""

import typing as _typing

if _typing.TYPE_CHECKING:
    from txsaga.spark.messages import each_batch, read, read_stream, send
    from txsaga.spark.sessions import session
    from txsaga.spark.source import Messages

__all__ = ["Messages", "each_batch", "read", "read_stream", "send", "session"]


def __getattr__(name: str) -> object:
    """Import a name on first use."""
    if name == "session":
        from txsaga.spark.sessions import session

        return session
    if name == "Messages":
        from txsaga.spark.source import Messages

        return Messages
    if name == "each_batch":
        from txsaga.spark.messages import each_batch

        return each_batch
    if name in ("read", "read_stream", "send"):
        from txsaga.spark import messages

        return getattr(messages, name)
    raise AttributeError(f"module 'txsaga.spark' has no attribute {name!r}")
