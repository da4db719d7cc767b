"""What a model knows of one message of a group: who has it, how often it was handed out, when it comes again."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from txsaga.consume.claim import Claim


class Fate(Enum):
    """Where a message is."""

    UNREAD = auto()
    OUT = auto()  # handed out, or waiting to come again
    BOUND = auto()
    BURIED = auto()
    DONE = auto()


@dataclass(eq=False)
class Grip:
    """One claim on messages, as long as its time is not over."""

    until: float


@dataclass(eq=False)
class Work:
    """One message as its group works it off."""

    qid: int
    offset: int
    key: int | None
    fate: Fate = Fate.UNREAD
    attempts: int = 0
    handed_out: int = 0  # for good: what was given back does not count
    grip: Grip | None = None  # of whoever had it last
    due: float = 0.0
    txid: int = 0
    retry: float = 0.0
    letter: int = 0

    def is_held(self, now: float) -> bool:
        """Tell whether somebody has it in his hands."""
        return self.fate is Fate.OUT and self.grip is not None and self.grip.until > now

    def is_due(self, now: float) -> bool:
        """Tell whether it comes to whoever asks."""
        if self.fate is not Fate.OUT:
            return False
        return self.grip.until <= now if self.grip is not None else self.due <= now

    def comes_again(self, due: float) -> None:
        """Let it rest until then."""
        self.fate, self.grip, self.due = Fate.OUT, None, due

    def is_behind(self, other: Work) -> bool:
        """Tell whether it waits for another message of its key."""
        waits = other.fate in (Fate.OUT, Fate.BOUND) and other.key == self.key is not None
        return waits and other.qid == self.qid and other.offset < self.offset


class HandOut(NamedTuple):
    """One message as a member got it: its claim, and all that were in the same claim."""

    work: Work
    grip: Grip
    claim: Claim
    run: tuple[Work, ...]

    @property
    def alone(self) -> Claim:
        """The claim on this message only."""
        return self.claim.only(self.work.offset)
