"""The facts of sagas: steps before and behind their work, and what undoes them."""

from txsaga.model.fact import Fact


class Recording(Fact):
    """Steps are about to be written down, before they run."""


class Recorded(Fact):
    """Whoever comes later knows that they may have run, and what undoes them."""


class Acting(Fact):
    """A step that leaves no evidence is about to run."""


class Acted(Fact):
    """It has run."""


class Compensating(Fact):
    """The compensation of a step is about to run."""


class Compensated(Fact):
    """It has run, or there was nothing to undo."""


class Marking(Fact):
    """What became of steps is about to be written down."""


class Marked(Fact):
    """Nobody does them again."""


class Claiming(Fact):
    """Sagas whose driver is gone are about to be taken over."""


class Claimed(Fact):
    """Whoever drove them before can write nothing of them any more."""


class Stalling(Fact):
    """A compensation that failed to the end is about to be left to a person."""


class Stalled(Fact):
    """Its saga stands still until somebody resumes or skips it."""


class Skipping(Fact):
    """A person is about to resume or skip a step."""


class Skipped(Fact):
    """Its saga goes on."""
