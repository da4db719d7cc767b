"""
Contract suites for stores, and the kill harness (`txsaga.testing.kill`), for whoever writes a store or flows.

The stores of txsaga are held to the same suites. Give pytest three fixtures and take all suites in::

    @pytest.fixture
    def store() -> Iterator[Store]: ...     # a fresh, empty store, closed after the test

    @pytest.fixture
    def later() -> Later: ...               # lets seconds pass: `FakeClock.advance`, or `time.sleep`

    @pytest.fixture
    def unseen() -> Unseen: ...             # lets a group be without members for so long

    globals().update(suites())              # or some of them: class TestHalf(HalfContract): ...

The tests carry the marks `req` and `rule`; add both to `markers` where pytest runs with `--strict-markers`.
A participant of two-phase commit has a suite of its own, `ParticipantContract`, which says what fixtures it takes.
Nothing here may know how a store keeps its rows. The suites are loaded when they are asked for: a process
that is to be killed loads this package without pytest.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if "pytest" in sys.modules:  # first of all: asserts are rewritten at import
    from txsaga.testing import rewriting as rewriting

if TYPE_CHECKING:
    from txsaga.testing.backlog_contract import BacklogContract
    from txsaga.testing.binding_contract import BindingContract
    from txsaga.testing.branch_contract import BranchContract
    from txsaga.testing.burial_contract import BurialContract
    from txsaga.testing.claim_contract import ClaimContract
    from txsaga.testing.clock import FakeClock
    from txsaga.testing.decision_contract import DecisionContract
    from txsaga.testing.declared_contract import DeclaredContract
    from txsaga.testing.doubt_contract import DoubtContract
    from txsaga.testing.effect_contract import EffectContract
    from txsaga.testing.end_contract import EndContract
    from txsaga.testing.expiry_contract import ExpiryContract
    from txsaga.testing.flow_contract import FlowContract
    from txsaga.testing.group_contract import GroupContract
    from txsaga.testing.guest_contract import GuestContract
    from txsaga.testing.half_contract import HalfContract
    from txsaga.testing.intent_contract import IntentContract
    from txsaga.testing.joint_contract import JointContract
    from txsaga.testing.lease_contract import LeaseContract
    from txsaga.testing.ledger_contract import LedgerContract
    from txsaga.testing.log_contract import LogContract
    from txsaga.testing.order_contract import OrderContract
    from txsaga.testing.overview_contract import OverviewContract
    from txsaga.testing.participant_contract import ParticipantContract
    from txsaga.testing.question_contract import QuestionContract
    from txsaga.testing.queue_contract import QueueContract
    from txsaga.testing.redelivery_contract import RedeliveryContract
    from txsaga.testing.registry_contract import RegistryContract
    from txsaga.testing.replay_contract import ReplayContract
    from txsaga.testing.reservation_contract import ReservationContract
    from txsaga.testing.reset_contract import ResetContract
    from txsaga.testing.schedule_contract import ScheduleContract
    from txsaga.testing.shelf import Shelf
    from txsaga.testing.step_contract import StepContract
    from txsaga.testing.timing import Later, Unseen
    from txsaga.testing.trace_contract import TraceContract

__all__ = [
    "BacklogContract",
    "BindingContract",
    "BranchContract",
    "BurialContract",
    "ClaimContract",
    "DecisionContract",
    "DeclaredContract",
    "DoubtContract",
    "EffectContract",
    "EndContract",
    "ExpiryContract",
    "FakeClock",
    "FlowContract",
    "GroupContract",
    "GuestContract",
    "HalfContract",
    "IntentContract",
    "JointContract",
    "Later",
    "LeaseContract",
    "LedgerContract",
    "LogContract",
    "OrderContract",
    "OverviewContract",
    "ParticipantContract",
    "QuestionContract",
    "QueueContract",
    "RedeliveryContract",
    "RegistryContract",
    "ReplayContract",
    "ReservationContract",
    "ResetContract",
    "ScheduleContract",
    "Shelf",
    "StepContract",
    "TraceContract",
    "Unseen",
    "suites",
]

_PLACES = {"FakeClock": "clock", "Later": "timing", "Shelf": "shelf", "Unseen": "timing"}
_OF_PARTICIPANTS = {"ParticipantContract"}


def suites() -> dict[str, type]:
    """Return a test class for each suite of a store, by its name, for the names of a module of tests."""
    contracts = [name for name in __all__ if name.endswith("Contract") and name not in _OF_PARTICIPANTS]
    named = {f"Test{name.removesuffix('Contract')}": __getattr__(name) for name in contracts}
    return {name: type(name, (contract,), {"__doc__": contract.__doc__}) for name, contract in named.items()}


def __getattr__(name: str) -> Any:  # noqa: ANN401  # a suite, a clock or a type
    """Load a suite when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module 'txsaga.testing' has no attribute {name!r}")
    place = _PLACES.get(name) or f"{name.removesuffix('Contract').lower()}_contract"
    return getattr(import_module(f"txsaga.testing.{place}"), name)
