"""
Facts: every durable step, announced before and after it happens.

Logs, metrics and the kill harness are observers of these values. The list of kill points is the list of facts: a step
that announces nothing is never killed in a test.
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


_after: dict[type[Fact], type[Fact]] = {}


def _step(names: str, before: str, after: str) -> tuple[type[Fact], type[Fact]]:
    """Make the two facts of a step: what is about to happen, and what is true once it has happened."""
    first, second = (
        type(name, (Fact,), {"__doc__": says, "__module__": __name__, "__slots__": ()})
        for name, says in zip(names.split(), (before, after), strict=True)
    )
    _after[first] = second
    return first, second


Taking, Taken = _step(
    "Taking Taken", "A consumer is about to claim messages.", "Other members don't see them until the claim expires."
)
Ordering, Ordered = _step(
    "Ordering Ordered",
    "Messages of an ordered group are about to be put in order by key.",
    "Each is delivered after the earlier messages with its key are done.",
)
Acknowledging, Acknowledged = _step(
    "Acknowledging Acknowledged", "Claimed messages are about to be removed from their group.", "They do not return."
)
Extending, Extended = _step("Extending Extended", "A claim is about to be extended.", "It expires later.")
Returning, Returned = _step(
    "Returning Returned", "A message whose work failed is about to be put back.", "It is delivered again later."
)
Surrendering, Surrendered = _step(
    "Surrendering Surrendered",
    "Unprocessed messages are about to be given back.",
    "They are delivered again as if they had not been claimed.",
)
Burying, Buried = _step(
    "Burying Buried",
    "A message that failed too often is about to leave its group.",
    "It is in the backout topic or is a dead letter; without either, it is lost.",
)
Binding, Bound = _step(
    "Binding Bound",
    "A claimed message is about to be bound to a transaction.",
    "Only that transaction's decision ends the claim.",
)
Replaying, Replayed = _step(
    "Replaying Replayed", "Dead letters are about to return to their group.", "They are ordinary messages."
)
Naming, Named = _step(
    "Naming Named",
    "The branches of a transaction are about to be recorded, before their work begins.",
    "Recovery knows which resources to check.",
)
Calling, Called = _step("Calling Called", "A ballot is about to be opened.", "COMMIT waits for its votes.")
Casting, Cast = _step("Casting Cast", "A vote is about to be cast in a ballot.", "The vote is final.")
Voting, Voted = _step(
    "Voting Voted",
    "A branch is about to be asked for its vote.",
    "It voted yes: its resource keeps it prepared until the decision.",
)
Finishing, Finished = _step(
    "Finishing Finished", "A decided branch is about to be committed or rolled back.", "Its resource has done so."
)
Noting, Noted = _step(
    "Noting Noted",
    "Outcomes of branches are about to be recorded.",
    "Their resources are not asked about them any more.",
)
Tidying, Tidied = _step(
    "Tidying Tidied", "Evidence rows of finished branches are about to be deleted.", "They are gone."
)
Declaring, Declared = _step(
    "Declaring Declared",
    "A flow is about to be started or joined, with the resources of its steps.",
    "Any process can join it by its key or its number.",
)
Starting, Started = _step(
    "Starting Started",
    "An attempt of a step is about to be recorded, with the name of its branch.",
    "The attempt before it no longer counts: what it prepared is rolled back.",
)
Closing, Closed = _step(
    "Closing Closed",
    "The end of a step is about to be written, with its journal and its messages.",
    "The step is done or has failed; one that is done does not run again.",
)
Touching, Touched = _step("Touching Touched", "A waiting flow is about to renew its lease.", "Its lease is renewed.")
Settling, Settled = _step(
    "Settling Settled",
    "A unit of a lane is about to be committed or rolled back independently of the flow.",
    "That is final, regardless of the flow's decision.",
)
Alarming, Alarmed = _step(
    "Alarming Alarmed",
    "Locks held longer than a flow's budget are about to be recorded.",
    "They are shown with the flow.",
)
Branching, Branched = _step(
    "Branching Branched",
    "A table is about to get a branch that another engine writes to.",
    "The branch exists; what is written there counts once it is recorded.",
)
Staging, Staged = _step(
    "Staging Staged",
    "Files of a table are about to be written where readers don't see them.",
    "They exist, listed in a manifest that the store does not know yet.",
)
Filing, Filed = _step(
    "Filing Filed", "The record of a staged write is about to be stored.", "The decision can publish it."
)
Building, Built = _step(
    "Building Built", "The next metadata of tables is about to be written.", "It exists, but no pointer refers to it."
)
Recording, Recorded = _step(
    "Recording Recorded",
    "Steps are about to be recorded, before they run.",
    "Recovery knows that they may have run, and how to undo them.",
)
Acting, Acted = _step("Acting Acted", "A step that leaves no evidence is about to run.", "It has run.")
Compensating, Compensated = _step(
    "Compensating Compensated",
    "The compensation of a step is about to run.",
    "It has run, or there was nothing to undo.",
)
Marking, Marked = _step("Marking Marked", "Outcomes of steps are about to be recorded.", "They are not run again.")
Claiming, Claimed = _step(
    "Claiming Claimed",
    "Sagas whose driver is gone are about to be taken over.",
    "Their previous driver can no longer write to them.",
)
Stalling, Stalled = _step(
    "Stalling Stalled",
    "A compensation that failed too often is about to be left to an operator.",
    "Its saga waits until an operator resumes or skips it.",
)
Skipping, Skipped = _step("Skipping Skipped", "An operator is about to resume or skip a step.", "Its saga continues.")
Registering, Registered = _step(
    "Registering Registered",
    "A topic, a producer group, a resource or its evidence table is about to be registered, altered or deleted.",
    "It is known by its name, or no longer.",
)
Preparing, Prepared = _step(
    "Preparing Prepared",
    "Half messages are about to be stored; their numbers are not known yet.",
    "They are durable and hidden.",
)
Publishing, Published = _step(
    "Publishing Published",
    "Plain messages are about to be stored with their decision.",
    "They are durable and will be dispatched.",
)
Opening, Opened = _step(
    "Opening Opened",
    "A keyed transaction is about to be opened, joined or taken over.",
    "It is open and belongs to this owner.",
)
Adding, Added = _step(
    "Adding Added", "Half messages are about to be added to an open transaction.", "They are in the transaction."
)
Reserving, Reserved = _step(
    "Reserving Reserved",
    "A slot for a late body is about to be reserved.",
    "The transaction can commit only with that body.",
)
Ending, Ended = _step("Ending Ended", "A transaction is about to be sealed.", "It is sealed: evidence may commit it.")
Working, Worked = _step(
    "Working Worked", "The local transaction is about to commit, evidence included.", "It is committed."
)
Deciding, Decided = _step("Deciding Decided", "The decision is about to be written.", "The decision is final.")
Fencing, Fenced = _step(
    "Fencing Fenced",
    "An abort marker (rollback barrier) is about to be written into a resource.",
    "A late local commit is no longer possible.",
)
Ticking, Ticked = _step(
    "Ticking Ticked", "A batch of decisions is about to get its offsets.", "Consumers see the batch."
)
Scheduling, Scheduled = _step(
    "Scheduling Scheduled",
    "Delayed messages that are due are about to be committed.",
    "They are committed; the next tick assigns their offsets.",
)
Positioning, Positioned = _step(
    "Positioning Positioned",
    "Cursors of a consumer group, or of a purged topic, are about to be created, moved or removed.",
    "The group knows where to start reading.",
)
Renewing, Renewed = _step(
    "Renewing Renewed", "A member is about to take or renew its lease.", "The member counts as alive."
)
Acquiring, Acquired = _step("Acquiring Acquired", "A member is about to take a queue.", "It owns the queue.")
Releasing, Released = _step(
    "Releasing Released", "A member is about to give back one queue or all.", "Others may take them."
)
Intending, Intended = _step(
    "Intending Intended",
    "Offsets are about to be bound to a transaction.",
    "Only that transaction's decision moves them.",
)
Advancing, Advanced = _step("Advancing Advanced", "A cursor is about to move.", "It has moved.")
Sweeping, Swept = _step(
    "Sweeping Swept",
    "New undecided half messages are about to be put on the list of pending transactions.",
    "They are on the list, and the checkpoint has moved.",
)
Leading, Led = _step(
    "Leading Led", "A process is about to take the lead of a round.", "No other process leads one, for a time."
)
Yielding, Yielded = _step("Yielding Yielded", "The lead of a round is about to be given back.", "Others may take it.")
Holding, Held = _step(
    "Holding Held",
    "Transactions in progress are about to get a longer lease.",
    "They are not checked before it expires.",
)
Enlisting, Enlisted = _step(
    "Enlisting Enlisted",
    "A process is about to register as a member of its producer groups.",
    "It is asked about their transactions until its lease expires.",
)
Asking, Asked = _step(
    "Asking Asked",
    "Questions are about to be counted and sent to members of a producer group.",
    "They wait for their answers.",
)
Hearing, Heard = _step("Hearing Heard", "A member is about to take its questions.", "Its time to answer starts.")
Answering, Answered = _step(
    "Answering Answered",
    "Answered questions are about to be removed; their decisions are written already.",
    "They are counted by their answer.",
)
Collecting, Collected = _step(
    "Collecting Collected",
    "Questions without an answer are about to be removed.",
    "Their transactions can be asked about again.",
)
Resuming, Resumed = _step(
    "Resuming Resumed",
    "A parked transaction is about to return to the list of pending transactions.",
    "It is checked again, starting from its first check.",
)
Postponing, Postponed = _step(
    "Postponing Postponed",
    "An undecided transaction is about to be postponed, and its check counted.",
    "It is checked again later.",
)
Parking, Parked = _step(
    "Parking Parked",
    "A transaction that ran out of checks is about to be parked.",
    "It stays hidden and listed until an operator decides it.",
)
Partitioning, Partitioned = _step(
    "Partitioning Partitioned",
    "Partitions are about to be added or dropped, and unused groups to be forgotten.",
    "There is room for new numbers; unused partitions and groups are gone.",
)
Purging, Purged = _step("Purging Purged", "Dead letters are about to be deleted.", "They are gone.")
Resubmitting, Resubmitted = _step(
    "Resubmitting Resubmitted",
    "The messages of a rolled-back transaction are about to be committed in a new one.",
    "The new transaction is committed and linked to the old one.",
)

AFTER: Mapping[type[Fact], type[Fact]] = _after
"""The fact after a step, by the one before it."""

ALL: tuple[type[Fact], ...] = tuple(fact for pair in AFTER.items() for fact in pair)
"""Every fact there is: the complete list of kill points."""
