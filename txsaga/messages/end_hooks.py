"""
End hooks: the user's code that hears of every end before it is written, and whether a check made it.

Hooks belong to a group within this process: a check is answered by any member, and its end is the group's.
A hook can't fail an end; what it raises is logged. If a hook never ran, nothing but its trace would be lost.
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
        """Tell whether anybody listens: without hooks no request is made up for them."""
        return bool(self._by_group)

    def register(self, group: str, hooks: Sequence[EndHook]) -> None:
        """Name the hooks of a group; a producer without any leaves them as they are."""
        if hooks:
            self._by_group[group] = tuple(hooks)

    def hear(self, group: str) -> bool:
        """Tell whether a group has hooks."""
        return group in self._by_group

    def tell(self, request: EndRequest) -> None:
        """Run the hooks of the request's group."""
        for hook in self._by_group.get(request.group, ()):
            try:
                hook(request)
            except Exception:
                logger.exception("an end hook failed for transaction %s", request.transaction_id)
