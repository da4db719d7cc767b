"""Every class of the one tree of errors."""

from __future__ import annotations

from collections.abc import Iterator

from txsaga import errors


def every_error(base: type[errors.TxSagaError] = errors.TxSagaError) -> Iterator[type[errors.TxSagaError]]:
    """Yield the classes of the one tree."""
    yield base
    for kind in base.__subclasses__():
        if kind.__module__.partition(".")[0] == "txsaga":
            yield from every_error(kind)
