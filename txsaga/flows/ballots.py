"""
Voting on an open transaction, from any process.

A vote is written under the lock of its transaction (R3): after the decision it is refused, before it, counted. If a
vote is never cast, its ballot is never carried and the transaction can only roll back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from txsaga.core import facts
from txsaga.core.arguments import check_kind
from txsaga.core.kernel import Kernel
from txsaga.core.lifecycle import TxState
from txsaga.core.records import TxRecord
from txsaga.errors import ConfigError, DecidedOtherwise, TransactionClosed, UnknownTransaction
from txsaga.flows.ballot import Ballot, CastVote, Polled

if TYPE_CHECKING:
    from txsaga.messages.ledger_store import Ledger


def call_ballot(kernel: Kernel, life: TxRecord, ballot: Ballot, lock: Callable[[Ledger, TxRecord], object]) -> None:
    """Open a ballot on a transaction that `lock` finds open; opening the same one again changes nothing."""
    with kernel.announce.around(facts.Calling, life.txid, about=ballot.name), kernel.store.ledgers.open() as ledger:
        lock(ledger, life)
        ledger.call(life.txid, ballot)


def vote(kernel: Kernel, txid: int, name: str, cast: CastVote) -> bool:
    """Cast a vote; False if this voter has already voted: the first vote is final."""
    check_kind(name, str, "the name of a ballot", "give a text")
    with kernel.announce.around(facts.Casting, txid, about=name), kernel.store.ledgers.open() as ledger:
        _require_open(ledger.share(txid), txid, ledger)
        polls = ledger.ballots(txid)
        if not any(poll.ballot.name == name and cast.voter in poll.ballot.voters for poll in polls):
            raise ConfigError(_unknown(txid, name, cast.voter, polls))
        return ledger.cast(txid, name, cast)


def ballots(kernel: Kernel, txid: int) -> Sequence[Polled]:
    """Return the ballots of a transaction with their votes."""
    with kernel.store.ledgers.open() as ledger:
        return ledger.ballots(txid)


def _require_open(life: TxRecord | None, txid: int, ledger: Ledger) -> None:
    if life is None:
        raise UnknownTransaction(f"transaction {txid} is not in this store")
    standing = ledger.standing(txid)
    if standing is not None:
        raise DecidedOtherwise(txid, standing.name)
    if life.state is not TxState.ACTIVE:
        raise TransactionClosed(f"transaction {txid} is sealed; votes are no longer accepted")


def _unknown(txid: int, name: str, voter: str, polls: Sequence[Polled]) -> str:
    known = "; ".join(f"{poll.ballot.name}: {', '.join(poll.ballot.voters)}" for poll in polls) or "none"
    return f"{voter!r} has no vote in ballot {name!r} of transaction {txid}; its ballots and voters are {known}"
