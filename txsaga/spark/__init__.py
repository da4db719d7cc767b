"""
Spark with transactions: sessions, and DataFrames that are staged as files of tables.

Spark never commits: what it writes is invisible until a decision publishes it. Importing this loads no PySpark; the
functions do.
"""

import typing as _typing
from importlib import import_module as _import_module

if _typing.TYPE_CHECKING:
    from txsaga.spark.messages import each_batch, read, read_stream, send
    from txsaga.spark.sessions import catalog_settings, session
    from txsaga.spark.source import Messages

__all__ = ["Messages", "catalog_settings", "each_batch", "read", "read_stream", "send", "session"]


def __getattr__(name: str) -> object:
    """Import a name on first use."""
    if name not in __all__:
        raise AttributeError(f"module 'txsaga.spark' has no attribute {name!r}")
    module = {"Messages": "source", "session": "sessions", "catalog_settings": "sessions"}.get(name, "messages")
    return getattr(_import_module(f"txsaga.spark.{module}"), name)
