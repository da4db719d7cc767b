"""
Home effects on their way into a decision: made ready outside of its transaction, applied inside, tried again.

The transaction of a decision finds out which effects count. It is left when they are not ready, nothing is locked
while they are made so, and it is entered again. If something moved in between, the same once more. A process that
stops anywhere here leaves files that nobody reads; whoever decides next makes its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from txsaga.core import facts
from txsaga.core.announcer import Announcer
from txsaga.errors import InDoubt, PointerMoved
from txsaga.lake.table import Effect
from txsaga.messages.ports import Ledger


class Ready(Protocol):
    """Effects of one transaction that can be applied now."""

    def apply(self, ledger: Ledger) -> None:
        """Apply them in the decision's transaction; `PointerMoved` when they have to be made ready anew."""

    def drop(self) -> None:
        """Take away what was made ready and is not used."""

    def done(self) -> None:
        """Give back what was held: the decision stands."""


class HomeEffect(Protocol):
    """One kind of effect."""

    def make_ready(self, effects: Sequence[Effect], *, again: int) -> Ready:
        """Make the effects of one transaction ready, for the `again`-th time.

        `EffectConflict` when they can't be applied any more; `InDoubt` when that can't be known from here.
        """


T = TypeVar("T")

TRIES = 20
"""How often something may move between looking and deciding."""


class NotReady(Exception):
    """The decision was not written: effects that count have to be made ready first. It never leaves the engine."""

    def __init__(self, txid: int, effects: Sequence[Effect]) -> None:
        super().__init__(f"what transaction {txid} does in the home database has to be made ready first")
        self.effects = tuple(effects)


class PreparedEffects:
    """The effects that are ready for one decision."""

    def __init__(self, effects: Sequence[Effect] = (), ready: Sequence[Ready] = ()) -> None:
        self._effects, self._ready = tuple(effects), ready
        self.may_stand = False  # an answer was lost: what is ready here may be what was published

    def apply(self, ledger: Ledger, txid: int) -> None:
        """Apply what counts; `NotReady` when that is something else."""
        found = tuple(ledger.effects(txid))
        if found != self._effects:
            raise NotReady(txid, found)
        for each in self._ready:
            each.apply(ledger)

    def drop(self) -> None:
        """Take away what is not used."""
        for each in self._ready:
            each.drop()

    def done(self) -> None:
        """Give back what was held."""
        for each in self._ready:
            each.done()


class Effects:
    """Makes effects ready, by their kind."""

    def __init__(self, kinds: Mapping[str, HomeEffect], announce: Announcer) -> None:
        self._kinds, self._announce = kinds, announce

    def around(self, txid: int, decide: Callable[[PreparedEffects], tuple[T, bool]], known: Sequence[Effect] = ()) -> T:
        """Decide with effects that are ready; `decide` tells what stands and whether it wrote that.

        Whoever recorded them himself says which are `known`: they are made ready at once.
        """
        effects = tuple(known)
        prepared = self._prepared(txid, effects, 0) if effects else PreparedEffects()
        for again in range(TRIES):
            try:
                standing, won = decide(prepared)
            except NotReady as missing:
                prepared.drop()
                effects = missing.effects
            except PointerMoved:
                prepared.drop()
            except BaseException:
                prepared.done()  # what became of it may be unknown: it is left where it is
                raise
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
        try:
            for kind in dict.fromkeys(each.kind for each in effects):
                if kind not in self._kinds:
                    raise InDoubt(f"this process knows no effect {kind!r}; decide with a newer version of txsaga")
                of_kind = [each for each in effects if each.kind == kind]
                ready.append(self._kinds[kind].make_ready(of_kind, again=again))
        except BaseException:
            PreparedEffects(effects, ready).drop()
            raise
        return ready
