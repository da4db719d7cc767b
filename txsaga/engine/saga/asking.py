"""A step as a user asks for it, checked before anything is written down."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from txsaga.engine.saga.naming import Doing, check_times, checked_retries, kind_of, name_of
from txsaga.engine.saga.trying import Asked
from txsaga.model.arguments import check_kind, check_text
from txsaga.model.saga import FIRST_PAUSE, Undo

INPUT = "give a mapping of names to JSON values"


def asked(
    do: Doing,
    *,
    compensate: Doing | Undo | None = None,
    on: str | None = None,
    name: str | None = None,
    input: Mapping[str, object] | None = None,
    retries: int = 0,
    timeout: float | None = None,
    pause: float = FIRST_PAUSE,
    expires: timedelta | None = None,
) -> Asked:
    """Check what is said of a step."""
    if on is not None:
        check_text(on, "the resource of a step", "give the name of a registered one")
    kind_of(do, on)
    check_times(timeout, pause)
    if input is not None:
        check_kind(input, Mapping, "the input of a step", INPUT)
        for key in input:
            check_kind(key, str, "a name in the input of a step", INPUT)
    if name not in (None, ""):
        check_text(name, "the name of a step", "give a text")
    return Asked(
        do=do,
        on=on,
        compensate=compensate,
        name=name or name_of(do),
        input=input or {},
        retries=checked_retries(retries),
        timeout=timeout,
        pause=pause,
        expires=expires,
    )
