"""
Files of access keys: a secret for each client, and what it may do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from txsaga.errors import ConfigError


class AccessKey(NamedTuple):
    """A secret, and the names that each right covers; without any right listed, a key may do everything."""

    secret: str
    rights: Mapping[str, Sequence[str]] = {}

    def allows(self, right: str, name: str) -> bool:
        """Return whether a name is covered."""
        return not self.rights or any(fnmatchcase(name, each) for each in self.rights.get(right, ()))


def read_keys(path: Path, rights: Sequence[str]) -> Mapping[str, AccessKey]:
    """Read a file of access keys: one `KEY:SECRET` a line, with rights after it if it may not do everything."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as reason:
        raise ConfigError(f"the access keys can't be read: {reason}") from None
    keys: dict[str, AccessKey] = {}
    for number, words in enumerate(lines, 1):
        if not words or words[0].startswith("#"):
            continue
        key, colon, secret = words[0].partition(":")
        if not (key and colon and secret) or key in keys:
            raise ConfigError(f"line {number} of {path} is not KEY:SECRET, or its key is there twice")
        keys[key] = AccessKey(secret, dict(_right(each, rights, f"line {number} of {path}") for each in words[1:]))
    return keys


def _right(word: str, rights: Sequence[str], where: str) -> tuple[str, Sequence[str]]:
    right, equals, names = word.partition("=")
    if right not in rights or not equals or not all(names.split(",")):
        raise ConfigError(f"{where}: {word!r} is no right; write {', '.join(rights)}, each with =NAME,NAME")
    return right, names.split(",")
