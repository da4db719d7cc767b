"""Where the project's own files are."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "txsaga"
GENERATED = {
    ".git",
    ".venv",
    "__pycache__",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".import_linter_cache",
}
SERVICES = (
    *("errors", "config", "broker", "rocketmq", "core", "messages", "consume", "checkback", "flows", "clusters"),
    "inspect",
)
SPEAKS_SQL = ("_store", "_statements", "_tables")
WITH_DRIVERS = {"messages/halves_store.py", "messages/joined_sends.py"}
"""Modules that a name does not give away: they speak to PostgreSQL as well."""


def project_files() -> Iterator[Path]:
    """Yield what a checkout holds, files not yet added included, ignored ones left out."""
    names = _listed_by_git() or _found_without_git()
    return (ROOT / name for name in sorted(names) if (ROOT / name).is_file())


def _listed_by_git() -> set[str]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return set()  # no git here, or a checkout that belongs to somebody else
    return set(filter(None, listing.stdout.split("\0")))


def _found_without_git() -> set[str]:
    paths = (path.relative_to(ROOT) for path in ROOT.rglob("*"))
    return {str(path) for path in paths if GENERATED.isdisjoint(path.parts)}


def python_files() -> Iterator[Path]:
    """Yield the Python files of a checkout."""
    return (path for path in project_files() if path.suffix == ".py")


def services() -> Iterator[Path]:
    """Yield the files that may import the standard library and pendulum only."""
    for name in SERVICES:
        for path in [PACKAGE / f"{name}.py", *sorted((PACKAGE / name).rglob("*.py"))]:
            named = str(path.relative_to(PACKAGE))
            if path.exists() and not path.stem.endswith(SPEAKS_SQL) and named not in WITH_DRIVERS:
                yield path


def module_name(path: Path) -> str:
    """Return the dotted name under which a file is imported."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def from_root(path: Path) -> str:
    """Return a path as the reader of a failing test wants it."""
    return str(path.relative_to(ROOT))
