"""
One step of a saga forwards: written down, done, and what became of it noted for whatever is written next.

If the note is never written, its resource tells, or it is taken for unknown and undone.
"""

from __future__ import annotations

from txsaga.engine.kernel import Kernel
from txsaga.engine.saga.acting import Turn
from txsaga.engine.saga.owner import Owner
from txsaga.engine.saga.trying import Asked, Tries, Trying
from txsaga.model.dead_letter import short_cause
from txsaga.ports.steps import Start


class Forward:
    """Runs steps of one saga."""

    def __init__(self, kernel: Kernel, owner: Owner) -> None:
        self._kernel, self._owner, self._trying = kernel, owner, Trying(kernel)
        self._known = (0, "")

    def run(self, number: int, asked: Asked) -> object:
        """Run a step to its end; return what it returns."""
        action = asked.action()
        self._record(asked.start(number, action))
        tries = Tries(action)
        try:
            ran = self._trying.run(self._turn(number, asked.name), action, asked, tries)
            told = asked.told(ran.output)
        except BaseException as error:
            self._owner.fail(number, tries.left, short_cause(f"{type(error).__name__}: {error}"))
            raise
        self._owner.finish(number, told)
        return ran.output

    def _record(self, start: Start) -> None:
        try:
            self._owner.record(start)
        except BaseException:
            self._owner.drop(start.number)  # it never ran
            raise

    def _turn(self, number: int, name: str) -> Turn:
        life = self._owner.life
        assert life is not None
        if self._known[0] != life.txid:
            self._known = life.txid, self._kernel.store.registry.identity.transaction(life.txid)
        return Turn(self._known[1], life.txid, life.group, number, name)
