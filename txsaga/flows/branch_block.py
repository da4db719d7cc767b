"""
A block that asks branches for their votes when it is left, and decides.

It is what a coordinated block and the end of a flow have in common. If the process dies before the decision, the
transaction rolls back; after it, recovery finishes what is prepared.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Self

from txsaga.consume.dead_letter import short_cause
from txsaga.core.decision import Decision
from txsaga.core.failure import report_failure
from txsaga.core.fibers import run_blocking
from txsaga.core.kernel import Kernel
from txsaga.core.records import Row
from txsaga.errors import (
    DecidedOtherwise,
    EffectConflict,
    Heuristic,
    InDoubt,
    TransactionError,
    TxSagaError,
    Unfinished,
)
from txsaga.flows.enlisted import Enlisted
from txsaga.flows.owner import Owner
from txsaga.flows.work import PhaseTwoResult
from txsaga.messages.message_buffer import DecidedBlock
from txsaga.messages.stored_block import BlockStage

logger = logging.getLogger("txsaga")

WHY = "the block ended"


class BranchBlock(DecidedBlock):
    """A block over branches, as a context manager."""

    def __init__(self, kernel: Kernel, owner: Owner, branches: Enlisted) -> None:
        super().__init__(kernel)
        self._owner, self._branches = owner, branches

    @property
    def txid(self) -> int | None:
        """The number of the transaction, once the block is entered."""
        return self._owner.txid

    def __enter__(self) -> Self:
        """Begin or take over the transaction, with its branches named before their work."""
        self._require_new()
        self._stage = BlockStage.ENTERING
        with report_failure(self._abandoned):
            self._enter()
        self._stage = BlockStage.OPEN
        return self

    def _abandoned(self, error: BaseException) -> None:
        self._branches.abandon(error)
        self._stage = BlockStage.NEW  # not before it is abandoned: another thread's beginning would be undone

    def _enter(self) -> None:
        self._branches.begin()

    def _release(self) -> None:
        self._branches.leave()

    def _leave(self, error: BaseException | None) -> None:
        if self._stage is BlockStage.OPEN and error is None:
            try:
                self._commit()
            except (DecidedOtherwise, InDoubt, Unfinished, Heuristic):
                raise
            except BaseException as reason:
                if self._stage is BlockStage.OPEN or isinstance(reason, EffectConflict):
                    with suppress(TxSagaError):  # if this fails, others find it open and roll it back
                        self._roll_back(f"{type(reason).__name__}: {reason}", reason)
                elif not isinstance(reason, TxSagaError) and self.decision is not Decision.ROLLBACK:  # by a signal
                    reason.add_note(f"transaction {self.txid} may stand committed: ask before it is done again")
                raise
        elif self._stage in (BlockStage.OPEN, BlockStage.BROKEN):
            broken = TransactionError("the transaction did not commit: its messages could not all be stored")
            if error is not None:
                self._branches.work.explain_own_lock(error)
            why = f"the block raised {type(error).__name__}: {error}" if error else "it was broken"
            self._roll_back(why, error or broken)
            if error is None:
                raise broken

    def _commit(self) -> None:
        work = self._branches.work
        work.refuse_open_units()
        rows = self._outbox.take_whole()
        work.do_journals()
        last = work.last(alone=not self._owner.with_effects)
        votes = work.named(work.prepare(besides=last), last=last)
        self._stage = BlockStage.CLOSED  # from here on the answer may be lost: only the store knows
        if last is None:
            self._follow(self._branches.decide(Decision.COMMIT, WHY, rows, votes))
        elif (standing := self._branches.seal(last, rows, votes)) is not None:
            self._follow(standing)
        else:
            self._follow(*self._branches.commit_last(last, votes))

    def _follow(self, standing: Decision, failure: Exception | None = None) -> None:
        """Notify everyone of the decision, and raise unless it is a plain success."""
        told = self._told(standing)
        if failure is not None:
            raise failure
        if standing is not Decision.COMMIT:
            raise DecidedOtherwise(self._owner.life.txid, standing.name)
        if told.against:
            raise told.against[0]
        if told.silent:
            raise Unfinished(self._owner.life.txid, list(told.silent))

    def _roll_back(self, why: str, leaves: BaseException | None = None) -> PhaseTwoResult:
        """Roll back; note on the exception which resources were not notified, and which had committed."""
        self._stage = BlockStage.BROKEN
        self._branches.release()
        told = self._told(self._branches.decide(Decision.ROLLBACK, short_cause(why)))
        notes = [str(heuristic) for heuristic in told.against]
        for name, silent in told.silent.items():
            notes.append(f"resource {name!r} was not told of the rollback: {silent}; recovery tells it")
            logger.warning("transaction %s: %s", self.txid, notes[-1])
        if leaves is not None:
            for note in notes:
                leaves.add_note(note)
        return told

    def _told(self, decision: Decision) -> PhaseTwoResult:
        """Notify the resources, and then the listeners."""
        self.decision, self._stage = decision, BlockStage.LEFT
        told = self._branches.finish(decision)
        self._tell(decision)
        self._kernel.tell_decided()
        return told

    def _store(self, rows: Sequence[Row]) -> None:
        run_blocking(partial(self._owner.add, rows))
