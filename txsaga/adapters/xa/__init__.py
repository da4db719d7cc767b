"""
Participants: databases that vote in two-phase commit, each through the user's own SQLAlchemy engine.

They vote, hold what they voted for, and do what was decided. They must not decide anything, and touch nothing that
others prepared. If a process dies between two lines here, the branch is either not prepared, and gone, or prepared
and listed, and its own row tells what became of it afterwards.
"""

from uuid import UUID

from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from txsaga.adapters.evidence.whereabouts import Whereabouts
from txsaga.adapters.xa.mysql import MysqlParticipant
from txsaga.adapters.xa.postgres import PostgresParticipant
from txsaga.adapters.xa.sqlite import SqliteParticipant
from txsaga.errors import ConfigError
from txsaga.ports.participants import Participant

__all__ = ["MysqlParticipant", "PostgresParticipant", "SqliteParticipant", "participant_for"]


def participant_for(
    engine: Engine,
    name: str,
    *,
    create: bool = True,
    database: UUID | None = None,
    where: Whereabouts | None = None,
    loops: AsyncEngine | None = None,
) -> Participant:
    """Return the participant for an engine's database; with `database` only the one that carries this uuid.

    `where` is shared with whoever asks for evidence there: what one has found the other need not look for.
    """
    where = where or Whereabouts(engine, name, create=create, database=database)
    match engine.dialect.name:
        case "postgresql":
            return PostgresParticipant(engine, name=name, create=create, where=where, loops=loops)
        case "mysql" | "mariadb":
            return MysqlParticipant(engine, name=name, create=create, where=where, loops=loops)
        case "sqlite":
            return SqliteParticipant(engine, name=name, create=create, where=where, loops=loops)
        case other:
            raise ConfigError(
                f"resource {name!r} is of kind {other!r}, which takes no part in coordinated transactions; "
                "the databases that do are postgresql, mariadb and mysql, and sqlite as the last of one"
            )
