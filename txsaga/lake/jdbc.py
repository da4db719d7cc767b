"""
The address of the home database as programs in Java take it.

What the URL says of TLS goes along: without it they would not look who answers, and send the password in the clear.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from sqlalchemy import URL

CARRIED = ("sslmode", "sslrootcert")
"""They mean the same there."""


def jdbc_address(url: URL, words: Mapping[str, str]) -> str:
    """Write an address without user and password, with these words of the driver."""
    tls = {name: str(url.query[name]) for name in CARRIED if name in url.query}
    return f"jdbc:postgresql://{url.host}:{url.port or 5432}/{url.database}?{urlencode({**words, **tls}, safe='/')}"
