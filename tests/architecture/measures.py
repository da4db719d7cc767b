"""
How hard the house is to live in, as numbers: `python -m tests.architecture.measures`.

A number is a hint, not an aim. `test_measures.py` keeps each from getting worse.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tests.architecture.sources import PACKAGE, ROOT, module_name

STATEMENT = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH|CREATE|ALTER|MERGE|LOCK)\b")
FACES = ("catalog", "console", "gateway", "iceberg", "testing.catalog")
SLICES = ("core", "store", "messages", "evidence", "checkback", "consume", "flows", "clusters", "inspect")


@dataclass(frozen=True)
class Module:
    """One file of the package."""

    path: Path
    name: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """Its code."""
        return ast.parse(self.text)

    @property
    def nodes(self) -> Iterator[ast.AST]:
        """Everything in it."""
        return ast.walk(self.tree)

    @property
    def imports(self) -> Iterator[ast.Import | ast.ImportFrom]:
        """Its imports, those for type checkers included."""
        return (node for node in self.nodes if isinstance(node, ast.Import | ast.ImportFrom))

    def imported(self, known: Iterable[str]) -> set[str]:
        """Return the modules that it imports, of those that are known."""
        found: set[str] = set()
        for node in self.imports:
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            else:
                found |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
        return found & set(known) - {self.name}


def modules() -> list[Module]:
    """Read the package, migrations left out: they never change."""
    paths = [path for path in sorted(PACKAGE.rglob("*.py")) if "migrations" not in path.relative_to(PACKAGE).parts]
    return [Module(path, module_name(path), path.read_text("utf-8")) for path in paths]


def measured(package: list[Module]) -> Mapping[str, float]:
    """Return every measure by its name. The faces have their own: nothing else imports them."""
    faces = {face: [module for module in package if _face(module) == face] for face in FACES}
    house = [module for module in package if _face(module) is None]
    lines = _lines(house)
    return {
        "files": len(house),
        "lines": lines,
        **{f"lines of the {face}": _lines(each) for face, each in faces.items()},
        "import lines in percent": round(100 * sum(map(_import_lines, house)) / lines, 1),
        "class names defined twice": len(repeated_classes(package)),
        "modules in a circle": len(circle(package)),
        "modules with one importer": len(single_importers(package)),
        "lines of SQL in strings": sum(map(_lines_of_sql, package)),
        "except BaseException": sum(map(_broad_excepts, package)),
    }


def _face(module: Module) -> str | None:
    found = (face for face in FACES if f".{face}." in f"{module.name}.")
    return max(found, key=len, default=None)


def _lines(package: list[Module]) -> int:
    return sum(len(module.text.splitlines()) for module in package)


def _import_lines(module: Module) -> int:
    return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in module.imports)


def _lines_of_sql(module: Module) -> int:
    texts = (node.value for node in module.nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return sum(text.count("\n") + 1 for text in texts if STATEMENT.match(text))


def _broad_excepts(module: Module) -> int:
    caught = (node.type for node in module.nodes if isinstance(node, ast.ExceptHandler))
    return sum(isinstance(kind, ast.Name) and kind.id == "BaseException" for kind in caught)


def repeated_classes(package: list[Module]) -> list[str]:
    """Return the names that more than one class has."""
    names = Counter(node.name for module in package for node in module.tree.body if isinstance(node, ast.ClassDef))
    return sorted(name for name, count in names.items() if count > 1)


def _graph(package: list[Module]) -> dict[str, set[str]]:
    names = {module.name for module in package}
    found = {module.name: module.imported(names) for module in package}
    return {name: {each for each in into if not name.startswith(f"{each}.")} for name, into in found.items()}


def circle(package: list[Module]) -> list[str]:
    """Return the modules of one circle of imports, if there is any."""
    try:
        TopologicalSorter(_graph(package)).prepare()
    except CycleError as found:
        return list(found.args[1])
    return []


def single_importers(package: list[Module]) -> list[str]:
    """Return the modules of the slices that one other module uses: each might be a part of that one."""
    users = Counter(name for into in _graph(package).values() for name in into)
    of_slices = (module for module in package if module.name.split(".")[1:2] and module.name.split(".")[1] in SLICES)
    return [module.name for module in of_slices if users[module.name] == 1 and module.path.name != "__init__.py"]


if __name__ == "__main__":
    for measure, value in measured(modules()).items():
        sys.stdout.write(f"{measure:30} {value:>10,}\n")
    sys.stdout.write(f"in {PACKAGE.relative_to(ROOT)}/\n")
