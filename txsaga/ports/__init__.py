"""
The ports: what the engine needs of the world, as narrow protocols whose docstrings are promises.

The PostgreSQL store and the in-memory store are held to the same contract suites (`txsaga.testing`).
"""

from txsaga.ports.branches import Branches
from txsaga.ports.claims import Claims
from txsaga.ports.doubts import Doubts
from txsaga.ports.effects import HomeEffect, Ready
from txsaga.ports.evidence import Evidence
from txsaga.ports.flows import FlowLedger, Flows
from txsaga.ports.followers import Followers
from txsaga.ports.gates import Gate
from txsaga.ports.groups import ConsumerGroups, DeadLetters
from txsaga.ports.halves import HalfStore
from txsaga.ports.leases import Leases
from txsaga.ports.ledger import Ledger, Ledgers
from txsaga.ports.log import Log
from txsaga.ports.observer import Observer
from txsaga.ports.overview import Overview
from txsaga.ports.participants import Enlisted, Participant
from txsaga.ports.questions import Questions
from txsaga.ports.queues import Queues
from txsaga.ports.registry import Registry
from txsaga.ports.reservations import Reservations
from txsaga.ports.runs import Runs, RunState
from txsaga.ports.schedule import Schedule
from txsaga.ports.step_work import StepWork
from txsaga.ports.steps import Steps
from txsaga.ports.store import Store
from txsaga.ports.tables import TableLedger

__all__ = [
    "Branches",
    "Claims",
    "ConsumerGroups",
    "DeadLetters",
    "Doubts",
    "Enlisted",
    "Evidence",
    "FlowLedger",
    "Flows",
    "Followers",
    "Gate",
    "HalfStore",
    "HomeEffect",
    "Leases",
    "Ledger",
    "Ledgers",
    "Log",
    "Observer",
    "Overview",
    "Participant",
    "Questions",
    "Queues",
    "Ready",
    "Registry",
    "Reservations",
    "RunState",
    "Runs",
    "Schedule",
    "StepWork",
    "Steps",
    "Store",
    "TableLedger",
]
