"""
What a flow must not ask for, and what to do instead.

Each kind of refusal has a remedy, which is shown to the user and on the page about modes. A message names its subject,
usually the resource, first.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from txsaga.clusters.policies import PolicyName


class Refusal(Enum):
    """What is refused, with the remedy."""

    NO_INPUT = ("a flow that nothing starts", "give it an input: a topic, a queue, files or a trigger")
    TWICE = ("one name for two things of a kind", "give each a name of its own")
    UNKNOWN = ("a name that the flow does not declare", "declare it, or correct the name")
    LOOP = ("a path that comes back to where it was", "let it end in a step that calls none of those before it")
    NO_RESOURCE = ("statements, or the settling of a lane, without a resource", "name the resource")
    NO_COORDINATOR = ("coordination without a coordinator", "name one: the connection of the home database")
    COORDINATORS = ("more than one coordinator", "keep one")
    BROKER_COORDINATES = ("a broker as the coordinator", "a broker is a resource; name the home database's connection")
    UNDECLARED = (
        "coordinated, auxiliary or held work on a kind that nobody has declared",
        "use a declared kind, or make the resource local: then it commits by itself",
    )
    NO_TWO_PHASE = (
        "coordinated work on a resource without two-phase commit",
        "use one that has it, make this one the last resource where it can be that, or an auxiliary lane",
    )
    NO_LANE = (
        "an auxiliary lane of a resource that can't have one",
        "use a database for it, or make the resource local: then its work is settled at its own end",
    )
    QUEUE_LANE = (
        "a lane of a queue, or its COMMIT or ROLLBACK",
        "this is a limit of the queue system itself, no engine can lift it: what is put there uncoordinated commits at "
        "once, each by itself; use an output of the flow, or a database",
    )
    NO_MIX = (
        "coordinated and uncoordinated work on one instance that can't mix them",
        "use two instances, one for each kind of work",
    )
    NOTHING_TO_SETTLE = (
        "a COMMIT or ROLLBACK of a lane that no step before it worked in",
        "mark the statements that belong to the lane as uncoordinated, or leave the step out",
    )
    LAST_UNABLE = ("a last resource that can't be one", "leave `last` out")
    LAST_IDLE = (
        "a last resource whose commit decides nothing",
        "set coordinated=True and keep it in main, or leave `last` out",
    )
    TWO_LAST = ("more than one last resource", "keep one; the others need two-phase commit or a lane")
    LAST_BESIDE_EFFECTS = (
        "a last resource beside home effects that can fail",
        "its commit would be the decision, and a home effect may fail after it: use a resource with two-phase commit, "
        "or move the home work into a lane",
    )
    HOLD_PREPARED = ("prepared work on a resource without two-phase commit", "hold it in the journal")
    HOLD_JOURNAL = ("a journal for a resource that is no database", "hold it prepared")
    JOURNAL_READS = (
        "a journalled statement that gives rows back",
        "nobody is there to read them when it is done: hold the step prepared, or read in another step",
    )
    JOURNAL_BLIND = (
        "a function's work in a journal",
        "only statements can be written down: give them, or hold the step prepared on a resource that has two phases",
    )
    CANNOT_WAIT = (
        "commit mode with a path below it, on a resource that commits at once",
        "leave the path out, or use a database",
    )
    RETRIES = ("retries of an input that a rollback puts back", "leave them out: its consumer group counts attempts")
    OUTPUT_ALONE = (
        "a transactional output to a cluster, without coordination",
        "set coordinated=True, send to the home store, or set the output's transaction to no",
    )
    CLUSTER_NOT_XA = ("a transactional output to a cluster without XA", "set xa on the cluster")
    CLUSTER_BEST_EFFORT = (
        "a transactional output by best effort",
        f"choose {PolicyName.GUARANTEED} and set xa, or set the output's transaction to no",
    )
    CLUSTER = ("a cluster that contradicts itself", "correct what the text names")
    BALLOT = ("a ballot that can't be counted", "name its voters, and for a quorum how many of them")

    def __init__(self, asked: str, remedy: str) -> None:
        self.asked, self.remedy = asked, remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One reason why a flow can't run as declared."""

    refusal: Refusal
    subject: str
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.what}; {self.remedy}"


def problem(refusal: Refusal, subject: str, what: str, remedy: str = "") -> Problem:
    """Return a problem, with the remedy of its kind unless another is given."""
    return Problem(refusal=refusal, subject=subject, what=what, remedy=remedy or refusal.remedy)
