"""
Home effects of a decision: prepared outside its transaction, applied inside, with retries.

The decision's transaction finds out which effects count. If they are not ready, it is rolled back, they are prepared
while nothing is locked, and it starts again. If something moved in between, that repeats. A process that stops anywhere
here leaves files that are never read; the next decider makes its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from txsaga.core import facts
from txsaga.core.announcer import Announcer
from txsaga.core.failure import on_failure
from txsaga.errors import InDoubt, PointerMoved
from txsaga.lake.table import Effect

if TYPE_CHECKING:
    from txsaga.messages.ledger_store import Ledger


class Ready(Protocol):
    """Prepared effects of one transaction."""

    def apply(self, ledger: Ledger) -> None:
        """Apply them in the decision's transaction; `PointerMoved` if they must be prepared again."""

    def drop(self) -> None:
        """Remove what was prepared but is not used."""

    def done(self) -> None:
        """Release what was held: the decision is final."""


class HomeEffect(Protocol):
    """One kind of effect."""

    def make_ready(self, effects: Sequence[Effect], *, again: int) -> Ready:
        """Prepare the effects of one transaction; `again` is the number of the retry.

        `EffectConflict` if they can't be applied any more; `InDoubt` if this process can't know that.
        """


T = TypeVar("T")

TRIES = 20
"""How often something may move between preparing and deciding."""


class NotReady(Exception):
    """The decision was not written: its effects must be prepared first. It never leaves the engine."""

    def __init__(self, txid: int, effects: Sequence[Effect]) -> None:
        super().__init__(f"the changes of transaction {txid} in the home database must be made ready first")
        self.effects = tuple(effects)


class PreparedEffects:
    """The effects prepared for one decision."""

    def __init__(self, effects: Sequence[Effect] = (), ready: Sequence[Ready] = ()) -> None:
        self._effects, self._ready = tuple(effects), ready
        self.may_stand = False  # an answer was lost: these effects may already be published

    def apply(self, ledger: Ledger, txid: int) -> None:
        """Apply the effects; `NotReady` if others than these count."""
        found = tuple(ledger.effects(txid))
        if found != self._effects:
            raise NotReady(txid, found)
        for each in self._ready:
            each.apply(ledger)

    def drop(self) -> None:
        """Remove the unused effects."""
        for each in self._ready:
            each.drop()

    def done(self) -> None:
        """Release what was held."""
        for each in self._ready:
            each.done()


class Effects:
    """Prepares effects, by their kind."""

    def __init__(self, kinds: Mapping[str, HomeEffect], announce: Announcer) -> None:
        self._kinds, self._announce = kinds, announce

    def around(self, txid: int, decide: Callable[[PreparedEffects], tuple[T, bool]], known: Sequence[Effect] = ()) -> T:
        """Decide with prepared effects; `decide` returns the final decision and whether it wrote that.

        A caller that recorded effects itself passes them as `known`: they are prepared at once.
        """
        effects = tuple(known)
        prepared = self._prepared(txid, effects, 0) if effects else PreparedEffects()
        for again in range(TRIES):
            with on_failure(prepared.done):  # the outcome may be unknown: the files stay; a second call does nothing
                try:
                    standing, won = decide(prepared)
                except NotReady as missing:
                    prepared.drop()
                    effects = missing.effects
                except PointerMoved:
                    prepared.drop()
                else:
                    (prepared.done if won or prepared.may_stand else prepared.drop)()
                    return standing
            prepared = self._prepared(txid, effects, again)
        prepared.drop()
        raise PointerMoved(f"transaction {txid} was overtaken by other writers {TRIES} times; decide it again")

    def _prepared(self, txid: int, effects: Sequence[Effect], again: int) -> PreparedEffects:
        with self._announce.around(facts.Building, txid):
            return PreparedEffects(effects, self._made_ready(effects, again))

    def _made_ready(self, effects: Sequence[Effect], again: int) -> list[Ready]:
        ready: list[Ready] = []
        with on_failure(PreparedEffects(effects, ready).drop):
            for kind in dict.fromkeys(each.kind for each in effects):
                if kind not in self._kinds:
                    raise InDoubt(f"this process knows no effect {kind!r}; decide with a newer version of txsaga")
                of_kind = [each for each in effects if each.kind == kind]
                ready.append(self._kinds[kind].make_ready(of_kind, again=again))
        return ready
