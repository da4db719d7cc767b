"""
Votes of gates: cast in the commit that records what they have looked at.

The ballot is called and voted in at once, so it is never left open: if this process dies before that commit, nothing
was recorded either. A no is raised where the rows are staged, and it stands: whoever drops the error can't commit.
"""

from __future__ import annotations

from txsaga.errors import ConfigError, NotCarried
from txsaga.flows.ballot import Result
from txsaga.lake.gates import Gate, Judged, Subject
from txsaga.messages.ports import Ledger

GATE = "make one with txsaga.gate.expect(suite)"


def warmed(gate: Gate | None) -> Gate | None:
    """Start a gate, where there is one."""
    return None if gate is None else started(gate)


def started(gate: Gate) -> Gate:
    """Start a gate."""
    if not all(hasattr(gate, name) for name in ("warm", "ballot", "judge")):
        raise ConfigError(f"{gate!r} is no gate; {GATE}")
    gate.warm()
    return gate


def judged(gate: Gate, name: str, subject: Subject) -> Judged:
    """Let a gate look at rows."""
    return Judged(ballot=gate.ballot(name), casts=tuple(gate.judge(subject)))


def vote(ledger: Ledger, txid: int, found: Judged) -> None:
    """Call the ballot and cast its votes, on a locked life."""
    ledger.call(txid, found.ballot)
    for cast in found.casts:
        ledger.cast(txid, found.ballot.name, cast)


def require_passed(found: Judged) -> None:
    """Raise `NotCarried` when the gate said no."""
    if found.poll.result is not Result.CARRIED:
        raise NotCarried(found.ballot.name, found.reason)
