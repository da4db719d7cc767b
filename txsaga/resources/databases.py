"""Chooses the participant for a database by its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from txsaga.errors import ConfigError
from txsaga.evidence.location import Whereabouts

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from txsaga.resources.participant import Participant


def participant_for(
    engine: Engine,
    name: str,
    *,
    create: bool = True,
    database: UUID | None = None,
    where: Whereabouts | None = None,
    loops: AsyncEngine | None = None,
) -> Participant:
    """Return the participant for an engine's database; with `database`, only if the database carries this uuid.

    `where` is shared with the evidence of the same database, so that the tables are located once.
    """
    where = where or Whereabouts(engine, name, create=create, database=database)
    match engine.dialect.name:
        case "postgresql":
            from txsaga.resources.postgres import PostgresParticipant

            return PostgresParticipant(engine, name=name, create=create, where=where, loops=loops)
        case "mysql" | "mariadb":
            from txsaga.resources.mysql import MysqlParticipant

            return MysqlParticipant(engine, name=name, create=create, where=where, loops=loops)
        case "sqlite":
            from txsaga.resources.sqlite import SqliteParticipant

            return SqliteParticipant(engine, name=name, create=create, where=where, loops=loops)
        case other:
            raise ConfigError(
                f"resource {name!r} is of kind {other!r}, which takes no part in coordinated transactions; "
                "the databases that do are postgresql, mariadb and mysql, and sqlite as the last of one"
            )
