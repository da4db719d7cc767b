"""The tables in the user's database, as plain SQL to print and as columns to build statements from.

Creating them runs exactly the printed SQL, so tables created by an administrator are always identical to ours.
Every statement can be repeated and leaves existing objects and rows alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from sqlalchemy import CHAR, BigInteger, Column, Integer, LargeBinary, MetaData, SmallInteger, String, Table

from txsaga.errors import ConfigError, UnknownTransaction

DATABASE = "txsaga_database"
EVIDENCE = "txsaga_evidence"
INBOX = "txsaga_inbox"
RIGHTS = f"select on {DATABASE}; select and insert on {EVIDENCE}; select, insert and delete on {INBOX}"
MAIN = ""  # the branch of the local transaction itself

_POSTGRESQL = (
    f"""create table if not exists {DATABASE} (
  id smallint primary key check (id = 1),
  uuid char(32) not null
)""",
    f"""create table if not exists {EVIDENCE} (
  store char(32) not null,
  incarnation integer not null,
  txid bigint not null,
  branch varchar(64) not null,
  outcome smallint not null check (outcome in (1, 2)),
  body bytea,
  at timestamptz not null default now(),
  primary key (store, incarnation, txid, branch)
)""",
    f"""insert into {DATABASE} (id, uuid)
values (1, replace(gen_random_uuid()::text, '-', '')) on conflict do nothing""",
    f"""create table if not exists {INBOX} (
  grp varchar(127) not null,
  message varchar(160) not null,
  at timestamptz not null default now(),
  primary key (grp, message)
)""",
    f"create index if not exists {INBOX}_at on {INBOX} (at)",
)

# Explicitly InnoDB: in an engine without transactions the row would outlive the work it records.
_MYSQL = (
    f"""create table if not exists {DATABASE} (
  id smallint not null primary key check (id = 1),
  uuid char(32) character set ascii collate ascii_bin not null
) engine=InnoDB""",
    f"""create table if not exists {EVIDENCE} (
  store char(32) character set ascii collate ascii_bin not null,
  incarnation integer not null,
  txid bigint not null,
  branch varchar(64) character set ascii collate ascii_bin not null,
  outcome smallint not null check (outcome in (1, 2)),
  body longblob,
  at timestamp(6) not null default current_timestamp(6),
  primary key (store, incarnation, txid, branch)
) engine=InnoDB""",
    f"insert ignore into {DATABASE} (id, uuid) values (1, replace(uuid(), '-', ''))",
    f"""create table if not exists {INBOX} (
  grp varchar(127) character set utf8mb4 collate utf8mb4_bin not null,
  message varchar(160) character set ascii collate ascii_bin not null,
  at timestamp(6) not null default current_timestamp(6),
  primary key (grp, message),
  key {INBOX}_at (at)
) engine=InnoDB""",
)

_SQLITE = (
    f"""create table if not exists {DATABASE} (
  id integer primary key check (id = 1),
  uuid char(32) not null
)""",
    f"""create table if not exists {EVIDENCE} (
  store char(32) not null,
  incarnation integer not null,
  txid bigint not null,
  branch varchar(64) not null,
  outcome smallint not null check (outcome in (1, 2)),
  body blob,
  at timestamp not null default current_timestamp,
  primary key (store, incarnation, txid, branch)
)""",
    f"insert or ignore into {DATABASE} (id, uuid) values (1, lower(hex(randomblob(16))))",
    f"""create table if not exists {INBOX} (
  grp varchar(127) not null,
  message varchar(160) not null,
  at timestamp not null default current_timestamp,
  primary key (grp, message)
)""",
    f"create index if not exists {INBOX}_at on {INBOX} (at)",
)

PAST: Mapping[str, str] = MappingProxyType(
    {
        "postgresql": "now() - {} * interval '1 second'",
        "mysql": "now(6) - interval {} second",
        "mariadb": "now(6) - interval {} second",
        "sqlite": "datetime('now', '-{} seconds')",
    }
)
"""The time so many seconds ago, by the database's clock."""

_STATEMENTS: Mapping[str, Sequence[str]] = MappingProxyType(
    {"postgresql": _POSTGRESQL, "mysql": _MYSQL, "mariadb": _MYSQL, "sqlite": _SQLITE}
)


def statements(dialect_name: str) -> Sequence[str]:
    """Return the statements that create the tables and the database's uuid; `ConfigError` for other databases."""
    if dialect_name not in _STATEMENTS:
        raise ConfigError(f"no evidence can be kept in {dialect_name!r}; use one of {', '.join(sorted(_STATEMENTS))}")
    return _STATEMENTS[dialect_name]


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
