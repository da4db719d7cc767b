"""A database user who may log in and read, and nothing else."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, create_engine

from tests.services.databases import fresh_name

PASSWORD = "clerk-of-a-test"


@contextmanager
def clerk(owner: Engine) -> Iterator[Engine]:
    """Give an engine of a new user of the owner's database."""
    name = fresh_name("clerk")
    mysql = owner.dialect.name == "mysql"
    account = f"'{name}'@'127.0.0.1'" if mysql else name
    create = f"create user {account} identified by '{PASSWORD}'"
    grant = f"grant select on {owner.url.database}.* to {account}"
    _run(owner, *([create, grant] if mysql else [f"create role {name} login password '{PASSWORD}'"]))
    engine = create_engine(owner.url.set(username=name, password=PASSWORD))
    try:
        yield engine
    finally:
        engine.dispose()
        _run(owner, f"drop user {account}")


def _run(owner: Engine, *statements: str) -> None:
    with owner.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
