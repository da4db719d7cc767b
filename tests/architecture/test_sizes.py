"""Small enough to read in one sitting. What is long is reported; what is too long fails."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.sources import from_root, python_files

LONGEST_FILE = 800
LONG_FUNCTION = 50
LONGEST_FUNCTION = 60


def test_no_file_is_too_long() -> None:
    lengths = {from_root(path): len(path.read_text("utf-8").splitlines()) for path in python_files()}
    assert not {path: lines for path, lines in lengths.items() if lines > LONGEST_FILE}


def test_no_function_is_too_long(capsys: pytest.CaptureFixture[str]) -> None:
    lengths = {f"{from_root(path)}: {name}": lines for path in python_files() for name, lines in function_lengths(path)}
    long = {name: lines for name, lines in lengths.items() if lines > LONG_FUNCTION}
    with capsys.disabled():
        for name, lines in long.items():
            print(f"\nlook twice: {name} has {lines} lines")
    assert not {name: lines for name, lines in long.items() if lines > LONGEST_FUNCTION}


def test_a_function_is_measured_from_its_first_line_to_its_last(tmp_path: Path) -> None:
    source = tmp_path / "sample.py"
    source.write_text(
        "def short() -> None:\n    pass\n\n\nclass A:\n    def long(self) -> None:\n" + "        x = 1\n" * 60
    )
    assert [lines for _, lines in function_lengths(source)] == [2, 61]


def function_lengths(path: Path) -> Iterator[tuple[str, int]]:
    """Yield each function of a file with its number of lines, docstring included."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield f"{node.name} (line {node.lineno})", node.end_lineno - node.lineno + 1
