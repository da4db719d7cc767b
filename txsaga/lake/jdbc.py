"""
The JDBC address of the home database.

It keeps the URL's TLS options: without them Java programs would not verify the server, and send the password in clear.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from sqlalchemy import URL

CARRIED = ("sslmode", "sslrootcert")
"""Options with the same meaning in JDBC."""


def jdbc_address(url: URL, words: Mapping[str, str]) -> str:
    """Return an address without user and password, with these options of the driver."""
    tls = {name: str(url.query[name]) for name in CARRIED if name in url.query}
    return f"jdbc:postgresql://{url.host}:{url.port or 5432}/{url.database}?{urlencode({**words, **tls}, safe='/')}"
