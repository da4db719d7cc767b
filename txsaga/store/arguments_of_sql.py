"""
Convert named parameters to numbered ones: a statement that a session sends becomes the body of a function.

The SQL is not parsed: both styles of named parameters are matched, and casts are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

NAMED = re.compile(r"%\((\w+)\)s|(?<!:):(\w+)")


def numbered(sql: str, names: Sequence[str]) -> str:
    """Replace each named parameter with its position in `names`."""
    return NAMED.sub(lambda found: f"${names.index(found[1] or found[2]) + 1}", sql).strip()
