"""How the store's connections are opened: a line that fell silent is noticed, and what the URL says counts."""

from __future__ import annotations

import os
import socket

import psycopg
import pytest

from tests.services.databases import DatabaseServer
from txsaga.errors import ConfigError
from txsaga.store import connection as pinging
from txsaga.store.connection import make_engine, parse_url, translating

pytestmark = [pytest.mark.postgres, pytest.mark.core]


def options_of(url: str) -> dict[str, int]:
    """Connect, and return what the kernel was told of the connection, in seconds and in pieces."""
    engine = make_engine(*parse_url(url))
    with engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        with socket.socket(fileno=os.dup(driver.pgconn.socket)) as line:
            found = {
                "alive": line.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                "idle": line.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
                "interval": line.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL),
                "count": line.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT),
                "unanswered": line.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) // 1000,
            }
    engine.dispose()
    return found


def address(server: DatabaseServer, options: str = "") -> str:
    url = server.url("postgres")
    return f"{url}{'&' if '?' in url else '?'}{options}"


def test_a_line_that_fell_silent_is_given_up_before_the_patience_of_its_callers_ends(server: DatabaseServer) -> None:
    found = options_of(address(server))
    assert found == {"alive": 1, "idle": 10, "interval": 5, "count": 3, "unanswered": 20}


def test_what_the_url_says_of_the_line_counts(server: DatabaseServer) -> None:
    options = "keepalives_idle=70&keepalives_interval=7&keepalives_count=2&tcp_user_timeout=90000&connect_timeout=3"
    found = options_of(address(server, options))
    assert found == {"alive": 1, "idle": 70, "interval": 7, "count": 2, "unanswered": 90}
    assert options_of(address(server, "keepalives=0"))["alive"] == 0


def test_a_session_has_the_name_by_which_it_is_ended(server: DatabaseServer) -> None:
    engine = make_engine(*parse_url(address(server, "application_name=mine&namespace=orders")))
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SHOW application_name").scalar() == "txsaga orders"
    engine.dispose()


def test_an_interrupt_in_the_middle_of_a_ping_stays_an_interrupt(
    server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(*parse_url(address(server)))
    engine.connect().close()

    def interrupted(_line: psycopg.Connection[object]) -> bool:
        try:
            raise KeyboardInterrupt
        finally:
            raise psycopg.ProgrammingError("can't change 'autocommit' now: connection in transaction status ACTIVE")

    with monkeypatch.context() as patched:
        patched.setattr(engine.dialect, "do_ping", interrupted)
        patched.setattr(pinging, "FRESH", -1.0)  # as if it had lain there for a while
        with pytest.raises(KeyboardInterrupt), translating():
            engine.connect()
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT 1").scalar() == 1
    engine.dispose()


@pytest.mark.parametrize("name", ["pg_mine", "information_schema", "Upper", "a-b"])
def test_a_schema_of_the_servers_own_is_no_namespace(name: str) -> None:
    with pytest.raises(ConfigError, match="is invalid; use 1 to 41 lower-case letters"):
        parse_url(f"postgresql://user@host/home?namespace={name}")
