"""The store in memory: the same ports and the same promises as the PostgreSQL store, for tests and trials.

Nothing outlives the process, so it must never stand in for the home database where anything matters.
"""

from tests.oracle.store import MemoryStore

__all__ = ["MemoryStore"]
