"""What the driver and the pool say in their words is said in ours, in one line that tells what to do."""

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import TimeoutError as PoolTimeout

from txsaga.errors import StoreBusy
from txsaga.store.connection import parse_url, transaction
from txsaga.store.pipeline import PipelineConnection

pytestmark = [pytest.mark.postgres, pytest.mark.core]


def test_a_pool_without_a_free_connection_is_busy(home_url: str) -> None:
    engine = create_engine(parse_url(home_url)[0], pool_size=1, max_overflow=0, pool_timeout=0.05)
    with transaction(engine) as connection:
        line = PipelineConnection(engine)
        for ask in (lambda: transaction(engine).__enter__(), line.connection):
            with pytest.raises(
                StoreBusy, match=r"every connection .* is in use; leave a cut or a block .*, or retry"
            ) as told:
                ask()
            assert "\n" not in str(told.value)
            assert (told.value.retryable, isinstance(told.value.__cause__, PoolTimeout)) == (True, True)
        assert connection.execute(text("SELECT 1")).scalar() == 1
    with transaction(engine) as connection:
        assert connection.execute(text("SELECT 1")).scalar() == 1
    engine.dispose()
