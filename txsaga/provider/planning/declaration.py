"""
A message flow as declared: what starts it, what its steps do to which resources, what it sends.

Plain data, in the order of declaration; `modes` places each piece of work, `refusals` reports what is wrong. The
defaults are those of local one-phase work: coordination must be requested.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from txsaga.core.decision import Decision
    from txsaga.flows.ballot import Ballot
    from txsaga.flows.step import Hold


class InputKind(StrEnum):
    """What starts a flow."""

    TOPIC = "topic"  # a topic of the home store
    QUEUE = "queue"  # a queue of a foreign broker
    FILES = "files"
    TRIGGER = "trigger"  # manual, on a schedule, or user-defined


class TransactionMode(StrEnum):
    """Whether an input or output is transactional."""

    AUTOMATIC = "automatic"
    YES = "yes"
    NO = "no"


class Persistence(StrEnum):
    """Whether sent messages are persistent."""

    AUTOMATIC = "automatic"  # as the input was
    YES = "yes"
    NO = "no"
    AS_QUEUE = "as-queue"  # as configured for its topic


class ResourceMode(StrEnum):
    """How a flow uses a resource."""

    MAIN = "main"  # in the coordinated transaction, if the flow has one
    LANE = "lane"  # auxiliary work, committed or rolled back by itself
    LOCAL = "local"  # it takes no part


class StepMode(StrEnum):
    """When the work of a step is settled."""

    AUTOMATIC = "automatic"  # with the flow
    COMMIT = "commit"  # when the step and the path below it end


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """Something that starts the flow: one transaction for each item received."""

    name: str
    kind: InputKind = InputKind.TOPIC
    persistent: bool = True
    transaction: TransactionMode = TransactionMode.AUTOMATIC
    retries: int = 0  # for files, which a rollback does not restore


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredResource:
    """A resource that steps work on."""

    name: str
    kind: str
    mode: ResourceMode = ResourceMode.MAIN
    instance: str | None = None  # its data source, if two names share one
    no_mix: bool = False  # this instance can't mix coordinated and uncoordinated work
    home: bool = False  # it is in the home database: journalled work is part of the decision's own commit

    @property
    def source(self) -> str:
        """Its data source, which has one lane."""
        return self.instance or self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One statement; without text, the work of a function."""

    text: str = ""
    uncoordinated: bool = False  # it runs outside the main transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredStep:
    """One step: work on a resource, or settling its lane, or a function alone."""

    name: str
    resource: str | None = None
    statements: tuple[Statement, ...] = ()
    mode: StepMode = StepMode.AUTOMATIC
    hold: Hold | None = None  # None: what its resource supports
    propagates: tuple[str, ...] = ()  # the steps that it calls and waits for
    settle: Decision | None = None  # for the open unit of its resource's lane, after its own statements

    @property
    def work(self) -> tuple[Statement, ...]:
        """Its statements on its resource."""
        if self.resource is None or (self.settle and not self.statements):
            return ()
        return self.statements or (Statement(),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A destination of the flow's messages."""

    name: str
    topic: str
    transaction: TransactionMode = TransactionMode.AUTOMATIC
    persistence: Persistence = Persistence.AUTOMATIC
    topic_persistent: bool = True  # as configured for the topic


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowDeclaration:
    """A message flow."""

    name: str
    inputs: tuple[Input, ...] = ()
    resources: tuple[DeclaredResource, ...] = ()
    steps: tuple[DeclaredStep, ...] = ()
    outputs: tuple[Output, ...] = ()
    ballots: tuple[Ballot, ...] = ()
    coordinated: bool = False  # foreign resources use two-phase commit; otherwise each commits by itself
    coordinators: tuple[str, ...] = ()

    def resource_of(self, step: DeclaredStep) -> DeclaredResource | None:
        """Return the declared resource of a step, if there is one."""
        return next((each for each in self.resources if each.name == step.resource), None)
