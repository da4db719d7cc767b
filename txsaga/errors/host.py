"""
What can go wrong with an Airflow that `txsaga airflow` starts, or that check-back asks.

    TxSagaError
    └── HostFailed           Airflow can't be started, stopped or asked; the text says what to do

If it is caught and dropped nothing is lost: the store is the truth, and Airflow only its host.
"""

from txsaga.errors.root import TxSagaError


class HostFailed(TxSagaError):
    """Airflow can't be started, stopped or asked."""

    retryable = True
