"""
Entering a saga's key: what failed under it before is undone to its end first (R6).

An earlier life that somebody else drives is waited for by whoever tries again. An earlier attempt at the same life, one
that is not decided, is rolled back and undone, and the next life is opened: none of its steps is trusted or repeated.
If this never runs, another driver undoes it once its lease is over.
"""

from __future__ import annotations

from txsaga.engine.kernel import Kernel
from txsaga.engine.saga.driver import Driver
from txsaga.engine.saga.owner import Owner
from txsaga.engine.saga.patience import patience
from txsaga.errors.saga import NotCompensated
from txsaga.model import facts
from txsaga.model.decision import Decision


def enter(kernel: Kernel, owner: Owner) -> None:
    """Open the key of an owner in a life in which nothing was done yet."""
    while True:
        try:
            owner.enter()
        except NotCompensated as left:
            undo(kernel, left)
            continue
        life = owner.life
        steps = kernel.store.steps.of(life.txid) if life is not None and life.owner > 1 else ()
        if not steps:
            return
        why = "its key was entered anew"
        standing, saga = owner.decide(Decision.ROLLBACK, why)
        if standing is Decision.ROLLBACK:
            Driver(kernel, saga, patience()).drive(kernel.store.steps.of(saga.txid))
        owner.leave()


def undo(kernel: Kernel, left: NotCompensated) -> None:
    """Undo what is left of an earlier life, unless somebody else is at it."""
    with kernel.announce.around(facts.Claiming, left.txid):
        taken = kernel.store.steps.claim(kernel.member, limit=1, txid=left.txid)
    if not taken:
        raise left
    (saga,) = taken
    Driver(kernel, saga, patience()).drive(kernel.store.steps.of(saga.txid))
