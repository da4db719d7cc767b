"""
Turn Airflow connections into database URLs, without the provider packages of these databases.

A connection of an unknown type also works if its extra has an `sqlalchemy_url`, which is then used as it is.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from txsaga.errors import ConfigError
from txsaga.resources.capabilities import ResourceKind

if TYPE_CHECKING:
    from airflow.sdk import Connection
    from sqlalchemy import URL


class AddressDriver(NamedTuple):
    """The SQLAlchemy driver and resource kind for a connection type."""

    name: str
    kind: ResourceKind
    file: bool = False


DRIVERS = {
    "postgres": AddressDriver("postgresql+psycopg", ResourceKind.POSTGRESQL),
    "postgresql": AddressDriver("postgresql+psycopg", ResourceKind.POSTGRESQL),
    "mysql": AddressDriver("mysql+pymysql", ResourceKind.MYSQL),
    "mariadb": AddressDriver("mariadb+pymysql", ResourceKind.MARIADB),
    "sqlite": AddressDriver("sqlite", ResourceKind.SQLITE, file=True),
}


def database_url(connection: Connection) -> str:
    """Return the SQLAlchemy URL of a connection to a database."""
    given = connection.extra_dejson.get("sqlalchemy_url")
    if given:
        return masked(str(given))
    driver = DRIVERS.get(connection.conn_type or "")
    if driver is None:
        known = ", ".join(sorted(DRIVERS))
        raise ConfigError(
            f"connection {connection.conn_id!r} is of type {connection.conn_type!r}; a flow works in {known}, "
            "or give a sqlalchemy_url in its extra"
        )
    if driver.file:
        return f"{driver.name}:///{connection.host or connection.schema or ''}"
    return _url(connection, driver.name, {}).render_as_string(hide_password=False)


def store_url(connection: Connection) -> str | None:
    """Return the store URL of a connection; None means the store of TXSAGA_URL, or the embedded one."""
    extra = connection.extra_dejson
    if extra.get("url"):
        return masked(str(extra["url"]))
    if not connection.host and not connection.schema:
        return None
    query = {"namespace": str(extra["namespace"])} if extra.get("namespace") else {}
    return _url(connection, "postgresql+psycopg", query).render_as_string(hide_password=False)


def masked(url: str) -> str:
    """Return a URL from an extra, with its password masked in logs: Airflow only masks the password field itself."""
    from airflow.sdk.log import mask_secret
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    found: list[object] = [
        url.rpartition("@")[0].partition("://")[2]
    ]  # fallback for a URL that can't be parsed; opening it reports the error
    with suppress(ArgumentError, ValueError):
        found = [make_url(url).password, urlsplit(url).password]  # decoded, and as written in the URL
    for password in filter(None, found):
        mask_secret(str(password))
    return url


def _url(connection: Connection, driver: str, query: dict[str, str]) -> URL:
    from sqlalchemy import URL

    return URL.create(
        driver,
        username=connection.login or None,
        password=connection.password or None,
        host=connection.host or None,
        port=int(connection.port) if connection.port else None,
        database=connection.schema or None,
        query=query,
    )
