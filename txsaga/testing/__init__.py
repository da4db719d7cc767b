"""
Helpers for your own tests: the kill harness, one round of check-back, the contract of a participant, and a catalog kit.

- `txsaga.testing.kill`: observers that kill their process at a fact, or record every fact
- `txsaga.testing.checking`: one round of check-back in the calling thread
- `ParticipantContract`: what a participant of two-phase commit must do; subclass it and provide its fixtures
- `python -m txsaga.testing.catalog URL`: what a REST catalog does with several tables in one commit
- `FakeClock`: a clock that moves only when advanced

Each is loaded on first use: a process that is to be killed loads this package without pytest.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if "pytest" in sys.modules:
    import pytest

    pytest.register_assert_rewrite("txsaga.testing.participant_contract")

if TYPE_CHECKING:
    from txsaga.testing.clock import FakeClock
    from txsaga.testing.participant_contract import ParticipantContract, Shelf

__all__ = ["FakeClock", "ParticipantContract", "Shelf"]


def __getattr__(name: str) -> Any:  # a class
    """Import a class on first use."""
    if name not in __all__:
        raise AttributeError(f"module 'txsaga.testing' has no attribute {name!r}")
    module = "clock" if name == "FakeClock" else "participant_contract"
    return getattr(import_module(f"txsaga.testing.{module}"), name)
