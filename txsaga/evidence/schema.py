"""The tables in the user's database, as plain SQL to print and as columns to build statements from.

Creating them runs exactly the printed SQL, so tables created by an administrator are always identical to ours.
Every statement can be repeated and leaves existing objects and rows alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pkgutil import get_data
from types import MappingProxyType
from typing import NamedTuple

from sqlalchemy import CHAR, BigInteger, Column, Integer, LargeBinary, MetaData, SmallInteger, String, Table

from txsaga.errors import ConfigError, UnknownTransaction

DATABASE = "txsaga_database"
EVIDENCE = "txsaga_evidence"
INBOX = "txsaga_inbox"
RIGHTS = f"select on {DATABASE}; select and insert on {EVIDENCE}; select, insert and delete on {INBOX}"
MAIN = ""  # the branch of the local transaction itself

PAST: Mapping[str, str] = MappingProxyType(
    {
        "postgresql": "now() - {} * interval '1 second'",
        "mysql": "now(6) - interval {} second",
        "mariadb": "now(6) - interval {} second",
        "sqlite": "datetime('now', '-{} seconds')",
    }
)
"""The time so many seconds ago, by the database's clock."""

FILES = {"postgresql": "postgresql", "mysql": "mysql", "mariadb": "mysql", "sqlite": "sqlite"}
"""The file with the tables of each dialect; those of MySQL name InnoDB, since other engines know no transactions."""


@cache
def statements(dialect_name: str) -> Sequence[str]:
    """Return the statements that create the tables and the database's uuid; `ConfigError` for other databases."""
    if dialect_name not in FILES:
        raise ConfigError(f"evidence can't be stored in {dialect_name!r}; use one of {', '.join(sorted(FILES))}")
    file = get_data("txsaga.evidence", f"ddl/{FILES[dialect_name]}.sql")
    assert file is not None
    return file.decode().removesuffix(";\n").split(";\n")


def ddl(dialect_name: str) -> str:
    """Return these statements as plain SQL, for an administrator to run."""
    text = "".join(f"{statement};\n" for statement in statements(dialect_name))
    return f"{text}-- The application needs {RIGHTS}.\n"


def database_table(schema: str | None = None) -> Table:
    """Describe the table that holds the database's uuid."""
    return Table(DATABASE, MetaData(), Column("uuid", CHAR(32)), schema=schema)


def evidence_table(schema: str | None) -> Table:
    """Describe the evidence table; schema-qualified, because local work may change the search path."""
    return Table(
        EVIDENCE,
        MetaData(),
        Column("store", CHAR(32), primary_key=True),
        Column("incarnation", Integer, primary_key=True, autoincrement=False),
        Column("txid", BigInteger, primary_key=True, autoincrement=False),
        Column("branch", String(64), primary_key=True),
        Column("outcome", SmallInteger, nullable=False),
        Column("body", LargeBinary),
        schema=schema,
    )


_ID = re.compile(r"([0-9a-f]{32})-([0-9a-f]{1,8})-([0-9a-f]{1,16})")
_INCARNATION_END = 2**31  # the limits of the columns
_TXID_END = 2**63


class EvidenceKey(NamedTuple):
    """The store, its incarnation and the transaction."""

    store: str
    incarnation: int
    txid: int

    @classmethod
    @lru_cache(maxsize=256)  # every branch of a transaction parses it
    def parse(cls, transaction: str) -> EvidenceKey:
        """Parse the output of `StoreId.transaction`."""
        found = _ID.fullmatch(transaction)
        key = cls(found[1], int(found[2], 16), int(found[3], 16)) if found else None
        if key is None or key.incarnation >= _INCARNATION_END or key.txid >= _TXID_END:
            raise UnknownTransaction(f"{transaction!r} is not the id of a transaction")
        return key
