"""What was under way before an adoption is settled after it, by the evidence that it left."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, NullPool, create_engine, text

import txsaga
from txsaga.adapters.postgres import founding
from txsaga.adapters.postgres.connection import make_engine, parse_url, transaction
from txsaga.engine.roles import CheckBack, CheckProfile
from txsaga.wiring import open_store

AT_ONCE = CheckProfile(min_age=timedelta(0))


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite:///{tmp_path / 'bank.db'}", poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE payment (cents INTEGER)"))
    yield engine
    engine.dispose()


@pytest.mark.postgres
@pytest.mark.rule("R8")
@pytest.mark.parametrize("worked", [True, False])
def test_a_transaction_from_before_an_adoption_follows_its_own_evidence(
    home_url: str, bank: Engine, worked: bool
) -> None:
    open_store(home_url).close()
    id = _die_undecided(home_url, bank, key="before", worked=worked)
    _adopt(home_url)
    with txsaga.connect(home_url, resources={"bank": bank}, roles=False) as broker:
        assert broker.identity.incarnation == 2
        assert CheckBack(broker.kernel, AT_ONCE).run_once() == 1
        (view,) = broker.kernel.store.registry.transactions(undecided=False, limit=10)
        assert view.decision is (txsaga.Decision.COMMIT if worked else txsaga.Decision.ROLLBACK)
        assert view.id == id


@pytest.mark.postgres
@pytest.mark.rule("R8")
def test_a_transaction_after_an_adoption_has_the_new_incarnation(home_url: str, bank: Engine) -> None:
    open_store(home_url).close()
    _die_undecided(home_url, bank, key="before", worked=True)
    _adopt(home_url)
    id = _die_undecided(home_url, bank, key="after", worked=True)
    assert id.split("-")[1] == "2"


def _die_undecided(url: str, bank: Engine, *, key: str, worked: bool) -> str:
    """Leave a transaction as a producer does that dies just after, or just before, its local commit."""
    with txsaga.connect(url, resources={"bank": bank}, roles=False) as broker:
        broker.create_topic("payments", "transaction", queues=1)
        tx = broker.producer("payer", checker=lambda question: None).transaction(key=key)
        tx.__enter__()
        tx.send("payments", b"7")
        try:
            with tx.local("bank") as connection:
                connection.execute(text("INSERT INTO payment VALUES (7)"))
                if not worked:
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            pass
        assert tx.decision is None and tx.id is not None
        return tx.id


def _adopt(url: str) -> None:
    address, namespace = parse_url(url)
    engine = make_engine(address, namespace)
    with transaction(engine) as connection:
        founding.adopt(connection, namespace)
    engine.dispose()
