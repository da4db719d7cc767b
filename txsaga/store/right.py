"""
The four rights of a database login in a namespace; one login may hold several.

They are granted and checked in the database; a program only asks which ones it has. If that answer were wrong, the
database would still refuse what was not granted.
"""

from enum import StrEnum
from typing import NamedTuple


class Right(StrEnum):
    """One right of a login."""

    PRODUCER = "producer"  # send, and decide what its own groups sent
    CONSUMER = "consumer"  # read committed messages
    OPERATOR = "operator"  # topics, groups, dead letters, manual decisions; no bodies of undecided messages
    ENGINE = "engine"  # dispatch, check back, commit what is due, add and drop partitions


EVERY_RIGHT = frozenset(Right)
SIGN = "may"
"""The table whose grants say who has which right."""


class Login(NamedTuple):
    """The rights of a connection's login."""

    owner: bool
    rights: frozenset[Right]
