"""
Who asks, and what it may do: OAuth2 client credentials, or the same as a bearer token.

An access token is signed, and holds the client and its end. Servers with the same file of clients accept each other's
tokens; a changed file ends those of all.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import math
import re
import secrets
import time
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple, Protocol

from fastapi import Request

from txsaga.catalog.guess_limit import GuessLimit
from txsaga.catalog.refusals import CatalogRefusal, bad
from txsaga.gateway.access_keys import AccessKey, read_keys
from txsaga.lake.table import TableName

RIGHTS = ("read", "write", "create")
"""To read tables and views; to commit to them as well; and to create, rename and drop them and their namespaces."""
LIFETIME = 3600
"""Seconds for which an access token is good."""


def credentials_of(header: str) -> tuple[str, str] | None:
    """Return the id and the secret of a header with basic authentication."""
    kind, _, said = header.partition(" ")
    if kind.lower() != "basic":
        return None
    try:
        name, _, secret = base64.b64decode(said).decode().partition(":")
    except ValueError:
        return None
    return name, secret


def address_of(request: Request) -> str:
    """Return where a request comes from."""
    return request.client.host if request.client else ""


class Client(NamedTuple):
    """A client, and its key."""

    name: str
    key: AccessKey

    def may(self, right: str, name: str) -> bool:
        """Return whether a right covers a table or view; each right includes those before it."""
        return any(self.key.allows(each, name) for each in RIGHTS[RIGHTS.index(right) :])

    def require(self, right: str, *names: TableName) -> None:
        """Refuse what its rights do not cover."""
        for name in names:
            if self.is_limited and "." in name.table:
                raise bad(f"{name.table!r} can't be distinguished from a table of another namespace; leave out its dot")
            if not self.may(right, str(name)):
                raise CatalogRefusal(
                    403, "ForbiddenException", f"client {self.name!r} may not {right} {name}; add it to {right}="
                )

    @property
    def is_limited(self) -> bool:
        """Whether it may create only in some namespaces: it must not reach the files of other tables."""
        return not self.may("create", "*")

    def require_own_files(self, root: str, *places: str) -> None:
        """Refuse places of files outside the folder of a namespace."""
        for place in places if self.is_limited else ():
            if not place.startswith(f"{root}/") or "/.." in place:
                raise CatalogRefusal(
                    403, "ForbiddenException", f"client {self.name!r} may use files below {root} only, not {place}"
                )

    def reaches(self, right: str, name: TableName, root: str, place: str) -> bool:
        """Return whether a place of a table's files may be opened to it, or chosen by it.

        With rights on single tables, only the folder that the server chooses is known to hold no other table.
        """
        if self.may(right, "*"):
            return True
        folder = "[^/]+" if self.may(right, f"{name.namespace}.") else f"{re.escape(name.table)}(-[0-9a-f]{{8}})?"
        return re.match(f"{re.escape(root)}/{folder}(/|$)", place) is not None and "/.." not in place

    def sees(self, namespace: str) -> bool:
        """Return whether any table of a namespace, or below it, may be read."""
        patterns = [each for right in RIGHTS for each in self.key.rights.get(right, ())]
        return self.may("read", f"{namespace}.") or any(
            each.startswith(f"{namespace}.") or fnmatchcase(namespace, each.rpartition(".")[0]) for each in patterns
        )

    def require_namespace(self, right: str, namespace: str) -> None:
        """Refuse what its rights do not cover: to see a namespace, or to change all that it holds."""
        if not (self.sees(namespace) if right == "read" else self.may(right, f"{namespace}.")):
            raise CatalogRefusal(
                403, "ForbiddenException", f"client {self.name!r} may not {right} in {namespace}; add {namespace}.*"
            )


class Doorkeeper(Protocol):
    """Knows the client of a request."""

    async def client_of(self, request: Request) -> Client:
        """Return who sends it; refuse a stranger."""


class Clients:
    """The clients of a catalog; without a file of them, everybody may do everything."""

    def __init__(self, keys: Mapping[str, AccessKey] | None = None) -> None:
        self._keys, self._guesses = keys, GuessLimit()
        known = repr(sorted((name, key.secret) for name, key in (keys or {}).items()))
        self._secret = hashlib.sha256(b"txsaga catalog" + known.encode()).digest() if keys else secrets.token_bytes(32)

    @classmethod
    def read(cls, path: Path | None) -> Clients:
        """Read a file of clients."""
        return cls(None if path is None else read_keys(path, RIGHTS))

    def token(self, name: str, secret: str, address: str = "") -> str:
        """Return an access token for a client's credentials."""
        if self._keys is not None and not self._matches(name, secret, address):
            raise CatalogRefusal(401, "NotAuthorizedException", "the client or its secret is wrong")
        return self._signed(name)

    def renewed(self, token: str, address: str = "") -> str:
        """Return a new access token for one that is still good."""
        return self._signed(self.client(token, address).name)

    def client(self, token: str | None, address: str = "") -> Client:
        """Return the client of a bearer token, or of `ID:SECRET` in its place."""
        if self._keys is None:
            return Client("anybody", AccessKey(""))
        name, colon, secret = (token or "").partition(":")
        if colon and self._matches(name, secret, address):
            return Client(name, self._keys[name])
        found = self._holder(token or "")
        if found is None or found not in self._keys:
            raise CatalogRefusal(
                401, "NotAuthorizedException", "the request has no token that is good here; ask for one"
            )
        return Client(found, self._keys[found])

    async def client_of(self, request: Request) -> Client:
        """Return who sends a request."""
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        return self.client(token.strip() if kind.lower() == "bearer" else None, address_of(request))

    def _matches(self, name: str, secret: str, address: str) -> bool:
        """Return whether a secret is right; refuse to tell where it was wrong too often: others may still sign in."""
        guessed = f"{name} {address}"
        if (wait := math.ceil(self._guesses.wait(guessed, address))) > 0:
            line = f"too many wrong secrets from {address}; try again in {wait} s"
            raise CatalogRefusal(429, "TooManyRequestsException", line, {"retry-after": str(wait)})
        known = (self._keys or {}).get(name)
        if known is not None and hmac.compare_digest(known.secret.encode(), secret.encode()):
            return True
        self._guesses.add(guessed, address)
        return False

    def _signed(self, name: str) -> str:
        said = base64.urlsafe_b64encode(json.dumps({"sub": name, "exp": int(time.time()) + LIFETIME}).encode())
        return f"{said.decode()}.{self._seal(said)}"

    def _holder(self, token: str) -> str | None:
        said, _, seal = token.partition(".")
        if not hmac.compare_digest(seal.encode(), self._seal(said.encode()).encode()):
            return None
        document = json.loads(base64.urlsafe_b64decode(said))
        return str(document["sub"]) if document["exp"] > time.time() else None

    def _seal(self, said: bytes) -> str:
        return hmac.new(self._secret, said, hashlib.sha256).hexdigest()
