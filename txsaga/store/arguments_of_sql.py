"""
Named parameters as numbered ones: what a session sends with names becomes the body of a function.

It reads no SQL: both ways to name a parameter are looked for, and a cast is none of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

NAMED = re.compile(r"%\((\w+)\)s|(?<!:):(\w+)")


def numbered(sql: str, names: Sequence[str]) -> str:
    """Write each parameter as its place among the names."""
    return NAMED.sub(lambda found: f"${names.index(found[1] or found[2]) + 1}", sql).strip()
