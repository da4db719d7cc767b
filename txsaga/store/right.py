"""
What a database login may do in a namespace: four rights, which one login may hold together.

They are granted in the database and checked there; a program only asks which it has. If that answer were wrong, the
database would still refuse what was not granted.
"""

from enum import StrEnum


class Right(StrEnum):
    """What somebody may do."""

    PRODUCER = "producer"  # send, and decide what its own groups sent
    CONSUMER = "consumer"  # read what is decided
    OPERATOR = "operator"  # topics, groups, dead letters, decisions by hand; no bodies of what is undecided
    ENGINE = "engine"  # dispatch, check back, commit what is due, make room


EVERY_RIGHT = frozenset(Right)
