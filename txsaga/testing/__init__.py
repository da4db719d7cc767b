"""Contract suites for stores, for whoever writes one; the stores of txsaga are held to the same.

Give pytest two fixtures and name a class per suite::

    @pytest.fixture
    def store() -> Iterator[Store]: ...     # a fresh, empty store, closed after the test

    @pytest.fixture
    def later() -> Later: ...               # lets seconds pass: `FakeClock.advance`, or `time.sleep`

    class TestHalves(HalfContract): ...

The tests carry the marks `req` and `rule`; add both to `markers` where pytest runs with `--strict-markers`.
Nothing here may know how a store keeps its rows.
"""

from txsaga.testing import rewriting as rewriting  # first of all: asserts are rewritten at import
from txsaga.testing.clock import FakeClock
from txsaga.testing.decision_contract import DecisionContract
from txsaga.testing.doubt_contract import DoubtContract
from txsaga.testing.end_contract import EndContract
from txsaga.testing.half_contract import HalfContract
from txsaga.testing.intent_contract import IntentContract
from txsaga.testing.ledger_contract import LedgerContract
from txsaga.testing.log_contract import LogContract
from txsaga.testing.queue_contract import QueueContract
from txsaga.testing.registry_contract import RegistryContract
from txsaga.testing.timing import Later

__all__ = [
    "DecisionContract",
    "DoubtContract",
    "EndContract",
    "FakeClock",
    "HalfContract",
    "IntentContract",
    "Later",
    "LedgerContract",
    "LogContract",
    "QueueContract",
    "RegistryContract",
]
