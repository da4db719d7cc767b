"""
Brokers as participants: another store of ours takes messages under somebody else's decision.

They vote, hold what they voted for, and do what is told. They must not decide a branch that voted yes. If a process
dies between two lines here, a branch that has not voted is rolled back by its own store once its owner is silent, and
one that has voted waits for its coordinator for as long as it takes.
"""

from txsaga.adapters.brokers.store import StoreParticipant
from txsaga.adapters.brokers.tx_log import LoggedParticipant

__all__ = ["LoggedParticipant", "StoreParticipant"]
