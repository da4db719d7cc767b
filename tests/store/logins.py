"""Logins of a namespace beside its owner: each with the rights that a test gives it, gone behind the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, NullPool, create_engine, make_url, text

from tests.services.databases import fresh_name
from txsaga.store import granting
from txsaga.store.connection import make_engine, parse_url, transaction
from txsaga.store.right import Right

PASSWORD = "secret"


class Logins:
    """Makes logins on the server of a URL."""

    def __init__(self, url: str) -> None:
        self.url = url
        address, self.namespace = parse_url(url)
        self.admin: Engine = create_engine(address, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        self.made: list[str] = []

    def new(self, *rights: Right, options: str = "LOGIN") -> str:
        """Make a role with these rights; return its name."""
        name = fresh_name("login")
        self.run(f"CREATE ROLE {name} {options} PASSWORD '{PASSWORD}'")
        self.made.append(name)
        for right in rights:
            self.grant(right, name)
        return name

    def grant(self, right: Right, role: str, *groups: str) -> None:
        """Give a role a right, and producer groups."""
        self._as_owner(right, role, groups, take=False)

    def revoke(self, right: Right, role: str) -> None:
        """Take a right from a role."""
        self._as_owner(right, role, (), take=True)

    def url_of(self, name: str) -> str:
        """Return the URL of the namespace for a login."""
        return make_url(self.url).set(username=name, password=PASSWORD).render_as_string(hide_password=False)

    def url_with(self, *rights: Right) -> str:
        """Return the URL for a fresh login with these rights."""
        return self.url_of(self.new(*rights))

    def run(self, statement: str) -> None:
        """Run a statement as the superuser, in the namespace."""
        with self.admin.connect() as connection:
            connection.execute(text(f'SET search_path = "{self.namespace}"'))
            connection.exec_driver_sql(statement, execution_options={"no_parameters": True})

    def _as_owner(self, right: Right, role: str, groups: tuple[str, ...], *, take: bool) -> None:
        engine = make_engine(*parse_url(self.url))
        ask = granting.revoke if take else lambda c, n, r, who: granting.grant(c, n, r, who, groups)
        try:
            with transaction(engine) as connection:
                granting.run(connection, ask(connection, self.namespace, right, role))
        finally:
            engine.dispose()


@contextmanager
def logins(url: str) -> Iterator[Logins]:
    """Give a maker of logins; what it made is dropped behind the block, with the group roles."""
    made = Logins(url)
    try:
        yield made
    finally:
        groups = [f"{made.namespace}_{right}" for right in Right]
        with made.admin.connect() as connection:
            known = set(connection.execute(text("SELECT rolname FROM pg_roles")).scalars())
        for role in [*made.made, *groups]:
            if role in known:
                made.run(f'DROP OWNED BY "{role}"')
                made.run(f'DROP ROLE "{role}"')
        made.admin.dispose()
