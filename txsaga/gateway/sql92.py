"""
Conditions on a message's properties, as RocketMQ's SQL92 filters write them.

    a > 5 AND b IN ('x', 'y') OR NOT (c IS NULL) AND d BETWEEN 1 AND 10

A property is text; compared with a number it is read as one. A comparison with what is not there, or is no number, is
neither true nor false, and a message is wanted only if the condition is true.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from txsaga.core.message import Delivered

Properties: TypeAlias = Mapping[str, str]
Value: TypeAlias = str | float | bool | None
Term: TypeAlias = Callable[[Properties], Value]
Truth: TypeAlias = Callable[[Properties], bool | None]

TOKEN = re.compile(r"\s*(?:('(?:[^']|'')*')|(\d+(?:\.\d+)?|\.\d+)|([A-Za-z_$][\w$.]*)|(<>|<=|>=|[=<>(),+-]))")
WORDS = frozenset({"AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL", "TRUE", "FALSE"})
COMPARISONS: Mapping[str, Callable[[Value, Value], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,  # type: ignore[dict-item]  # only numbers are ordered
    "<=": operator.le,  # type: ignore[dict-item]
    ">": operator.gt,  # type: ignore[dict-item]
    ">=": operator.ge,  # type: ignore[dict-item]
}
LONGEST, DEEPEST = 4_096, 50
"""Characters of a condition, and parentheses within each other."""


def condition(text: str) -> Truth:
    """Return a function of a message's properties; `ValueError` for what is no condition."""
    if len(text) > LONGEST:
        raise ValueError(f"it has more than {LONGEST} characters")
    reading = ConditionReader(list(_tokens(text)))
    found = reading.either()
    if reading.next is not None:
        raise ValueError(f"{reading.next} is not expected there")
    return found


def by_condition(text: str) -> Callable[[Delivered], bool]:
    """Return whether a message's headers, and its tag as TAGS, fulfil a condition; `ValueError` for what is none."""
    true = condition(text)

    def wanted(message: Delivered) -> bool:
        tag = {} if message.tag is None else {"TAGS": message.tag}
        return true({**message.headers, **tag}) is True

    return wanted


def _tokens(text: str) -> Iterator[str]:
    at = 0
    while text[at:].strip():
        found = TOKEN.match(text, at)
        if found is None:
            raise ValueError(f"{text[at:].strip()[:20]!r} is not understood")
        word = found[3]
        yield word.upper() if word and word.upper() in WORDS else found[0].strip()
        at = found.end()


class ConditionReader:
    """Reads the words of a condition, one after the other."""

    def __init__(self, words: list[str]) -> None:
        self._words, self._at, self._depth = words, 0, 0

    @property
    def next(self) -> str | None:
        """The word that comes next."""
        return self._words[self._at] if self._at < len(self._words) else None

    def either(self) -> Truth:
        """Read conditions joined by OR."""
        parts = [self._both()]
        while self._took("OR"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else lambda given: _any([part(given) for part in parts])

    def _both(self) -> Truth:
        parts = [self._one()]
        while self._took("AND"):
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else lambda given: _not(_any([_not(part(given)) for part in parts]))

    def _one(self) -> Truth:
        self._depth += 1
        if self._depth > DEEPEST:
            raise ValueError(f"it is nested more than {DEEPEST} times")
        try:
            if self._took("NOT"):
                inner = self._one()
                return lambda given: _not(inner(given))
            if self._took("("):
                found = self.either()
                self._expect(")")
                return found
            return self._compared(self._term())
        finally:
            self._depth -= 1

    def _compared(self, left: Term) -> Truth:
        if self._took("IS"):
            there = self._took("NOT")
            self._expect("NULL")
            return lambda given: (left(given) is not None) is there
        negated = self._took("NOT")
        if self._took("BETWEEN"):
            found = self._between(left)
        elif self._took("IN"):
            found = self._among(left)
        elif negated:
            raise ValueError("NOT is followed by neither BETWEEN nor IN")
        elif self.next in COMPARISONS:
            found = _comparison(self._taken(), left, self._term())
        else:
            return lambda given: _truth(left(given))
        return (lambda given: _not(found(given))) if negated else found

    def _between(self, value: Term) -> Truth:
        low = self._term()
        self._expect("AND")
        first, last = _comparison(">=", value, low), _comparison("<=", value, self._term())
        return lambda given: _not(_any([_not(first(given)), _not(last(given))]))

    def _among(self, value: Term) -> Truth:
        self._expect("(")
        same = [_comparison("=", value, self._term())]
        while self._took(","):
            same.append(_comparison("=", value, self._term()))
        self._expect(")")
        return lambda given: _any([each(given) for each in same])

    def _term(self) -> Term:
        sign = -1.0 if self._took("-") else 1.0
        word = self._taken()
        if word[0] == "'":
            text = word[1:-1].replace("''", "'")
            return lambda given: text
        if word[0].isdigit() or word[0] == ".":
            number = sign * float(word)
            return lambda given: number
        if word in ("TRUE", "FALSE"):
            return lambda given: word == "TRUE"
        if word in WORDS or not (word[0].isalpha() or word[0] in "_$"):
            raise ValueError(f"{word} is not expected there")
        return lambda given: given.get(word)

    def _taken(self) -> str:
        if self.next is None:
            raise ValueError("it ends too early")
        self._at += 1
        return self._words[self._at - 1]

    def _took(self, word: str) -> bool:
        found = self.next == word
        self._at += found
        return found

    def _expect(self, word: str) -> None:
        if self._taken() != word:
            raise ValueError(f"{word} is missing before {self._words[self._at - 1]}")


def _comparison(sign: str, left: Term, right: Term) -> Truth:
    def compare(given: Properties) -> bool | None:
        one, other = left(given), right(given)
        if one is None or other is None:
            return None
        if isinstance(one, float) or isinstance(other, float) or sign not in ("=", "<>"):
            one, other = _number(one), _number(other)
        elif isinstance(one, bool) or isinstance(other, bool):
            one, other = _truth(one), _truth(other)
        return None if one is None or other is None else COMPARISONS[sign](one, other)

    return compare


def _number(value: Value) -> float | None:
    try:
        return None if value is None or isinstance(value, bool) else float(value)
    except ValueError:
        return None


def _truth(value: Value) -> bool | None:
    return {"true": True, "false": False}.get(str(value).lower())


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value


def _any(values: list[bool | None]) -> bool | None:
    return True if True in values else None if None in values else False
