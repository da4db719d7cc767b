"""
What is wrong with a gate itself. It is found before anything is staged; what a gate finds in the rows is a vote.

    UnknownSuite         no such suite of expectations

If it is caught and dropped, the rows were not written.
"""

from collections.abc import Sequence

from txsaga.errors.root import TxSagaError


class UnknownSuite(TxSagaError):
    """There is no such suite of expectations."""

    def __init__(self, suite: str, folder: str, known: Sequence[str]) -> None:
        there = f"there are {', '.join(known)}" if known else "there is none"
        super().__init__(
            f"there is no suite {suite!r} in {folder} ({there}); "
            "save it there as JSON, or set TXSAGA_SUITES to its folder"
        )
        self.suite = suite
