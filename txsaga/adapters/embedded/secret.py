"""Port and password in one `pgpass` file: everything a client has to know.

libpq, asyncpg and JDBC read the same line. It must not be readable by anybody else, and must not be
seen half written: it is replaced in one rename. If it is lost, the next start sets a new password.
"""

import re
import secrets
from dataclasses import dataclass, field
from typing import Self

from txsaga.adapters.embedded.home import Home

USER = "txsaga"
_LINE = re.compile(rf"\*:(\d+):\*:{USER}:([\w-]+)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """Where the server listens and what it wants to hear."""

    port: int
    password: str = field(repr=False)

    @classmethod
    def new(cls, port: int) -> Self:
        """Make up a password of 256 random bits."""
        return cls(port=port, password=secrets.token_urlsafe(32))

    @classmethod
    def read(cls, home: Home) -> Self | None:
        """Read the file; None when it is absent or garbled."""
        try:
            found = _LINE.fullmatch(home.pgpass.read_text(errors="replace"))
        except FileNotFoundError:
            return None
        return cls(port=int(found[1]), password=found[2]) if found else None

    def write(self, home: Home) -> None:
        """Replace the file in one step."""
        fresh = home.write_private("pgpass.new", f"*:{self.port}:*:{USER}:{self.password}\n")
        fresh.replace(home.pgpass)
        home.sync()
