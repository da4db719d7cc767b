"""Every command of the command line with its arguments and options, as Markdown."""

import re
from collections.abc import Iterator
from typing import Any

import typer

from txsaga.cli.__main__ import app

COMMON = {"url", "namespace", "as_json", "json", "debug", "version", "help"}
"""Options that every command takes; the page names them once."""
TYPE = re.compile(r" <(str|int|list\[\w+\])>$")
"""What the help says of an argument that is any text or number."""


def commands() -> str:
    """Write a heading for each command, with its usage, what it does, and its options."""
    root = typer.main.get_command(app)
    return "\n\n".join(_written(root, typer.Context(root, info_name="txsaga")))


def _written(command: Any, context: Any) -> Iterator[str]:
    if hasattr(command, "list_commands"):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if not found.hidden:
                yield from _written(found, typer.Context(found, parent=context, info_name=name))
        return
    path = context.command_path.removeprefix("txsaga ")
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield f"## {path}\n\n```text\n{usage}\n```\n\n{_plain(command.help)}"
    rows = [row for each in command.params if (row := _row(each, context))]
    if rows:
        yield "\n".join(("| option | meaning |", "| --- | --- |", *rows))


def _row(parameter: Any, context: Any) -> str | None:
    option = parameter.param_type_name == "option"
    if (option and parameter.name in COMMON) or getattr(parameter, "hidden", False):
        return None
    record = parameter.get_help_record(context)
    if record is None:
        return None
    form, meaning = TYPE.sub("", record[0]), record[1]
    return f"| `{_plain(form)}` | {_plain(meaning)} |"


def _plain(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")
