"""
Gates: suites of Great Expectations as votes on a decision, cast on staged rows that nobody reads yet.

    tx.table("lake.ledger").append(frame, gate=expect("ledger_suite"))

Great Expectations lives in a process of its own (`python -m txsaga.gate`), never in that of a transaction: importing
this, or a flow with gates, loads nothing of it. A gate that crashes, or takes too long, says no.
"""

import typing as _typing

if _typing.TYPE_CHECKING:
    from txsaga.gate.expecting import every, expect, quorum, report
    from txsaga.gate.process import stop

__all__ = ["every", "expect", "quorum", "report", "stop"]


def __getattr__(name: str) -> object:
    """Load what is asked for."""
    if name in ("every", "expect", "quorum"):
        from txsaga.gate import expecting

        return getattr(expecting, name)
    if name == "stop":
        from txsaga.gate.process import stop

        return stop
    if name == "report":
        from txsaga.gate.expecting import report

        return report
    raise AttributeError(f"module 'txsaga.gate' has no attribute {name!r}")
