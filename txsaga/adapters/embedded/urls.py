"""The addresses of a database of the embedded server, one per kind of client.

A URL for SQLAlchemy or libpq carries the password; it must not be logged. The one for JDBC has none:
JDBC reads user `txsaga`'s password from the pgpass file (environment variable PGPASSFILE).
"""

from urllib.parse import quote

from txsaga.adapters.embedded.complaint import complaint
from txsaga.adapters.embedded.home import Home
from txsaga.adapters.embedded.secret import USER, Secret

JDBC = "jdbc"


def database_url(home: Home, secret: Secret, database: str, *, driver: str | None, socket: bool) -> str:
    """Build the URL for `driver`: jdbc, a SQLAlchemy driver, or None for libpq."""
    name = quote(database, safe="")
    if driver == JDBC:
        if socket:
            raise complaint("JDBC can't connect through a unix socket: leave socket out")
        return f"jdbc:postgresql://127.0.0.1:{secret.port}/{name}"
    scheme = f"postgresql+{driver}" if driver else "postgresql"
    if not socket:
        return f"{scheme}://{USER}:{secret.password}@127.0.0.1:{secret.port}/{name}"
    folder = home.sockets
    if not (folder / f".s.PGSQL.{secret.port}").exists():
        raise complaint(
            f"there is no socket in {folder}: start the server, or use TCP "
            "(the path may be too long for a socket, or hold a comma)"
        )
    return f"{scheme}://{USER}:{secret.password}@/{name}?host={quote(str(folder), safe='')}&port={secret.port}"


def public_url(secret: Secret, database: str) -> str:
    """Build the URL to show to people: without the password."""
    return f"postgresql://{USER}@127.0.0.1:{secret.port}/{quote(database, safe='')}"
