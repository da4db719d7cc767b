"""
The result of a transactional send, its end request with RocketMQ's fields and our ids, and the hooks of ends.

End hooks are the user's code, called with every end before it is written, and whether a check made it. They belong to
a group in this process: any member may answer a check, and the resulting end is the group's. A hook can't make an end
fail; its exceptions are logged. If a hook never runs, only its own effect is missing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from txsaga.core.decision import LocalState, ReplyCode
from txsaga.core.message import Message

logger = logging.getLogger("txsaga")


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """The result of a transactional send: the first six fields are always set."""

    status: ReplyCode
    queue: int
    message_id: str
    queue_offset: int
    transaction_id: str
    local_state: LocalState
    remark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRequest:
    """The second-phase request for one half."""

    message_id: str  # names the store and the half; it can be decoded
    transaction_id: str
    broker: str
    group: str
    state: LocalState
    token: bytes = field(repr=False)
    state_table_offset: int
    commit_log_offset: int
    from_check: bool = False
    remark: str = ""
    topic: str = ""
    message: Message | None = None  # what was sent, for end hooks; None if only its number is known


EndHook = Callable[[EndRequest], None]


class EndHooks:
    """The end hooks of this process's producers, by group."""

    def __init__(self) -> None:
        self._by_group: dict[str, tuple[EndHook, ...]] = {}

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
