"""Every Python block and every `$ txsaga` line of README.md and docs/ runs, in order, page by page.

The blocks of one page share a namespace of Python and one of the database, both fresh for the page.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docs.snippets import Block, Command, blocks, commands

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN = ("python", "console")


def name(page: Path) -> str:
    """Return a page as the table of contents names it."""
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_blocks_of_a_page_run(
    page: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shown = [block for block in blocks(page) if block.info in RUN]
    if shown:
        monkeypatch.setenv("TXSAGA_URL", request.getfixturevalue("home_url"))
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "snippet"}
    for block in shown:
        run(block, names)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_python_block_is_kept_from_running(page: Path) -> None:
    kept = [f"line {block.line}: {block.info}" for block in blocks(page) if is_kept_from_running(block)]
    assert not kept


def run(block: Block, names: dict[str, Any]) -> None:
    """Run one block; a failure names the page and the line."""
    if block.info == "python":
        padded = "\n" * (block.line - 1) + block.body
        exec(compile(padded, str(block.page), "exec"), names)
    else:
        for command in commands(block):
            call(command)


def call(command: Command) -> None:
    """Call the command line as a user would."""
    done = subprocess.run(
        [sys.executable, "-m", "txsaga.cli", *command.words], capture_output=True, text=True, timeout=60
    )
    said = f"$ txsaga {' '.join(command.words)}\n{done.stdout}{done.stderr}"
    assert done.returncode == command.status, said


def is_kept_from_running(block: Block) -> bool:
    """Say whether a block looks like Python and has a language line that this runner would pass over."""
    words = block.info.lower().replace("{", " ").replace("}", " ").split()
    return (
        bool(words)
        and words[0] in ("python", "py", "python3", "pycon", "code-block")
        and block.info not in RUN
    )
