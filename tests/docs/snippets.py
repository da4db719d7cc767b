"""Finds the fenced blocks of a Markdown page. Runs nothing."""

import re
import shlex
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

FENCE = re.compile(
    r"^(?P<indent>[ ]*)(?P<ticks>`{3,})(?P<info>[^`\n]*)\n(?P<body>.*?)^[ ]*(?P=ticks)[ ]*$", re.M | re.S
)
EXPECTED_STATUS = re.compile(r"#\s*exits?\s+(\d+)\s*$")
FILE = re.compile(r"# (\w+\.py)\n")
ASSIGNMENT = re.compile(r"[A-Z_]+=")
CAPTURED = re.compile(r"export (?P<name>[A-Z_]+)=\$\(txsaga (?P<words>[^()$]+)\)")
PROGRAMS = ("txsaga", "python", "export", "unset")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block: its language line and its text."""

    page: Path
    line: int
    info: str
    body: str

    @property
    def file(self) -> str | None:
        """The name in a first line like `# transfer.py`: such a block is a file that the page calls."""
        found = FILE.match(self.body) if self.info == "python" else None
        return found[1] if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One line to run; `# exits 3` at its end shows an expected failure."""

    words: tuple[str, ...]
    status: int
    program: str = "txsaga"
    settings: Mapping[str, str] = field(default_factory=dict)
    """Variables written before the program."""
    captured: str | None = None
    """The variable that is exported with what the program prints, as in `export NAME=$(txsaga …)`."""


def blocks(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page, in order."""
    text = page.read_text("utf-8")
    for fence in FENCE.finditer(text):
        yield Block(
            page=page,
            line=text.count("\n", 0, fence.start("body")) + 1,
            info=fence["info"].strip(),
            body=textwrap.dedent(fence["body"]),
        )


def commands(block: Block) -> Iterator[Command]:
    """Yield the lines of a console block that call txsaga or a file of the page, and its `export` and `unset` lines."""
    for line in block.body.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            command = parsed(line.removeprefix("$ "))
            if command is not None:
                yield command


def parsed(line: str) -> Command | None:
    """Read one command; None for programs that are not ours to run."""
    if printed := CAPTURED.fullmatch(line):
        return Command(words=tuple(shlex.split(printed["words"])), status=0, captured=printed["name"])
    expected = EXPECTED_STATUS.search(line)
    words = shlex.split(line, comments=True)
    settings: dict[str, str] = {}
    while words and ASSIGNMENT.match(words[0]):
        settings.update([assignment(words.pop(0))])
    if not words or words[0] not in PROGRAMS:
        return None
    return Command(
        words=tuple(words[1:]),
        status=int(expected[1]) if expected else 0,
        program=words[0],
        settings=settings,
    )


def assignment(word: str) -> tuple[str, str]:
    """Split `NAME=value`."""
    name, _, value = word.partition("=")
    return name, value
