"""`txsaga completion`: what a shell needs to complete commands, and the answers to its questions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer
from typer import completion as typers  # a public module without a list of its names

from txsaga.cli.printing import say

VARIABLE = "_TXSAGA_COMPLETE"  # set by the shell when it asks


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="The shell that reads the script.")],
) -> None:
    """Print a script for your shell's start-up file that completes commands."""
    say(typers.get_completion_script(prog_name="txsaga", complete_var=VARIABLE, shell=shell))  # type: ignore[attr-defined]


def answered(command: Any, question: str) -> int:
    """Print what a shell may complete."""
    typers.completion_init()  # type: ignore[attr-defined]
    return typers.shell_complete(command, {}, "txsaga", VARIABLE, question)
