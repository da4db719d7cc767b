"""
The console script: parses, runs one command, and turns whatever goes wrong into one line and a code.

Nothing but `main` catches errors here. A traceback is shown only when --debug asks for it. Only the module of the
command that is asked for is imported.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from txsaga.cli.log_format import to_stderr
from txsaga.cli.options import Options, in_front
from txsaga.cli.printing import say
from txsaga.core import exits
from txsaga.errors import TxSagaError

MODULES = {
    "send": "messages",
    "tail": "messages",
    "consume": "messages",
    "cut": "catalog.cut",
    "collect": "store",
    "status": "store",
    "doctor": "store",
    "engine": "engine",
    "topic": "topic",
    "group": "group",
    "dlq": "dlq",
    "tx": "tx",
    "branch": "branch",
    "saga": "saga",
    "producer": "producer",
    "db": "db",
    "barrier": "barrier",
    "airflow": "airflow",
    "console": "console",
    "gateway": "gateway.serve",
    "client": "gateway.client",
    "catalog": "catalog.serve",
    "workspace": "catalog.workspace",
    "demo": "demo",
    "config": "config",
    "completion": "completion",
}
"""Command to module, in the order of the help. A module with an `app` is a group of commands."""
VALUES = {"str": "TEXT", "int": "NUMBER", "path": "PATH"}


class Commands(TyperGroup):
    """Imports a command when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return list(MODULES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; a name that does not exist loads all, for the error to suggest one of them."""
        for name in [cmd_name] if cmd_name in MODULES else MODULES:
            self._load(name)
        return self.commands.get(cmd_name)

    def _load(self, name: str) -> None:
        if name in self.commands:
            return
        module, holder = import_module(f"txsaga.cli.{MODULES[name]}"), typer.Typer(add_completion=False)
        if hasattr(module, "app"):
            holder.add_typer(module.app, name=name)
        else:
            holder.command(name)(getattr(module, name))
        name_values(group := typer.main.get_group(holder))
        self.commands.update(group.commands)


def name_values(command: Any) -> None:
    """Let the help show `--json` and `--key TEXT`, not `--json <bool>` and `--key <str>`."""
    context = typer.Context(command)
    for option in command.get_params(context):
        if getattr(option, "is_flag", False):
            option.metavar = ""
        elif option.param_type_name == "option" and option.metavar is None:
            shown = option.display_type(context).strip("<>").removeprefix("list[").removesuffix("]")
            option.metavar = VALUES.get(shown, shown)
    for each in getattr(command, "commands", {}).values():
        name_values(each)


PROGRAM = "txsaga"

app = typer.Typer(cls=Commands, add_completion=False)


def show_version(asked: bool) -> None:
    """Print the version that is installed, and leave."""
    if asked:
        from importlib.metadata import version

        say(f"{PROGRAM} {version(PROGRAM)}")
        raise typer.Exit


@app.callback()
def common(
    context: typer.Context,
    url: Annotated[
        str | None,
        typer.Option(help="URL of the home database. Default: TXSAGA_URL, or the embedded one.", show_default=False),
    ] = None,
    namespace: Annotated[str | None, typer.Option(help="Namespace (schema) in the home database.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Make a pipeline one transaction. These options may appear anywhere on the command line."""
    to_stderr(debug=debug)
    context.obj = Options(url=url, namespace=namespace, json=json, debug=debug)


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    given = sys.argv[1:] if words is None else list(words)
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open()  # opened to read: what is written to it fails as on a full disk
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # nothing reads it; the exit code remains
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = run(in_front(given) or ["--help"])
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except BrokenPipeError:
        drop_output()
        return exits.PIPE_CLOSED
    except Exception as failure:  # noqa: BLE001  # the outermost caller: it prints every failure as one line
        if "--debug" in given:
            traceback.print_exc()
        code, line = explained(failure)
        with suppress(OSError):
            sys.stderr.write(f"{PROGRAM}: {' '.join(line.split())}\n")
        if isinstance(failure, OSError):
            drop_output()
        return code


def run(words: Sequence[str]) -> int:
    """Run one command; whatever goes wrong passes."""
    command = typer.main.get_command(app)
    if question := os.environ.get(f"_{PROGRAM.upper()}_COMPLETE"):
        from txsaga.cli.completion import answered

        return answered(command, question)
    name_values(command)
    try:
        with command.make_context(PROGRAM, list(words)) as context:
            command.invoke(context)
    except typer.Exit as leaving:
        return leaving.exit_code
    return exits.OK


def explained(failure: Exception) -> tuple[int, str]:
    """Return the exit code of a failure and the line that describes it."""
    match failure:
        case typer.TyperException():
            path = getattr(getattr(failure, "ctx", None), "command_path", PROGRAM)
            told = failure.format_message().replace("Value error, ", "").rstrip(".")
            return exits.USAGE, f"{told} (see `{path} --help`)"
        case TxSagaError():
            return exits.code_of(failure), str(failure)
        case OSError():
            return exits.UNEXPECTED, f"can't read or write: {failure}"
    kind = type(failure).__name__
    return exits.UNEXPECTED, f"unexpected {kind}: {failure} (run it again with --debug for the traceback)"


def drop_output() -> None:
    """Discard what the interpreter flushes at exit: no process reads it any more."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
