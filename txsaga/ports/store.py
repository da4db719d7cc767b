"""A store: one home database, or its stand-in in memory."""

from typing import Protocol

from txsaga.model.rights import Right
from txsaga.ports.branches import Branches
from txsaga.ports.claims import Claims
from txsaga.ports.doubts import Doubts
from txsaga.ports.flows import Flows
from txsaga.ports.groups import ConsumerGroups, DeadLetters
from txsaga.ports.halves import HalfStore
from txsaga.ports.leases import Leases
from txsaga.ports.ledger import Ledgers
from txsaga.ports.log import Log
from txsaga.ports.overview import Overview
from txsaga.ports.questions import Questions
from txsaga.ports.queues import Queues
from txsaga.ports.registry import Registry
from txsaga.ports.reservations import Reservations
from txsaga.ports.schedule import Schedule
from txsaga.ports.steps import Steps


class Store(Protocol):
    """All ports of one home database."""

    @property
    def waits_in_loops(self) -> bool:
        """Whether what is written of halves and branches waits within a loop as a task does; else it blocks."""

    @property
    def halves(self) -> HalfStore:
        """The hot path."""

    @property
    def ledgers(self) -> Ledgers:
        """Keyed and flow transactions."""

    @property
    def log(self) -> Log:
        """Offsets and partitions."""

    @property
    def doubts(self) -> Doubts:
        """Transactions that somebody must decide."""

    @property
    def questions(self) -> Questions:
        """What members of producer groups are asked."""

    @property
    def leases(self) -> Leases:
        """Who leads, and who is alive."""

    @property
    def schedule(self) -> Schedule:
        """Messages for later."""

    @property
    def queues(self) -> Queues:
        """Consumer groups."""

    @property
    def branches(self) -> Branches:
        """Branches of coordinated transactions."""

    @property
    def flows(self) -> Flows:
        """What flows hold."""

    @property
    def steps(self) -> Steps:
        """Steps, and sagas that are not over."""

    @property
    def reservations(self) -> Reservations:
        """What tries reserved."""

    @property
    def claims(self) -> Claims:
        """Messages in the hands of consumers."""

    @property
    def groups(self) -> ConsumerGroups:
        """Consumer groups and their policies."""

    @property
    def dead_letters(self) -> DeadLetters:
        """Messages that groups gave up."""

    @property
    def registry(self) -> Registry:
        """Topics, groups, resources, identity."""

    @property
    def overview(self) -> Overview:
        """Figures for people."""

    @property
    def rights(self) -> frozenset[Right]:
        """What this process may do here."""

    def close(self) -> None:
        """Give back every connection."""
