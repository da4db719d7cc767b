"""
End hooks: the user's code, called with every end before it is written, and whether a check made it.

Hooks belong to a group in this process: any member may answer a check, and the resulting end is the group's.
A hook can't make an end fail; its exceptions are logged. If a hook never runs, only its own effect is missing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from txsaga.messages.end_request import EndHook, EndRequest

logger = logging.getLogger("txsaga")


class EndHooks:
    """The end hooks of this process's producers, by group."""

    def __init__(self) -> None:
        self._by_group: dict[str, tuple[EndHook, ...]] = {}

    def __bool__(self) -> bool:
        """Return whether there are hooks: without any, no request is built for them."""
        return bool(self._by_group)

    def register(self, group: str, hooks: Sequence[EndHook]) -> None:
        """Set the hooks of a group; a producer without hooks changes nothing."""
        if hooks:
            self._by_group[group] = tuple(hooks)

    def hear(self, group: str) -> bool:
        """Return whether a group has hooks."""
        return group in self._by_group

    def tell(self, request: EndRequest) -> None:
        """Run the hooks of the request's group."""
        for hook in self._by_group.get(request.group, ()):
            try:
                hook(request)
            except Exception:
                logger.exception("an end hook failed for transaction %s", request.transaction_id)
