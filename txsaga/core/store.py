"""A store: one home database, or its stand-in in memory."""

from typing import Protocol

from txsaga.checkback.ports import Doubts, Leases, Questions
from txsaga.consume.ports import Claims, ConsumerGroups, DeadLetterStore, Log, Queues
from txsaga.flows.ports import BranchStore, Flows, Steps
from txsaga.inspect.ports import Overview
from txsaga.messages.ports import HalfStore, Ledgers, Registry, Schedule
from txsaga.resources.reservations import Reservations
from txsaga.store.right import Right


class Store(Protocol):
    """All ports of one home database."""

    @property
    def waits_in_loops(self) -> bool:
        """Whether writes of half messages and branches, within a loop, suspend only the task; else they block."""

    @property
    def halves(self) -> HalfStore:
        """Half messages, the hot path."""

    @property
    def ledgers(self) -> Ledgers:
        """Keyed and flow transactions."""

    @property
    def log(self) -> Log:
        """Offsets and partitions."""

    @property
    def doubts(self) -> Doubts:
        """Transactions for check-back."""

    @property
    def questions(self) -> Questions:
        """Questions to members of producer groups."""

    @property
    def leases(self) -> Leases:
        """Which processes lead or live."""

    @property
    def schedule(self) -> Schedule:
        """Messages for later."""

    @property
    def queues(self) -> Queues:
        """Consumer groups."""

    @property
    def branches(self) -> BranchStore:
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
        """Messages claimed by consumers."""

    @property
    def groups(self) -> ConsumerGroups:
        """Consumer groups and their policies."""

    @property
    def dead_letters(self) -> DeadLetterStore:
        """Messages that groups gave up on."""

    @property
    def registry(self) -> Registry:
        """Topics, groups, resources, identity."""

    @property
    def overview(self) -> Overview:
        """Figures for operators."""

    @property
    def rights(self) -> frozenset[Right]:
        """What this process may do here."""

    def close(self) -> None:
        """Close all connections."""
