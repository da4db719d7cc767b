"""What a URL says of TLS holds for every connection to the home database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from sqlalchemy import NullPool, create_engine

import txsaga
from tests.cli.conftest import Cli, bare
from tests.scene.stored import Stored
from tests.services.databases import fresh_name
from tests.services.secured import Secured, secured_server
from tests.store.logins import logins
from txsaga.errors import ConfigError
from txsaga.store.connection import parse_url
from txsaga.store.right import Right
from txsaga.wiring.connecting import open_store

__all__ = ["bare"]
pytestmark = pytest.mark.postgres

SESSIONS = """
SELECT s.ssl, count(*) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid)
 WHERE a.application_name = :name GROUP BY 1"""
LISTENS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = :name AND query LIKE 'LISTEN%'"


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    with secured_server() as secured:
        secured.server.database("home")
        yield secured


@pytest.fixture
def url(secured: Secured) -> str:
    url = f"{secured.url('home')}&namespace={fresh_name('tls')}"
    open_store(url).close()
    return url


def test_every_connection_of_a_program_speaks_tls(url: str) -> None:
    stored = Stored(url)
    with txsaga.connect(url, roles=True, env={}) as broker:
        broker.create_topic("orders", "transaction", queues=1)
        producer = broker.producer("shop", checker=lambda _: None)
        with closing(broker.stream("readers", ["orders"])) as stream:
            producer.commit(producer.prepare_now("orders", b"a"))
            with producer.transaction(key="order-1") as tx:
                tx.send("orders", b"b")
            messages = stream.messages(wait=30)
            assert [next(messages).body for _ in "ab"] == [b"a", b"b"]
            assert not list(stream.messages(wait=0.1))
            name = {"name": f"txsaga {stored.namespace}"}
            ((speaks, count),) = stored.rows(SESSIONS, **name)
            assert (speaks, count >= 5) == (True, True)
            assert stored.value(LISTENS, **name) == 1


def test_a_login_with_a_right_speaks_tls_too(url: str) -> None:
    with txsaga.connect(url, roles=False, env={}) as owner:
        owner.create_topic("news")
    with logins(url) as made:
        mine = made.url_with(Right.PRODUCER)
        with txsaga.connect(mine, roles=False, env={}) as broker:
            joined = create_engine(parse_url(mine)[0], poolclass=NullPool)
            with joined.begin() as connection:
                broker.producer("plain").join(connection).send("news", b"a")
            ((speaks, _),) = Stored(url).rows(SESSIONS, name=f"txsaga {made.namespace}")
            assert speaks is True


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda s: s.url("home", s.stranger), "certificate verify failed"),
        (lambda s: s.url("home", s.stranger.with_name("gone.crt")), "does not exist"),
        (
            lambda s: s.url("home").replace("127.0.0.1", "elsewhere.invalid") + "&hostaddr=127.0.0.1",
            "does not match host name",
        ),
    ],
    ids=["another certificate", "no such file", "another host"],
)
def test_a_server_that_is_not_the_one_meant_is_told_in_one_line(
    secured: Secured, bare: Cli, change: Callable[[Secured], str], told: str
) -> None:
    address = change(secured)
    with pytest.raises(ConfigError, match=f"{told}.*; correct sslmode and sslrootcert in the URL$") as failure:
        txsaga.connect(address, env={})
    assert "\n" not in str(failure.value)
    said = bare("status", "--url", address)
    assert (said.code, said.out, said.err.count("\n")) == (3, "", 1)
    found = bare("doctor", "--json", "--url", address).documents
    assert [finding["what"] for finding in found] == ["connection"]
    assert found[0]["remedy"] == "correct sslmode and sslrootcert in the URL"


def test_a_server_without_tls_is_told_in_one_line(home_database: str) -> None:
    with pytest.raises(ConfigError, match=r"does not support SSL.*; correct sslmode and sslrootcert in the URL$"):
        txsaga.connect(f"{home_database}?sslmode=require", env={})
