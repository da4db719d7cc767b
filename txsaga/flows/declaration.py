"""
A message flow as it is declared: what starts it, what its steps do to which resources, what it sends.

Plain data, in the order in which it was declared. Nothing is looked up or checked here: `plan` says where each piece of
work belongs, or everything that is wrong. What is not said has the default of local one-phase work: coordination is
asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from txsaga.clusters.config import ClusterConfig
from txsaga.core.decision import Decision
from txsaga.errors import ConfigError


class InputKind(StrEnum):
    """What starts a flow."""

    TOPIC = "topic"  # a topic of the home store
    QUEUE = "queue"  # a queue of a foreign broker
    FILES = "files"
    TRIGGER = "trigger"  # by hand, on schedule, or whatever a user made


class TransactionMode(StrEnum):
    """Whether an input or an output takes part."""

    AUTOMATIC = "automatic"
    YES = "yes"
    NO = "no"


class Persistence(StrEnum):
    """Whether what is sent is persistent."""

    AUTOMATIC = "automatic"  # as the input was
    YES = "yes"
    NO = "no"
    AS_QUEUE = "as-queue"  # as its topic says


class ResourceMode(StrEnum):
    """What a resource is for in a flow."""

    MAIN = "main"  # the coordinated transaction, where the flow has one
    LANE = "lane"  # auxiliary work, settled by itself
    LOCAL = "local"  # it takes no part


class StepMode(StrEnum):
    """When the work of a step is settled."""

    AUTOMATIC = "automatic"  # with the flow
    COMMIT = "commit"  # when the step ends, and the path below it


class Hold(StrEnum):
    """How work is kept between its step and its decision."""

    PREPARED = "prepared"  # done now, held as a prepared branch
    JOURNAL = "journal"  # written down now, done at the decision


class BallotRule(StrEnum):
    """What a ballot asks for."""

    ALL = "all"
    QUORUM = "quorum"
    WARN = "warn"  # it is told and decides nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """Something that starts the flow, one transaction for each thing received."""

    name: str
    kind: InputKind = InputKind.TOPIC
    persistent: bool = True
    transaction: TransactionMode = TransactionMode.AUTOMATIC
    retries: int = 0  # of files, which no rollback puts back


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredResource:
    """Something that steps work on."""

    name: str
    kind: str
    mode: ResourceMode = ResourceMode.MAIN
    instance: str | None = None  # the data source behind it, where two names share one
    no_mix: bool = False  # this instance can't do coordinated and uncoordinated work
    home: bool = False  # it lies in the home database, so what is journalled is part of the decision's own commit
    last: bool = False  # its own commit is the decision

    @property
    def source(self) -> str:
        """Its data source: what has one lane."""
        return self.instance or self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One statement; without text it is a function's work."""

    text: str = ""
    uncoordinated: bool = False  # it leaves the main transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Catch:
    """The step tries its own work and the path below it; `to` gets what fails there, else it is dropped."""

    to: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredStep:
    """One step: work on a resource, or the settling of its lane, or a function alone."""

    name: str
    resource: str | None = None
    statements: tuple[Statement, ...] = ()
    mode: StepMode = StepMode.AUTOMATIC
    hold: Hold | None = None  # None: what its resource can
    propagates: tuple[str, ...] = ()  # the steps that it calls and waits for
    failure: str | None = None  # the step that gets the message as it was, and the errors
    catch: Catch | None = None
    settle: Decision | None = None  # of the open unit of its resource's lane, behind its own statements

    @property
    def work(self) -> tuple[Statement, ...]:
        """What it does to its resource."""
        if self.resource is None or (self.settle and not self.statements):
            return ()
        return self.statements or (Statement(),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A place where the flow sends."""

    name: str
    topic: str
    transaction: TransactionMode = TransactionMode.AUTOMATIC
    persistence: Persistence = Persistence.AUTOMATIC
    topic_persistent: bool = True  # what the topic says
    cluster: str | None = None  # None: the home store


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredBallot:
    """Votes that are no resource's: a gate, an approval."""

    name: str
    voters: tuple[str, ...]
    rule: BallotRule = BallotRule.ALL
    quorum: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowDeclaration:
    """A message flow."""

    name: str
    inputs: tuple[Input, ...] = ()
    resources: tuple[DeclaredResource, ...] = ()
    steps: tuple[DeclaredStep, ...] = ()
    outputs: tuple[Output, ...] = ()
    ballots: tuple[DeclaredBallot, ...] = ()
    clusters: tuple[ClusterConfig, ...] = ()
    coordinated: bool = False  # foreign resources take part by two phases; without it each commits by itself
    coordinators: tuple[str, ...] = ()

    def step(self, name: str) -> DeclaredStep:
        """Return a step by its name."""
        found = next((step for step in self.steps if step.name == name), None)
        if found is None:
            raise ConfigError(f"flow {self.name!r} has no step {name!r}")
        return found

    def resource_of(self, step: DeclaredStep) -> DeclaredResource | None:
        """Return the resource of a step, if it has one that is declared."""
        return next((each for each in self.resources if each.name == step.resource), None)

    def cluster_of(self, output: Output) -> ClusterConfig | None:
        """Return the cluster of an output, if it has one that is declared."""
        return next((each for each in self.clusters if each.name == output.cluster), None)
