"""Facts about work-style consumers: what they take, give back and bury."""

from txsaga.model.fact import Fact


class Taking(Fact):
    """A consumer is about to claim messages."""


class Taken(Fact):
    """They are invisible to the other members until the claim's time is over."""


class Ordering(Fact):
    """Messages of a group that keeps order are about to be put in line by their keys."""


class Ordered(Fact):
    """Each is handed out once nothing before it has its key."""


class Acknowledging(Fact):
    """Claimed messages are about to be taken off their group."""


class Acknowledged(Fact):
    """They never come again."""


class Extending(Fact):
    """A claim is about to be held for longer."""


class Extended(Fact):
    """Its time is counted anew."""


class Returning(Fact):
    """A message whose work failed is about to be put back."""


class Returned(Fact):
    """It comes again when its time has come."""


class Surrendering(Fact):
    """Messages that nobody worked on are about to be given back."""


class Surrendered(Fact):
    """They come again as if they had not been taken."""


class Burying(Fact):
    """A message that failed to the end is about to leave its group."""


class Buried(Fact):
    """It lies in the backout topic or with the dead letters, or is gone where there is neither."""


class Binding(Fact):
    """A claimed message is about to be bound to a transaction."""


class Bound(Fact):
    """Only that transaction's decision ends the claim."""


class Replaying(Fact):
    """Dead letters are about to come to their group again."""


class Replayed(Fact):
    """They are messages like any other now."""
