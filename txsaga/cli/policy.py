"""The options of a group's policy, for each command that takes them: what was said of it becomes `changes`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

from txsaga.cli.options import span_of, whole
from txsaga.model.claim import MOST_ATTEMPTS


def _span(told: str) -> Any:  # noqa: ANN401  # as typer has it
    return typer.Option(parser=span_of, metavar="TIME", help=told)


OPTIONS: dict[str, Any] = {
    "max_attempts": Annotated[
        int | None,
        typer.Option(parser=whole(0, MOST_ATTEMPTS), metavar="NUMBER", help="Deliveries of one message; 0 for no end."),
    ],
    "backout": Annotated[str | None, typer.Option(help="Topic for messages that fail to the end; '' for none.")],
    "dead_letters": Annotated[
        bool | None, typer.Option("--dead-letters/--no-dead-letters", help="Keep what fails to the end.")
    ],
    "first_retry": Annotated[timedelta | None, _span("Rest before the second delivery: 1s.")],
    "longest_retry": Annotated[timedelta | None, _span("How long it rests at most: 5m.")],
    "expires": Annotated[timedelta | None, _span("Time without a member behind which it is forgotten; 0: never.")],
}
NONE: dict[str, object] = {"max_attempts": 0, "backout": "", "expires": timedelta(0)}
"""What stands for None on a command line."""


def takes_policy(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command these options, in the place of its `changes`: those that were said, as the broker takes them."""
    hints = get_type_hints(command, include_extras=True)
    own = [each for each in inspect.signature(command).parameters.values() if each.name != "changes"]
    parameters = [
        *(each.replace(annotation=hints[each.name]) for each in own),
        *(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=OPTIONS[name])
            for name in OPTIONS
        ),
    ]

    @wraps(command)
    def with_changes(*args: object, **said: object) -> None:
        given = {name: value for name in OPTIONS if (value := said.pop(name)) is not None}
        command(*args, **said, **{name: _meant(name, value) for name, value in given.items()})

    del with_changes.__wrapped__  # its hints would be asked for
    with_changes.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_changes.__annotations__ = {each.name: each.annotation for each in parameters}
    return with_changes


def _meant(name: str, value: object) -> object:
    return None if name in NONE and value == NONE[name] else value
