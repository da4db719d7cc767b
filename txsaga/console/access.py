"""
Who sends a request: sign-in, sessions, keys for programs.

A request without a known person gets nothing but the sign-in page and static files. A session lives in a signed
cookie that scripts can't read; it ends with the process. What changes something must carry the session's token in a
header, which another site can't read or set. A program sends its key as a bearer token, and needs none.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Protocol

from fastapi import Depends, HTTPException, Request
from fastapi.security import HTTPBearer

from txsaga.catalog.guess_limit import GuessLimit
from txsaga.console.people import Credential, Person, Rank

COOKIE = "txsaga_session"
TOKEN = "x-txsaga-token"
"""The header that a change must carry."""
SESSION = 12 * 3600
"""Seconds until one signs in again."""

KEY = HTTPBearer(
    scheme_name="key",
    bearerFormat="NAME.SECRET",
    description="The key of a program: `txsaga console account NAME --key` prints it. In Airflow, a token of its API.",
    auto_error=False,  # people have a session instead
)
"""How the description of `/api/v1` names the key of a request; a guard reads it."""

NOBODY = Credential("", Rank.VIEWER, "scrypt$$")
"""What a password is compared with under an unknown name, so that this takes as long."""


class Guard(Protocol):
    """Knows the person of a request."""

    @property
    def signs_in(self) -> bool:
        """Whether the console has a sign-in page of its own."""

    async def person(self, request: Request) -> Person | None:
        """Return who sends it; None for a stranger."""

    def token(self, request: Request, person: Person) -> str:
        """Return what a change of this session must carry."""


@dataclass(slots=True)
class OwnGuard:
    """The guard of a console that runs by itself: a link for the person who started it, accounts, or a proxy."""

    accounts: Mapping[str, Credential] = field(default_factory=dict)
    link: str | None = field(default=None, repr=False)  # the secret of the link that the command prints
    header: str | None = None  # in which a reverse proxy names the person
    role_header: str | None = None
    owner: str = "admin"
    cookie: str = COOKIE
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    _guesses: GuessLimit = field(default_factory=GuessLimit)
    _ended: set[str] = field(default_factory=set)

    @property
    def signs_in(self) -> bool:
        """Whether people sign in here; otherwise a proxy does it."""
        return self.header is None

    async def person(self, request: Request) -> Person | None:
        """Return who sends a request."""
        kind, _, key = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self.accounts:
            return self._program(key)
        return self._proxied(request) if self.header is not None else self._read(request.cookies.get(self.cookie, ""))

    def token(self, request: Request, person: Person) -> str:
        """Return what a change of this session must carry."""
        return self._signed(f"token {person.name if self.header else request.cookies.get(self.cookie, '')}")

    def enter(self, given: str) -> Person | None:
        """Return the person of the link."""
        if self.link is not None and hmac.compare_digest(self.link.encode(), given.encode()):
            return Person(self.owner, Rank.ADMIN)
        return None

    def sign_in(self, name: str, password: str, address: str) -> Person | None:
        """Return the person with this password; None if it is wrong, or was wrong too often."""
        if self.is_blocked(name, address):
            return None
        account = self.accounts.get(name)
        if (account or NOBODY).matches(password) and account is not None and account.secret.startswith("scrypt$"):
            return Person(account.name, account.role)
        self._guesses.add(name, address)
        return None

    def is_blocked(self, name: str, address: str) -> bool:
        """Tell whether a name or an address has to wait."""
        return self._guesses.wait(name, address) > 0

    def session(self, person: Person) -> str:
        """Return the cookie of a person who signed in."""
        said = {"name": person.name, "role": int(person.role), "until": time.time() + SESSION}
        text = base64.urlsafe_b64encode(json.dumps(said).encode()).decode()
        return f"{text}.{self._signed(text)}"

    def end(self, request: Request) -> None:
        """End the session of a request."""
        self._ended.add(request.cookies.get(self.cookie, ""))

    def _read(self, cookie: str) -> Person | None:
        text, _, signature = cookie.partition(".")
        if cookie in self._ended or not hmac.compare_digest(signature.encode(), self._signed(text).encode()):
            return None
        try:
            said = json.loads(base64.urlsafe_b64decode(text))
        except (ValueError, binascii.Error):
            return None
        return Person(said["name"], Rank(said["role"])) if said["until"] > time.time() else None

    def _program(self, key: str) -> Person | None:
        name, _, secret = key.partition(".")
        account = self.accounts.get(name)
        if account is None or not account.secret.startswith("key$") or not account.matches(secret):
            return None
        return Person(account.name, account.role, by_key=True)

    def _proxied(self, request: Request) -> Person | None:
        names = request.headers.getlist(self.header or "")
        roles = request.headers.getlist(self.role_header) if self.role_header else []
        if len(names) != 1 or not names[0] or len(roles) > 1:  # a second one may come from somebody else
            return None
        role = roles[0].upper() if roles else ""
        return Person(names[0], Rank[role] if role in Rank.__members__ else Rank.VIEWER)

    def _signed(self, text: str) -> str:
        return hmac.new(self.secret, text.encode(), hashlib.sha256).hexdigest()


class Requires:
    """What a route needs: a person with a role, and for a change the token of the session."""

    def __init__(self, role: Rank, *, changes: bool = False, alone: bool = False) -> None:
        self.role, self._changes, self._alone = role, changes, alone

    async def __call__(self, request: Request, _: Annotated[object, Depends(KEY)] = None) -> Person:
        """Return the person of a request, or refuse it."""
        guard: Guard = request.app.state.guard
        person = await guard.person(request)
        if person is None:
            raise HTTPException(401, "sign in first")
        if self._changes and not person.by_key and request.headers.get(TOKEN) != guard.token(request, person):
            raise HTTPException(403, "this page is older than your session; load it again")
        if person.role < self.role or (self._alone and person.role is not self.role):
            raise HTTPException(403, f"this needs the role {self.role.name.lower()}; ask an administrator")
        return person


Anyone = Annotated[Person, Depends(Requires(Rank.CLIENT))]
Client = Annotated[Person, Depends(Requires(Rank.CLIENT, changes=True, alone=True))]
Viewer = Annotated[Person, Depends(Requires(Rank.VIEWER))]
Operator = Annotated[Person, Depends(Requires(Rank.OPERATOR))]
Actor = Annotated[Person, Depends(Requires(Rank.OPERATOR, changes=True))]
