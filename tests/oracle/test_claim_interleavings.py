"""Whatever the order in which members take, end and lose messages, each is done or comes again."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.consume.claim_interleavings import ClaimInterleavings
from tests.oracle import MemoryStore
from txsaga.testing import FakeClock

MANY = settings(max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))


class InMemory(ClaimInterleavings):
    """Each example has a store of its own."""

    def __init__(self) -> None:
        clock = FakeClock()
        type(self).stores = (MemoryStore(clock),)
        type(self).let_pass = staticmethod(lambda _, seconds: clock.advance(seconds))
        super().__init__()


@pytest.mark.req("IBM-61", "RMQ-63")
@pytest.mark.rule("R11")
def test_nothing_is_lost_held_twice_handed_out_too_often_or_out_of_order() -> None:
    run_state_machine_as_test(InMemory, settings=MANY)
