"""
An amendment: a flow whose key was committed is done anew, in a life of its own that is linked to what it amends.

Nothing of what was committed is taken back: what the new life publishes takes its place where it can. Without the word
that an amendment is begun `by`, one that is tried again could not be told from a second one, and would publish twice.
"""

from __future__ import annotations

from typing import NamedTuple

AMENDS = "__amends__"
"""The header of a message that names the transaction whose messages it takes the place of."""

NO_OTHER_INPUT = "what that one consumed is done: another message is no amendment of it; begin a flow of its own for it"


class Amendment(NamedTuple):
    """Why a life of a key was begun, and what it amends."""

    by: str
    of: int | None = None  # None: nothing was committed under the key when it was begun
