"""
Programs with a key of the console as clients of the open catalog that it serves.
"""

from __future__ import annotations

from fastapi import Request

from txsaga.catalog.access import RIGHTS, Client
from txsaga.catalog.refusals import CatalogRefusal
from txsaga.console.access import Guard
from txsaga.console.people import Rank
from txsaga.gateway.access_keys import AccessKey

ALLOWED = {Rank.VIEWER: RIGHTS[0], Rank.OPERATOR: RIGHTS[1], Rank.ADMIN: RIGHTS[2]}
"""What a role may do with all tables: look, commit, and create and drop."""


class Engines:
    """The engines that may use the catalog of a console."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def client_of(self, request: Request) -> Client:
        """Return who sends a request: only with a key, since a browser could be made to send any other."""
        person = await self._guard.person(request)
        if person is None or not person.by_key:
            raise CatalogRefusal(401, "NotAuthorizedException", "the request has no key of an account of this console")
        if person.role not in ALLOWED:
            raise CatalogRefusal(403, "ForbiddenException", f"the key of {person.name} is for messages only")
        return Client(person.name, AccessKey("", {ALLOWED[person.role]: ["*"]}))
