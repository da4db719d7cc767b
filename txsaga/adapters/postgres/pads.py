"""
The two pads of a store's tokens, for the session of its owner, who may read them.

The server makes the same token in SQL. If a pad were of another store, or of an earlier life of this one, the token
would be good for nothing: so they are read, and used, with the identity beside them.
"""

import struct
from hashlib import sha256
from typing import NamedTuple

_NAMED = struct.Struct(">iq")


class Pads(NamedTuple):
    """An HMAC over group and number."""

    outer: bytes
    inner: bytes

    def __repr__(self) -> str:
        """Show neither: whoever has both makes every token."""
        return "Pads()"

    def token(self, group: int, txid: int) -> bytes:
        """Make the token that shows that a half was given out."""
        return sha256(self.outer + sha256(self.inner + _NAMED.pack(group, txid)).digest()).digest()
