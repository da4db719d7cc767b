"""
Local work of one block: the user's transaction in a registered database, with its evidence and late bodies.

The database is authoritative. An error at its COMMIT means unknown, so the evidence is read before the caller gets an
answer; an exception of the user's block propagates unchanged. If the process dies before the local COMMIT nothing is
committed, after it everything is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from txsaga.checkback.doubt_context import DoubtContext
from txsaga.core import facts
from txsaga.core.decision import LocalState
from txsaga.core.fibers import run_blocking
from txsaga.core.kernel import Kernel
from txsaga.errors import OutcomeUnknown, TxSagaError
from txsaga.evidence.late_bodies import Filling, LateBodies
from txsaga.evidence.ports import Evidence
from txsaga.messages.stored_block import StoredBlock

if TYPE_CHECKING:
    from sqlalchemy import Connection


class LocalWork:
    """Runs the local work of a closed block."""

    def __init__(self, kernel: Kernel, contribution: StoredBlock) -> None:
        self._kernel, self._contribution = kernel, contribution
        self.late = LateBodies()
        contribution.bodies = self.late.bodies

    @contextmanager
    def run(self, evidence: Evidence, transaction: str) -> Iterator[Connection]:
        """Open the local transaction; if the block exits without an error, it is committed."""
        complete = False
        try:
            with evidence.work(transaction, self._announce) as connection:
                with self.late.filled_in(Filling(evidence, transaction, connection)):
                    yield connection
                complete = True
        except OutcomeUnknown:
            if not complete or not self._has_committed():
                raise

    def _announce(self, done: bool) -> None:
        if self._kernel.announce and self._contribution.txid is not None:
            self._kernel.announce((facts.Worked if done else facts.Working)((self._contribution.txid,)))

    def _has_committed(self) -> bool:
        try:
            case = DoubtContext(self._kernel.store, self._contribution.doubt())
            return run_blocking(lambda: self._kernel.settler.judge.know(case)).state is LocalState.COMMIT
        except TxSagaError:
            return False  # the outcome stays unknown
