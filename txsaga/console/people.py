"""
The people and programs that may use the console: what each may do, and how passwords and keys are kept.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from txsaga.errors import ConfigError


class Rank(IntEnum):
    """What a person may do; each role includes the ones before, but only a client sends and receives messages."""

    CLIENT = 0  # a program: messages, and nothing else
    VIEWER = 1  # look, without bodies of messages
    OPERATOR = 2  # settle, replay, see bodies
    ADMIN = 3  # drop data: purge, delete, reset

    @classmethod
    def named(cls, name: str) -> Rank:
        """Return the role of this name."""
        try:
            return cls[name.upper()]
        except KeyError:
            raise ConfigError(f"role is {name!r}; it is {', '.join(each.name.lower() for each in cls)}") from None


@dataclass(frozen=True, slots=True)
class Person:
    """Who sends a request."""

    name: str
    role: Rank
    by_key: bool = False  # a program, whose requests no browser can forge

    @property
    def sees_bodies(self) -> bool:
        """Whether it may read what messages and steps hold."""
        return self.role >= Rank.OPERATOR


@dataclass(frozen=True, slots=True)
class Credential:
    """A line of the file of accounts: a person with a password, or a program with a key."""

    name: str
    role: Rank
    secret: str

    def matches(self, given: str) -> bool:
        """Tell whether this is its password or key."""
        kind, salt, kept = self.secret.split("$")
        return hmac.compare_digest(kept, _hashed(kind, salt, given))

    @classmethod
    def made(cls, name: str, role: Rank, given: str, *, key: bool = False) -> Credential:
        """Return an account with this password or key."""
        kind, salt = "key" if key else "scrypt", secrets.token_hex(16)
        return cls(name, role, f"{kind}${salt}${_hashed(kind, salt, given)}")

    @property
    def line(self) -> str:
        """Its line in the file."""
        return f"{self.name}:{self.role.name.lower()}:{self.secret}\n"


def _hashed(kind: str, salt: str, given: str) -> str:
    if kind == "key":  # long and random: nobody finds it by guessing
        return hashlib.sha256(f"{salt}{given}".encode()).hexdigest()
    return hashlib.scrypt(given.encode(), salt=salt.encode(), n=2**14, r=8, p=1).hex()


def read_accounts(file: Path) -> Mapping[str, Credential]:
    """Read a file of accounts."""
    try:
        lines = file.read_text("utf-8").splitlines()
    except OSError as reason:
        raise ConfigError(
            f"the accounts can't be read: {reason}; create one with `txsaga console account NAME`"
        ) from None
    found = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, rest = line.partition(":")
        role, _, secret = rest.partition(":")
        if not name or secret.count("$") != 2:
            raise ConfigError(f"line {number} of {file} is no account; write it with `txsaga console account NAME`")
        found[name] = Credential(name, Rank.named(role), secret)
    return found
