"""
The checkers of this process, by the producer group that each answers for.

A checker is the user's code: any exception is UNKNOWN, and nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from txsaga.checkback.doubt_context import DoubtContext
from txsaga.core.decision import Decision, LocalState
from txsaga.core.message import Message
from txsaga.core.records import Group, HalfView
from txsaga.errors import ChunkDamaged

Checker = Callable[["Question"], "LocalState | Decision | None"]


@dataclass(frozen=True, kw_only=True)
class Question:
    """The argument of a checker: what became of the local work of this transaction?"""

    txid: int
    id: str
    group: str
    key: str | None
    case: DoubtContext
    checks: int = 0

    @cached_property
    def halves(self) -> tuple[HalfView, ...]:
        """Its half messages, with the topic and queue that each is sent to."""
        return self.case.halves

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """Its messages as they were sent; they are read on first access."""
        return self.case.messages


def question_about(case: DoubtContext) -> Question:
    """Return the question about a case."""
    doubt = case.doubt
    return Question(txid=doubt.txid, id=case.id, group=case.group, key=case.key, case=case, checks=doubt.checks)


def ask(checker: Checker, question: Question) -> tuple[LocalState, str]:
    """Ask a checker; return its answer, and why. An exception is UNKNOWN, unless it is to end the process."""
    try:
        returned = checker(question)
    except ChunkDamaged as damage:  # the messages of the question: no checker can repair them
        return LocalState.UNKNOWN, str(damage)
    except Exception as failure:  # noqa: BLE001  # the user's code
        return LocalState.UNKNOWN, _raised(failure)
    try:
        answer = LocalState.of(returned, "the checker")
    except ValueError as failure:
        return LocalState.UNKNOWN, str(failure)
    return answer, f"the checker said {answer}"


def _raised(failure: BaseException) -> str:
    return f"the checker raised {type(failure).__name__}: {failure}"


class Checkers:
    """The checkers of this process, by group."""

    def __init__(self) -> None:
        self.by_id: dict[int, str] = {}
        self._by_name: dict[str, Checker] = {}
        self.hanging: frozenset[int] = frozenset()  # groups that it does not answer for, since their checkers hang

    def __bool__(self) -> bool:
        return bool(self._by_name)

    def register(self, group: Group, checker: Checker) -> None:
        """Answer for a group from now on."""
        self._by_name[group.name] = checker
        self.by_id[group.id] = group.name

    def leave(self, group: Group) -> None:
        """No longer answer for a group, as no member of it."""
        self._by_name.pop(group.name, None)
        self.by_id.pop(group.id, None)

    def name_of(self, group: str) -> str:
        """Return a name for a group's checker: the place of its code."""
        checker: object = self._by_name.get(group)
        called = getattr(checker, "__qualname__", type(checker).__qualname__)  # a partial has no name of its own
        return f"{checker.__module__}.{called}"

    def knows(self, group: str) -> bool:
        """Return whether a group has a checker here."""
        return group in self._by_name

    def say(self, case: DoubtContext) -> tuple[LocalState, str]:
        """Ask the checker of a group; return its answer, and why."""
        if (checker := self._by_name.get(case.group)) is None:
            return LocalState.UNKNOWN, f"the member that was asked has no checker for group {case.group!r}"
        try:
            return ask(checker, question_about(case))
        except KeyboardInterrupt:
            raise
        except BaseException as failure:  # noqa: BLE001  # the user's code: also what would end a thread is UNKNOWN
            return LocalState.UNKNOWN, _raised(failure)
