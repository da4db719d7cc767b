"""
Facts: every durable step, announced before and after it happens.

Logs, metrics and the kill harness are observers of these values. The list of kill points is
the list of facts: a step that does not announce itself is a step that nobody has killed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fact:
    """A durable step of some transactions, or of a role."""

    txids: tuple[int, ...] = ()
    about: str = ""

    @property
    def name(self) -> str:
        """The word that logs and kill points use."""
        return type(self).__name__


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


class Declaring(Fact):
    """A flow is about to be begun or joined, with the resources that its steps may work in."""


class Declared(Fact):
    """Any process can join it by its key or its number."""


class Starting(Fact):
    """An attempt of a step is about to be written down, with the name of its branch."""


class Started(Fact):
    """The attempt before it counts no more: whatever that one prepared is rolled back."""


class Closing(Fact):
    """The end of a step is about to be written, with its journal and its messages."""


class Closed(Fact):
    """The step is done, or has failed; one that is done is not run again."""


class Touching(Fact):
    """A flow that waits is about to show that it is not forgotten."""


class Touched(Fact):
    """Its lease runs anew."""


class Settling(Fact):
    """A unit of a lane is about to be committed or rolled back by itself."""


class Settled(Fact):
    """That stands, whatever becomes of the flow."""


class Alarming(Fact):
    """Locks that a flow holds for longer than its budget are about to be written down."""


class Alarmed(Fact):
    """Whoever looks at the flow finds it."""


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
