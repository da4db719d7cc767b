"""
The result of a transactional send and the content of its end request: RocketMQ's fields, with our ids.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from txsaga.core.decision import LocalState, ReplyCode
from txsaga.core.message import Message


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
