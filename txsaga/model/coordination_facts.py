"""The facts of coordinated transactions: branches and ballots."""

from txsaga.model.fact import Fact


class Naming(Fact):
    """The branches of a transaction are about to be named, before their work begins."""


class Named(Fact):
    """Whoever recovers knows where to look."""


class Calling(Fact):
    """A ballot is about to be called."""


class Called(Fact):
    """COMMIT waits for its votes."""


class Casting(Fact):
    """A vote is about to be cast in a ballot."""


class Cast(Fact):
    """It stands."""


class Voting(Fact):
    """A branch is about to be asked for its vote."""


class Voted(Fact):
    """It voted yes: it is held by its resource until somebody tells it what was decided."""


class Finishing(Fact):
    """A branch is about to be told what was decided."""


class Finished(Fact):
    """It is committed or rolled back in its resource."""


class Noting(Fact):
    """What became of branches is about to be written down."""


class Noted(Fact):
    """Nobody asks their resources about them any more."""


class Tidying(Fact):
    """What a resource keeps of branches that are over is about to be dropped."""


class Tidied(Fact):
    """It is gone."""
