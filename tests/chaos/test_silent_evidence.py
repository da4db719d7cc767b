"""A database with evidence that falls silent keeps nobody else's half waiting, and no engine from its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Engine, NullPool, create_engine

import txsaga
from tests.chaos.proxy import Loss, Proxy, network
from tests.scene.members import QUICK, Member, age, checks
from tests.scene.shop import Shop, closing, order, says
from tests.scene.stored import Stored
from txsaga import COMMIT
from txsaga.checkback.round import CheckBack
from txsaga.core.role_loop import Loop
from txsaga.wiring.connecting import open_store

pytestmark = [pytest.mark.postgres, pytest.mark.rule("R10")]
PATIENCE = 0.5
LIMITS, FENCE = b"set_config('lock_timeout'", b"INSERT INTO"


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for no database for long."""
    monkeypatch.setattr("txsaga.core.timeboxed_calls.PATIENCE", PATIENCE)
    monkeypatch.setattr("txsaga.evidence.sessions.STATEMENT", 1)


@pytest.fixture
def shop(home_url: str) -> Iterator[Shop]:
    """Give a shop whose leases pass with its time."""
    stored = Stored(home_url)

    def later(seconds: float) -> None:
        stored.let_pass(seconds)
        stored.let_leases_pass(seconds)

    open_store(home_url).close()
    with closing(Shop(txsaga.connect(home_url, roles=False, answering=False, env={}), later)) as shop:
        yield shop


@pytest.fixture
def till(foreign_databases: Callable[[], str]) -> Engine:
    """Give the database of local work."""
    return create_engine(foreign_databases(), poolclass=NullPool)


@pytest.fixture
def line(till: Engine) -> Iterator[Proxy]:
    """Give a line to it."""
    with network(till.url.render_as_string(hide_password=False)) as line:
        yield line


@pytest.fixture
def far(line: Proxy) -> Iterator[Engine]:
    """Give the database at the end of that line."""
    engine = create_engine(line.url)
    yield engine
    line.close()
    engine.dispose()


def left_behind(shop: Shop, till: Engine, *, committed: bool) -> int:
    """Leave a half as a process that died, before its local work committed or behind that."""
    owner = Member(shop, till=till)
    tx = owner.producer().transaction().__enter__()
    tx.send(order())
    if committed:
        with tx.local("till"):
            pass
    else:
        tx._close(owner.kernel.resource("till")[0].id)
    assert tx.txid is not None
    return tx.txid


@pytest.mark.parametrize(("needle", "committed"), [(LIMITS, True), (FENCE, False)], ids=["read", "fence"])
def test_a_database_that_falls_silent_stops_no_round_and_is_left_alone_until_its_line_is_gone(
    shop: Shop, till: Engine, line: Proxy, far: Engine, needle: bytes, committed: bool
) -> None:
    engine, silent = Member(shop, till=far), left_behind(shop, till, committed=committed)
    other = engine.producer("other", checker=says(COMMIT)).prepare_now("orders", b"other")
    age(shop)
    engine.beat()
    line.lose(needle, Loss.MUTE)
    for waits in (True, False):  # and not again, while that call still hangs
        begun = time.monotonic()
        engine.lead()
        assert (time.monotonic() - begun >= PATIENCE) is waits
    engine.answer()
    assert (line.broke.is_set(), shop.state(other.txid), checks(shop, silent).asked) == (True, "committed", 0)
    assert {remark.why for remark in shop.store.overview.remarks(silent)} == {"resource 'till' does not answer"}
    end = time.monotonic() + 10
    while shop.state(silent) == "prepared" and time.monotonic() < end:  # the silent one's fence holds it for a second
        age(shop)
        Member(shop, till=till).lead()
    assert shop.state(silent) == ("committed" if committed else "rolled_back")


def test_an_engine_ends_while_a_database_is_silent(shop: Shop, till: Engine, line: Proxy, far: Engine) -> None:
    left_behind(shop, till, committed=True)
    age(shop)
    line.lose(LIMITS, Loss.MUTE)
    loop = Loop([CheckBack(Member(shop, till=far).kernel, QUICK)])
    loop.start()
    assert line.broke.wait(10)
    stopping = threading.Thread(target=loop.stop, daemon=True)
    stopping.start()
    stopping.join(10)
    assert not stopping.is_alive()
