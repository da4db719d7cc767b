"""
What a transactional send gives back and what its end carries: RocketMQ's words, with our ids in them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from txsaga.core.decision import LocalState, ReplyCode
from txsaga.core.message import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """The result of a transactional send: all six are always set."""

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
    message: Message | None = None  # what was sent, for end hooks; a check has only its place


EndHook = Callable[[EndRequest], None]
