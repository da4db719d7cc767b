"""
What commands share: options that every command understands wherever they are on the line, and readers of values.

The common options are parsed by the program, not by each command; `in_front` moves them there. After `--` nothing is
moved: what follows is text of the user.
"""

from __future__ import annotations

import inspect
import os
import pwd
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from txsaga.core.arguments import read_number
from txsaga.core.identity import LAST
from txsaga.core.topic import MAX_RETENTION

if TYPE_CHECKING:
    from txsaga.consume.queue_reader import Start

WITH_VALUE = ("--url", "--namespace")
FLAGS = ("--json", "--debug")
LONGEST = MAX_RETENTION.total_seconds()
"""Seconds: more is a slip, and no calendar holds it."""
MOST = 10_000
"""What one call lists."""
UNITS = {"": "seconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
SPAN = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)", re.ASCII)


Id = Annotated[str, typer.Argument(metavar="ID", help="Id or number of a transaction, or id of a message.")]
OptionalId = Annotated[str | None, typer.Argument(metavar="[ID]", help="Id or number of a transaction.")]
Reason = Annotated[str, typer.Option(help="Why you do this; it is recorded with your account.")]
Yes = Annotated[bool, typer.Option("--yes", help="Apply the change; without it nothing is changed.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options given before or after the command."""

    url: str | None = None
    namespace: str | None = None
    json: bool = False
    debug: bool = False


def options_of(context: typer.Context) -> Options:
    """Return the options of this call."""
    options = context.find_object(Options)
    assert options is not None
    return options


def whole(least: int, most: int) -> Callable[[str], int]:
    """Return the reader of a whole number between two others."""

    def number(text: str) -> int:
        found = read_number(str(text))
        if found is None or not least <= found <= most:
            raise typer.BadParameter(f"{text!r} is not a whole number from {least} to {most}")
        return found

    return number


Limit = Annotated[int, typer.Option(parser=whole(1, MOST), metavar="NUMBER", help="Maximum number of rows.")]


def span_of(text: str) -> timedelta:
    """Read a length of time, like 90, 90s, 15m, 12h or 30d."""
    found = SPAN.fullmatch(text)
    try:
        span = timedelta(**{UNITS[found[2]]: float(found[1])}) if found else None
    except OverflowError:
        span = None
    if span is None or span.total_seconds() > LONGEST:
        raise typer.BadParameter(f"{text!r} is not a length of time; write seconds, or 15m, 12h, 30d")
    return span


def one_of(names: Sequence[str]) -> Callable[[str], str]:
    """Return the reader of one of these names."""

    def name(text: str) -> str:
        if text not in names:
            raise typer.BadParameter(f"{text!r} is not one of {', '.join(names)}")
        return text

    return name


def past_of(text: str) -> datetime:
    """Read a moment in the past: a time with its zone, or a length of time before now."""
    wrong = f"{text!r} is not a time in the past; write 15m, 12h, 30d, or a time like 2026-01-31T12:00:00Z"
    moment = datetime.now(UTC) - span_of(text) if text.endswith(("s", "m", "h", "d")) else _moment(text, wrong)
    if moment > datetime.now(UTC):
        raise typer.BadParameter(wrong)
    return moment


def moment_of(text: str) -> datetime:
    """Read a time with its zone, like 2026-01-31T12:00:00Z."""
    return _moment(text, f"{text!r} is not a time; write it like 2026-01-31T12:00:00Z")


def _moment(text: str, wrong: str, hint: str | None = None) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(wrong, param_hint=hint) from None
    if moment.tzinfo is None:
        raise typer.BadParameter(f"{text} has no time zone; add one, like {moment.isoformat()}Z", param_hint=hint)
    return moment


def start_of(text: str, hint: str = "--from") -> Start:
    """Read where to begin."""
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if (offset := read_number(text)) is not None and offset <= LAST:
        return offset
    return _moment(text, f"{text!r} is not earliest, latest, a time like 2026-01-31T12:00:00Z or an offset", hint)


def in_front(words: Sequence[str]) -> list[str]:
    """Move the common options before the command."""
    front: list[str] = []
    rest: list[str] = []
    waiting = iter(words)
    for word in waiting:
        if word == "--":
            rest += [word, *waiting]
        elif word in WITH_VALUE:
            if (value := next(waiting, None)) is None:
                raise typer.BadParameter("it needs a value", param_hint=word)
            front += [word, value]
        elif word in FLAGS or word.startswith(tuple(f"{name}=" for name in WITH_VALUE)):
            front.append(word)
        else:
            rest.append(word)
    return front + rest


def takes(options: Mapping[str, Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command options, by name and annotation, in place of its last argument: it gets those that were given."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(command, include_extras=True)
        *own, _ = inspect.signature(command).parameters.values()
        parameters = [
            *(each.replace(annotation=hints[each.name]) for each in own),
            *(
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=options[name])
                for name in options
            ),
        ]

        @wraps(command)
        def with_options(*args: object, **said: object) -> None:
            given = {name: value for name in options if (value := said.pop(name)) is not None}
            command(*args, **said, **given)

        del with_options.__wrapped__  # its hints would be read instead
        with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        with_options.__annotations__ = {each.name: each.annotation for each in parameters}
        return with_options

    return decorate


def os_user(name_of: Callable[[int], str] = lambda uid: pwd.getpwuid(uid).pw_name) -> str:
    """Return the account of this process as the system knows it, regardless of the environment."""
    uid = os.getuid()
    try:
        name = name_of(uid)
    except KeyError:
        name = f"uid {uid}"
    return f"{name}@{socket.gethostname()}"
