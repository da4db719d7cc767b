"""
What a cluster of brokers says when it does not take what was sent to it.

If one of these is caught and dropped, nothing is sent: the transaction rolls back.
"""

from txsaga.errors.root import TxSagaError


class ClusterError(TxSagaError):
    """A cluster did not take what was sent to it; its transaction rolls back."""


class TooFewBrokers(ClusterError):
    """Fewer brokers are there, or accepted, than the policy needs."""

    retryable = True
    code = "SERVICE_NOT_AVAILABLE"


class BadDestination(ClusterError):
    """No broker will ever take it: the topic or the message is wrong."""


class PinRefused(ClusterError):
    """The node list of a message can't be followed, and nothing else is tried."""
