"""
Votes of gates: cast in the same commit that records the rows they checked.

The ballot is opened and voted in at once, so it never stays open: if this process dies before that commit, nothing is
recorded. A no is raised where the rows are staged, and it is final: a caller that ignores the error can't commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from txsaga.errors import ConfigError, NotCarried
from txsaga.flows.ballot import Result
from txsaga.lake.gates import Gate, Judged, Subject

if TYPE_CHECKING:
    from txsaga.messages.ledger_store import Ledger


GATE = "make one with txsaga.gate.expect(suite)"


def warmed(gate: Gate | None) -> Gate | None:
    """Start a gate, if there is one."""
    return None if gate is None else started(gate)


def started(gate: Gate) -> Gate:
    """Start a gate."""
    if not all(hasattr(gate, name) for name in ("warm", "ballot", "judge")):
        raise ConfigError(f"{gate!r} is no gate; {GATE}")
    gate.warm()
    return gate


def judged(gate: Gate, name: str, subject: Subject) -> Judged:
    """Let a gate judge rows."""
    return Judged(ballot=gate.ballot(name), casts=tuple(gate.judge(subject)))


def vote(ledger: Ledger, txid: int, found: Judged) -> None:
    """Open the ballot and cast its votes; the transaction's record is locked."""
    ledger.call(txid, found.ballot)
    for cast in found.casts:
        ledger.cast(txid, found.ballot.name, cast)


def require_passed(found: Judged) -> None:
    """Raise `NotCarried` if the gate voted no."""
    if found.poll.result is not Result.CARRIED:
        raise NotCarried(found.ballot.name, found.reason)
