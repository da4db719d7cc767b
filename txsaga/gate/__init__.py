"""
Gates: Great Expectations suites that vote on a decision by checking staged rows that nothing can read yet.

    tx.table("lake.ledger").append(frame, gate=expect("ledger_suite"))

Great Expectations runs in its own process (`python -m txsaga.gate`), never in that of a transaction: importing this
module, or a flow with gates, loads nothing of it. A gate that crashes or times out votes no.
"""

import typing as _typing
from importlib import import_module as _import_module

if _typing.TYPE_CHECKING:
    from txsaga.gate.expecting import every, expect, quorum, report
    from txsaga.gate.process import stop

__all__ = ["every", "expect", "quorum", "report", "stop"]


def __getattr__(name: str) -> object:
    """Load a public name on first access."""
    if name not in __all__:
        raise AttributeError(f"module 'txsaga.gate' has no attribute {name!r}")
    return getattr(_import_module(f"txsaga.gate.{'process' if name == 'stop' else 'expecting'}"), name)
