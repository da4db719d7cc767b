"""A coordinated transaction takes one session of each pool, however it ends, and so does whoever recovers it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine, create_engine, text

from tests.scene.shop import Shop, says
from txsaga.core.decision import Decision
from txsaga.flows.branch import Finish
from txsaga.testing.participant_contract import new_branch
from txsaga.wiring.resources import participant_for

KINDS = pytest.mark.parametrize(
    "kind",
    [
        pytest.param("postgresql", marks=pytest.mark.postgres),
        pytest.param("mariadb", marks=pytest.mark.mariadb),
        "sqlite",
    ],
)


@pytest.fixture
def single(engine_of: Callable[[str], Engine], kind: str) -> Engine:
    """Give an engine on a pool of one session, with a table."""
    engine = create_engine(engine_of(kind).url, pool_size=1, max_overflow=0, pool_timeout=2)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE item (id INT PRIMARY KEY)"))
    return engine


def items(engine: Engine) -> list[int]:
    with engine.connect() as connection:
        found = list(connection.scalars(text("SELECT id FROM item ORDER BY id")))
    engine.dispose()
    return found


@KINDS
def test_the_only_resource_of_a_transaction_commits_on_the_session_that_it_has(shop: Shop, single: Engine) -> None:
    shop.broker.register("shelf", single)
    bank = shop.broker.producer("bank", checker=says(None))

    def put(item: int) -> None:
        with bank.coordinated("shelf") as tx, tx.on("shelf") as connection:
            connection.execute(text("INSERT INTO item VALUES (:item)"), {"item": item})

    put(1)
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(put, (2, 3, 4)))
    assert items(single) == [1, 2, 3, 4]


@KINDS
def test_what_was_wrong_in_the_only_resource_comes_out(shop: Shop, single: Engine) -> None:
    shop.broker.register("shelf", single)
    bank = shop.broker.producer("bank", checker=says(None))
    with pytest.raises(ZeroDivisionError), bank.coordinated("shelf") as tx, tx.on("shelf") as connection:
        connection.execute(text("INSERT INTO item VALUES (1)"))
        raise ZeroDivisionError
    assert items(single) == []


@KINDS
def test_whoever_recovers_needs_no_second_session(single: Engine) -> None:
    participant_for(single, "shelf").probe()
    branch = new_branch()
    participant_for(single, "shelf").database  # noqa: B018  # the tables are there then
    assert participant_for(single, "shelf").finish(branch, Decision.ROLLBACK) is Finish.DONE
    assert participant_for(single, "shelf").fence(branch) is Finish.DONE
    assert list(participant_for(single, "shelf").prepared(branch.store)) == []
    participant_for(single, "shelf").forget(branch)
    single.dispose()
