"""
Facts: every durable step, announced before and after it happens.

Logs, metrics and the kill harness are observers of these values. The list of kill points is
the list of facts: a step that does not announce itself is a step that nobody has killed.
"""

from __future__ import annotations

from collections.abc import Mapping

from txsaga.model.coordination_facts import Called as Called
from txsaga.model.coordination_facts import Calling as Calling
from txsaga.model.coordination_facts import Cast as Cast
from txsaga.model.coordination_facts import Casting as Casting
from txsaga.model.coordination_facts import Finished as Finished
from txsaga.model.coordination_facts import Finishing as Finishing
from txsaga.model.coordination_facts import Named as Named
from txsaga.model.coordination_facts import Naming as Naming
from txsaga.model.coordination_facts import Noted as Noted
from txsaga.model.coordination_facts import Noting as Noting
from txsaga.model.coordination_facts import Voted as Voted
from txsaga.model.coordination_facts import Voting as Voting
from txsaga.model.fact import Fact as Fact


class Registering(Fact):
    """A topic, a producer group, a resource or its evidence table is about to be registered."""


class Registered(Fact):
    """It is known under its name from now on."""


class Preparing(Fact):
    """Halves are about to be stored (their numbers are not known yet)."""


class Prepared(Fact):
    """Halves are durable and invisible."""


class Publishing(Fact):
    """Plain messages are about to be stored with their decision."""


class Published(Fact):
    """Plain messages are durable and will be dispatched."""


class Opening(Fact):
    """A keyed transaction is about to be opened, joined or taken over."""


class Opened(Fact):
    """A keyed transaction is open in this owner's hands."""


class Adding(Fact):
    """Halves are about to be added to an open transaction."""


class Added(Fact):
    """Halves lie in an open transaction."""


class Reserving(Fact):
    """A place for a late body is about to be kept."""


class Reserved(Fact):
    """The transaction can commit only with that body."""


class Ending(Fact):
    """The end (closing point) is about to be written."""


class Ended(Fact):
    """The transaction is closed: evidence may commit it from now on."""


class Working(Fact):
    """The local transaction is about to commit, evidence included."""


class Worked(Fact):
    """The local transaction is committed."""


class Deciding(Fact):
    """The decision is about to be written."""


class Decided(Fact):
    """The decision stands."""


class Fencing(Fact):
    """The rollback barrier is about to be written into a resource."""


class Fenced(Fact):
    """A late local commit is impossible."""


class Ticking(Fact):
    """A batch of decisions is about to get its offsets."""


class Ticked(Fact):
    """Consumers see the batch."""


class Scheduling(Fact):
    """Messages for later that are due are about to be committed."""


class Scheduled(Fact):
    """They are committed; the next tick gives their offsets."""


class Positioning(Fact):
    """The cursors of a consumer group are about to be created where they are missing."""


class Positioned(Fact):
    """The group knows where to begin."""


class Renewing(Fact):
    """A member is about to take or renew its lease."""


class Renewed(Fact):
    """The member counts as alive."""


class Acquiring(Fact):
    """A member is about to take a queue."""


class Acquired(Fact):
    """A member owns a queue."""


class Releasing(Fact):
    """A member is about to give a queue, or all of them, back."""


class Released(Fact):
    """Others may take them."""


class Intending(Fact):
    """Offsets are about to be bound to a transaction."""


class Intended(Fact):
    """Only that transaction's decision moves these offsets."""


class Advancing(Fact):
    """A cursor is about to move."""


class Advanced(Fact):
    """A cursor has moved."""


class Sweeping(Fact):
    """New halves without a decision are about to be put on the list of doubts."""


class Swept(Fact):
    """They are on the list, the checkpoint has moved."""


class Leading(Fact):
    """Somebody is about to take the lead of a round."""


class Led(Fact):
    """Nobody else leads one, for a time."""


class Yielding(Fact):
    """The lead of a round is about to be given back."""


class Yielded(Fact):
    """Others may take it."""


class Holding(Fact):
    """Transactions that are worked on are about to get a longer lease."""


class Held(Fact):
    """Nobody asks about them before it is over."""


class Enlisting(Fact):
    """A process is about to say that it answers for its producer groups."""


class Enlisted(Fact):
    """It is asked, for a time."""


class Asking(Fact):
    """Questions are about to be counted and put to members of a producer group."""


class Asked(Fact):
    """They wait for their answers."""


class Hearing(Fact):
    """A member is about to take up its questions."""


class Heard(Fact):
    """Its time to answer runs."""


class Answering(Fact):
    """Answered questions are about to be taken away; what was decided stands already."""


class Answered(Fact):
    """They are answered, and counted by their answer."""


class Collecting(Fact):
    """Questions that nobody answers are about to be taken away."""


class Collected(Fact):
    """Their transactions can be asked about again."""


class Resuming(Fact):
    """A parked transaction is about to be put back on the list of doubts."""


class Resumed(Fact):
    """It is asked about again, from the first check on."""


class Postponing(Fact):
    """A doubt that could not be settled is about to be put off, its check counted."""


class Postponed(Fact):
    """It will be asked about again later."""


class Parking(Fact):
    """A doubt that is out of checks is about to be parked."""


class Parked(Fact):
    """It stays invisible and listed until somebody settles it by hand."""


class Partitioning(Fact):
    """Partitions are about to be added or dropped, and groups that nobody is seen in to be forgotten."""


class Partitioned(Fact):
    """There is room for numbers, and what nobody needs is gone."""


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


class Purging(Fact):
    """Dead letters are about to be deleted."""


class Purged(Fact):
    """They are gone."""


class Resubmitting(Fact):
    """The messages of a transaction that was rolled back are about to be committed in a new one."""


class Resubmitted(Fact):
    """The new transaction stands committed, linked to the old one."""


ALL: tuple[type[Fact], ...] = tuple(Fact.__subclasses__())
"""Every fact there is: the complete list of kill points."""

AFTER: Mapping[type[Fact], type[Fact]] = dict(zip(ALL[::2], ALL[1::2], strict=True))
"""The fact behind a step, by the one before it: they stand in pairs above."""
