"""
The options that every command understands, wherever they stand on the line.

They are parsed by the program, not by each command; `in_front` moves them there. Behind `--` nothing is
moved: what follows is somebody's text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import typer

from txsaga.model.topic import MAX_RETENTION

WITH_VALUE = ("--url", "--namespace")
FLAGS = ("--json", "--debug")
LONGEST = MAX_RETENTION.total_seconds()
"""Seconds: more is a slip, and no calendar holds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What was said before or after the command."""

    url: str | None = None
    namespace: str | None = None
    json: bool = False
    debug: bool = False


def options_of(context: typer.Context) -> Options:
    """Return the options of this call."""
    options = context.find_object(Options)
    assert options is not None
    return options


def in_front(words: Sequence[str]) -> list[str]:
    """Move the common options before the command."""
    front: list[str] = []
    rest: list[str] = []
    waiting = iter(words)
    for word in waiting:
        if word == "--":
            rest += [word, *waiting]
        elif word in WITH_VALUE:
            value = next(waiting, None)
            if value is None:
                raise typer.BadParameter("it needs a value", param_hint=word)
            front += [word, value]
        elif word in FLAGS or word.startswith(tuple(f"{name}=" for name in WITH_VALUE)):
            front.append(word)
        else:
            rest.append(word)
    return front + rest
