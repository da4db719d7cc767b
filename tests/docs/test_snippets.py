"""
Every Python block and every `$ txsaga` line of README.md and docs/ runs, in order, page by page.

The blocks of one page share a namespace of Python, one of the database, a working folder and an environment,
all fresh for the page. A block that begins with `# name.py` is saved under that name and must be called by
a `$ python name.py` line of the page.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from tests.docs.snippets import Block, Command, assignment, blocks, commands
from tests.scene.warm import WarmPython
from tests.services.embedded import temporary_home

ROOT = Path(__file__).parents[2]
SITE = ROOT / "docs" / "site"
"""What only Sphinx reads."""
PAGES = [ROOT / "README.md", *sorted(page for page in (ROOT / "docs").rglob("*.md") if page.parent != SITE)]
RUN = ("python", "console")
OWN_PROGRAMS = {"txsaga": ("-m", "txsaga.cli"), "python": ()}


def name(page: Path) -> str:
    """Return a page as the table of contents names it."""
    return str(page.relative_to(ROOT))


@pytest.fixture
def environment() -> Iterator[None]:
    """Undo what a page exports, and stop the embedded database if the page started one."""
    before = dict(os.environ)
    with temporary_home() as folder:
        os.environ["TXSAGA_PG_HOME"] = str(folder / "pg")
        yield
    os.environ.clear()
    os.environ.update(before)


@pytest.mark.slow
@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_blocks_of_a_page_run(
    page: Path, python: WarmPython, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shown = [block for block in blocks(page) if block.info in RUN]
    if shown:
        os.environ["TXSAGA_URL"] = request.getfixturevalue("home_url")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "snippet"}
    try:
        for block in shown:
            run(block, names, python)
    finally:
        close_pools(names)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_python_block_is_kept_from_running(page: Path) -> None:
    kept = [f"line {block.line}: {block.info}" for block in blocks(page) if is_kept_from_running(block)]
    assert not kept


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_checker_is_a_lambda_that_never_knows(page: Path) -> None:
    assert re.findall(r"checker=lambda .*UNKNOWN", page.read_text("utf-8")) == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_saved_file_is_called(page: Path) -> None:
    assert not not_called(list(blocks(page)))


def run(block: Block, names: dict[str, Any], python: WarmPython) -> None:
    """Run one block; a failure names the page and the line."""
    if block.file is not None:
        Path(block.file).write_text(block.body, "utf-8")
    elif block.info == "python":
        padded = "\n" * (block.line - 1) + block.body
        shell = dict(os.environ)
        exec(compile(padded, str(block.page), "exec"), names)
        assert dict(os.environ) == shell, "a shell does not see what Python sets in its environment"
    else:
        for command in commands(block):
            call(command, python)


def close_pools(names: dict[str, Any]) -> None:
    """Close what a page leaves to the end of its process."""
    for each in names.values():
        if isinstance(each, Engine):
            each.dispose()


def call(command: Command, python: WarmPython) -> None:
    """Run a line as a user would."""
    if command.program in ("export", "unset"):
        change_environment(command)
        return
    words = [*OWN_PROGRAMS[command.program], *command.words]
    code, output = python.run(words, env={**os.environ, **command.settings}, folder=Path.cwd())
    status = code if code >= 0 else 128 - code  # as a shell tells a signal
    said = f"$ {command.program} {' '.join(command.words)}\n{output}"
    assert status == command.status, said
    if command.captured is not None:
        os.environ[command.captured] = output.splitlines()[-1]  # warnings come first


def change_environment(command: Command) -> None:
    """Export or unset variables for the rest of the page."""
    if command.program == "export":
        os.environ.update(map(assignment, command.words))
    for name in command.words if command.program == "unset" else ():
        os.environ.pop(name, None)


def not_called(page: list[Block]) -> set[str]:
    """Return the files that a page shows and never calls."""
    called = {
        command.words[0]
        for block in page
        if block.info == "console"
        for command in commands(block)
        if command.program == "python" and command.words
    }
    return {block.file for block in page if block.file is not None} - called


def is_kept_from_running(block: Block) -> bool:
    """Say whether a block looks like Python and has a language line that this runner would pass over."""
    words = block.info.lower().replace("{", " ").replace("}", " ").split()
    return bool(words) and words[0] in ("python", "py", "python3", "pycon", "code-block") and block.info not in RUN
