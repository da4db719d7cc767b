"""The root of all errors that txsaga raises on purpose; whoever catches it catches them all."""


class TxSagaError(Exception):
    """Base of all errors that txsaga raises on purpose."""

    retryable: bool = False
    code: str = "SYSTEM_ERROR"
