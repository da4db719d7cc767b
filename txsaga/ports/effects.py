"""
Home effects: what the decision itself does in the home database, whoever writes it (R2).

What takes time (files, other servers) is made ready outside of the decision's transaction; inside it a ready effect
only compares and sets. Nothing that was made ready is visible, or harms, if it is never applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from txsaga.model.table import Effect
from txsaga.ports.ledger import Ledger


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
