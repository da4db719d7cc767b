"""`txsaga completion`: what a shell needs to complete commands, and the answers to its questions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer
from typer.completion import completion_init, get_completion_script, shell_complete

from txsaga.cli.printing import say

VARIABLE = "_TXSAGA_COMPLETE"
"""Set by the shell when it asks."""


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="The shell that reads the script.")],
) -> None:
    """Print a script that makes your shell complete commands: eval "$(txsaga completion bash)"."""
    say(get_completion_script(prog_name="txsaga", complete_var=VARIABLE, shell=shell))


def answered(command: Any, question: str) -> int:
    """Print what a shell may complete."""
    completion_init()
    return shell_complete(command, {}, "txsaga", VARIABLE, question)
