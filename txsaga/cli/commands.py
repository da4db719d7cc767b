"""The commands and the modules that hold them: only the module of the command that is asked for is imported."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

MODULES = {
    "send": "send",
    "tail": "tail",
    "consume": "tail",
    "cut": "cut",
    "collect": "collect",
    "recover": "branches",
    "branches": "branches",
    "heuristics": "branches",
    "forget": "branches",
    "status": "status",
    "doctor": "doctor",
    "engine": "engine",
    "topic": "topic",
    "group": "group",
    "dlq": "dlq",
    "tx": "tx",
    "doubt": "doubt",
    "saga": "saga",
    "producer": "producer",
    "db": "db",
    "barrier": "barrier",
    "airflow": "airflow",
}
"""Command to module, in the order of the help. A module with an `app` is a group of commands."""


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
        self.commands.update(typer.main.get_group(holder).commands)
