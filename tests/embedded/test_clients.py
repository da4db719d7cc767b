"""What a client meets: addresses, the password, and a server that is found at once."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import psycopg
import pytest
from psycopg import sql

from tests.embedded.statements import execute
from tests.services.embedded import embedded_server, temporary_home
from txsaga.embedded.server import EmbeddedServer
from txsaga.errors import EmbeddedDatabaseError

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    with embedded_server() as running:
        yield running


def password_of(server: EmbeddedServer) -> str:
    return (server.home / "pgpass").read_text().strip().rpartition(":")[2]


def test_only_the_caller_can_read_the_password(server: EmbeddedServer) -> None:
    pgpass = server.home / "pgpass"
    assert pgpass.stat().st_mode & 0o777 == 0o600
    assert pgpass.read_text() == f"*:{server.status().port}:*:txsaga:{password_of(server)}\n"
    assert len(password_of(server)) >= 43
    for private in ("lock", "life", "log"):
        assert (server.home / private).stat().st_mode & 0o077 == 0
    for folder in ("data", "sock"):
        assert (server.home / folder).stat().st_mode & 0o777 == 0o700


def test_no_text_about_the_server_shows_the_password(server: EmbeddedServer) -> None:
    shown = f"{server!r} {server.status()!r} {server.url(driver='jdbc')}"
    assert password_of(server) not in shown


def test_a_client_gets_in_over_tcp_with_nothing_but_the_pgpass_file(server: EmbeddedServer) -> None:
    with psycopg.connect(
        f"host=127.0.0.1 port={server.status().port} user=txsaga dbname=txsaga require_auth=scram-sha-256",
        passfile=str(server.home / "pgpass"),
    ) as connection:
        assert connection.execute("select 1").fetchone() == (1,)


@pytest.mark.parametrize("door", ["tcp", "socket"])
def test_a_wrong_password_opens_no_door(server: EmbeddedServer, door: str) -> None:
    url = server.url(driver=None, socket=door == "socket").replace(password_of(server), "wrong")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(url)


def test_the_server_listens_on_the_loopback_address_only(server: EmbeddedServer) -> None:
    assert execute(server, "show listen_addresses") == [("127.0.0.1",)]


def test_every_kind_of_client_gets_its_address(server: EmbeddedServer) -> None:
    port, password = server.status().port, password_of(server)
    assert server.url() == f"postgresql+psycopg://txsaga:{password}@127.0.0.1:{port}/txsaga"
    assert server.url("air flow", "asyncpg").endswith(f"@127.0.0.1:{port}/air%20flow")
    assert server.url("x", None).startswith("postgresql://txsaga:")
    assert server.url("x", "jdbc") == f"jdbc:postgresql://127.0.0.1:{port}/x"
    with psycopg.connect(server.url(driver=None, socket=True)) as connection:
        assert connection.info.host == str(server.home / "sock")
    with pytest.raises(EmbeddedDatabaseError, match="leave socket out"):
        server.url("x", "jdbc", socket=True)


def test_a_plain_tcp_connection_is_answered(server: EmbeddedServer) -> None:
    with socket.create_connection(("127.0.0.1", server.status().port or 0), timeout=5) as client:
        client.sendall(b"\x00\x00\x00\x08\x04\xd2\x16\x2f")  # what JDBC sends first: may we use TLS?
        assert client.recv(1) == b"N"


def test_a_home_with_a_path_too_long_for_a_socket_still_serves_tcp() -> None:
    with temporary_home() as folder:
        deep = EmbeddedServer(home=folder / ("deep" * 30)).ensure()
        assert execute(deep, "show unix_socket_directories") == [("",)]
        with pytest.raises(EmbeddedDatabaseError, match="use TCP"):
            deep.url(socket=True)


def test_a_database_is_created_once_whatever_its_name(server: EmbeddedServer) -> None:
    name = "o'brien's \"own\" data/base"
    server.database(name).database(name)
    assert execute(server, "select datname from pg_database where datname like 'o''brien%'") == [(name,)]


def test_the_default_database_comes_back_if_it_was_dropped(server: EmbeddedServer) -> None:
    with psycopg.connect(server.url("postgres", None), autocommit=True) as connection:
        connection.execute(sql.SQL("drop database txsaga with (force)"))
    assert execute(server.ensure(), "select current_database()::text") == [("txsaga",)]


def test_a_living_server_is_found_within_20_ms(server: EmbeddedServer) -> None:
    def seconds() -> float:
        before = time.perf_counter()
        server.ensure()
        return time.perf_counter() - before

    assert min(seconds() for _ in range(10)) < 0.020


def test_variables_meant_for_another_server_do_not_bend_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGSSLMODE", "require")
    monkeypatch.setenv("PGOPTIONS", "-c no_such_setting=1")
    monkeypatch.setenv("PGHOSTADDR", "192.0.2.1")
    monkeypatch.setenv("PGCLIENTENCODING", "nonsense")
    monkeypatch.setenv("LC_ALL", "xx_YY.nonsense")
    with embedded_server() as server:
        assert server.status().running


def test_a_server_whose_connections_are_all_taken_counts_as_running() -> None:
    with embedded_server({"max_connections": "4", "superuser_reserved_connections": "0"}) as server:
        with ExitStack() as clients:
            for _ in range(4):
                clients.enter_context(psycopg.connect(server.url(driver=None)))
            with pytest.raises(psycopg.OperationalError, match=r"too many clients|remaining connection slots"):
                psycopg.connect(server.url(driver=None))
            assert server.ensure(timeout=10).status().running
