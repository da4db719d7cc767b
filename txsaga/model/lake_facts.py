"""The facts of tables: what is branched off, staged, recorded, built and collected."""

from txsaga.model.fact import Fact


class Branching(Fact):
    """A table is about to get a branch that another engine writes to."""


class Branched(Fact):
    """It has it: nothing that is written there counts before it is recorded."""


class Staging(Fact):
    """Files of a table are about to be written where nobody reads."""


class Staged(Fact):
    """They lie there, named by one manifest; the store does not know it yet."""


class Filing(Fact):
    """The record of a staged write is about to be stored."""


class Filed(Fact):
    """Whoever decides can publish it."""


class Building(Fact):
    """The next metadata of tables is about to be written."""


class Built(Fact):
    """It lies there, and no pointer leads to it."""
