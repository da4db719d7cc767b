"""
Facts: every durable step, announced before and after it happens.

Logs, metrics and the kill harness are observers of these values. The list of kill points is
the list of facts: a step that does not announce itself is a step that nobody has killed.
"""

from __future__ import annotations

from collections.abc import Mapping

from txsaga.model.consuming_facts import Acknowledged as Acknowledged
from txsaga.model.consuming_facts import Acknowledging as Acknowledging
from txsaga.model.consuming_facts import Binding as Binding
from txsaga.model.consuming_facts import Bound as Bound
from txsaga.model.consuming_facts import Buried as Buried
from txsaga.model.consuming_facts import Burying as Burying
from txsaga.model.consuming_facts import Extended as Extended
from txsaga.model.consuming_facts import Extending as Extending
from txsaga.model.consuming_facts import Ordered as Ordered
from txsaga.model.consuming_facts import Ordering as Ordering
from txsaga.model.consuming_facts import Replayed as Replayed
from txsaga.model.consuming_facts import Replaying as Replaying
from txsaga.model.consuming_facts import Returned as Returned
from txsaga.model.consuming_facts import Returning as Returning
from txsaga.model.consuming_facts import Surrendered as Surrendered
from txsaga.model.consuming_facts import Surrendering as Surrendering
from txsaga.model.consuming_facts import Taken as Taken
from txsaga.model.consuming_facts import Taking as Taking
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
from txsaga.model.coordination_facts import Tidied as Tidied
from txsaga.model.coordination_facts import Tidying as Tidying
from txsaga.model.coordination_facts import Voted as Voted
from txsaga.model.coordination_facts import Voting as Voting
from txsaga.model.fact import Fact as Fact
from txsaga.model.flow_facts import Alarmed as Alarmed
from txsaga.model.flow_facts import Alarming as Alarming
from txsaga.model.flow_facts import Closed as Closed
from txsaga.model.flow_facts import Closing as Closing
from txsaga.model.flow_facts import Declared as Declared
from txsaga.model.flow_facts import Declaring as Declaring
from txsaga.model.flow_facts import Settled as Settled
from txsaga.model.flow_facts import Settling as Settling
from txsaga.model.flow_facts import Started as Started
from txsaga.model.flow_facts import Starting as Starting
from txsaga.model.flow_facts import Touched as Touched
from txsaga.model.flow_facts import Touching as Touching
from txsaga.model.lake_facts import Branched as Branched
from txsaga.model.lake_facts import Branching as Branching
from txsaga.model.lake_facts import Building as Building
from txsaga.model.lake_facts import Built as Built
from txsaga.model.lake_facts import Filed as Filed
from txsaga.model.lake_facts import Filing as Filing
from txsaga.model.lake_facts import Staged as Staged
from txsaga.model.lake_facts import Staging as Staging
from txsaga.model.saga_facts import Acted as Acted
from txsaga.model.saga_facts import Acting as Acting
from txsaga.model.saga_facts import Claimed as Claimed
from txsaga.model.saga_facts import Claiming as Claiming
from txsaga.model.saga_facts import Compensated as Compensated
from txsaga.model.saga_facts import Compensating as Compensating
from txsaga.model.saga_facts import Marked as Marked
from txsaga.model.saga_facts import Marking as Marking
from txsaga.model.saga_facts import Recorded as Recorded
from txsaga.model.saga_facts import Recording as Recording
from txsaga.model.saga_facts import Skipped as Skipped
from txsaga.model.saga_facts import Skipping as Skipping
from txsaga.model.saga_facts import Stalled as Stalled
from txsaga.model.saga_facts import Stalling as Stalling


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
