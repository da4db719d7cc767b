"""The Python of the pages is as `mypy --strict` wants it, but for the annotations of small functions."""

import re
from pathlib import Path

import pytest
from mypy import api

from tests.docs.snippets import blocks
from tests.docs.test_snippets import PAGES, name

UNTYPED = ("no-untyped-def", "no-untyped-call", "untyped-decorator", "type-arg")
"""Of functions that a page writes without annotations, as its readers do."""
FUTURE = re.compile(r"^from __future__ .*$", re.MULTILINE)


def modules(page: Path) -> dict[str, str]:
    """Return the blocks that are files by name, and all others as one module."""
    found = [block for block in blocks(page) if block.info.startswith("python")]
    own = re.sub(r"\W", "_", name(page))
    rest = "\n".join(FUTURE.sub("", block.body) for block in found if not block.file)
    made = {f"{own}__{block.file}": block.body for block in found if block.file} | {f"{own}.py": rest}
    for file in filter(None, [block.file for block in found]):
        here, there = f"from {Path(file).stem} import", f"from {own}__{Path(file).stem} import"
        made = {name: text.replace(here, there) for name, text in made.items()}
    return made


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_python_of_the_pages_is_typed(tmp_path: Path) -> None:
    paths = []
    for page in PAGES:
        for file, text in modules(page).items():
            paths.append(tmp_path / file)
            paths[-1].write_text(text, "utf-8")
    flags = ["--strict", "--allow-redefinition", "--scripts-are-modules", "--no-warn-unused-ignores"]
    flags += [f"--disable-error-code={code}" for code in UNTYPED]
    told, failure, _ = api.run([*flags, *map(str, paths)])
    assert (failure, [line for line in told.splitlines() if ": error:" in line]) == ("", [])
