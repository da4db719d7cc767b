"""
The vocabulary of a decision: what local work answers, what a store replies, the decision itself.

Only two decisions exist. "Unknown" is an answer of local work, never a decision.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum


class Decision(IntEnum):
    """The two outcomes of a transaction; the op row holds the number."""

    COMMIT = 1
    ROLLBACK = 2

    @property
    def audited(self) -> tuple[str, str, str]:
        """Its names in the audit: by a program, by an operator, and by an operator with force."""
        return self.name, f"{self.name} BY HAND", f"{self.name} BY FORCE"

    def __str__(self) -> str:
        """Print the name: the number is for the store."""
        return self.name

    def __format__(self, spec: str) -> str:
        """Print the name; its number with `:d`."""
        return format(int(self), spec) if spec.endswith("d") else format(self.name, spec)


class LocalState(StrEnum):
    """The answer of local work or of a checker."""

    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"
    UNKNOWN = "UNKNOWN"

    @classmethod
    def of(cls, answer: object, source: str) -> LocalState:
        """Read what local work or a checker returned: None is UNKNOWN, a `Decision` is accepted as the answer."""
        if answer is None:
            return cls.UNKNOWN
        name = answer.name if isinstance(answer, Decision) else answer
        if not isinstance(name, str) or name not in cls.__members__:
            raise ValueError(f"{source} returned {answer!r}, not an answer; return COMMIT, ROLLBACK or UNKNOWN")
        return cls[name]

    @property
    def decision(self) -> Decision | None:
        """The decision that this answer leads to, if any."""
        return {LocalState.COMMIT: Decision.COMMIT, LocalState.ROLLBACK: Decision.ROLLBACK}.get(self)


class ReplyCode(StrEnum):
    """What a store replies to a send or an end."""

    SUCCESS = "SUCCESS"
    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"  # stored, no confirmed flush within the send timeout
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"  # a required standby was late
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"  # a required standby is absent, or this server is one
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    SYSTEM_ERROR = "SYSTEM_ERROR"
    ILLEGAL_OPERATION = "ILLEGAL_OPERATION"  # an ordinary end after the message's own immunity
    NO_PERMISSION = "NO_PERMISSION"


NOT_SAFE = frozenset({ReplyCode.FLUSH_DISK_TIMEOUT, ReplyCode.FLUSH_SLAVE_TIMEOUT, ReplyCode.SLAVE_NOT_AVAILABLE})
"""On the half message these lead to ROLLBACK; on the final write they count as success."""
