"""Finds the fenced blocks of a Markdown page. Runs nothing."""

import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(
    r"^(?P<indent>[ ]*)(?P<ticks>`{3,})(?P<info>[^`\n]*)\n(?P<body>.*?)^[ ]*(?P=ticks)[ ]*$", re.M | re.S
)
EXPECTED_STATUS = re.compile(r"#\s*exits?\s+(\d+)\s*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block: its language line and its text."""

    page: Path
    line: int
    info: str
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One `$ txsaga …` line; `# exits 3` at its end shows an expected failure."""

    words: tuple[str, ...]
    status: int


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
    """Yield the lines of a console block that call txsaga; other programs are not ours to run."""
    for line in block.body.replace("\\\n", " ").splitlines():
        if line.startswith("$ txsaga "):
            expected = EXPECTED_STATUS.search(line)
            words = shlex.split(line.removeprefix("$ txsaga "), comments=True)
            yield Command(words=tuple(words), status=int(expected[1]) if expected else 0)
