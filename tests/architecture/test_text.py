"""The project speaks of itself alone: no place of one machine, no address of a package index, in any file."""

import re

import pytest

from tests.architecture.sources import from_root, project_files

# Each pattern is written so that it does not match its own source.
FOREIGN = {
    "a path of one machine": r"/[w]ork/\w|/[h]ome/\w+/|/[U]sers/\w+/|/[r]oot/[\w.]|/[o]pt/\w|[A-Z]:\\[U]sers",
    "the address of a registry": r"[p]ypi\.org|[p]ythonhosted\.org|[n]pmjs\.(org|com)|[a]naconda\.(org|com)"
    r"|[m]aven\.org|[m]aven\.apache\.org/maven2|[p]roxy\.golang\.org|[d]ocker\.io|[g]hcr\.io|[q]uay\.io|[g]cr\.io",
    "an option that names an index": r"--(extra-)?[i]ndex-url|--[d]efault-index|--[f]ind-links"
    r"|--[t]rusted-host|^\s*(extra-)?[i]ndex-url\s*=",
}


def foreign_text(text: str) -> list[str]:
    """Return what a text says about the machine or the index it came from."""
    return [
        f"{what}: {found.group()}"
        for what, pattern in FOREIGN.items()
        for found in re.finditer(pattern, text, re.MULTILINE)
    ]


def test_no_file_names_a_machine_or_an_index() -> None:
    found = {
        from_root(path): foreign
        for path in project_files()
        if (foreign := foreign_text(path.read_text("utf-8", errors="replace")))
    }
    assert not found


@pytest.mark.parametrize(
    "text",
    [
        "cd /" + "work/main",
        "home = '/" + "home/anna/x'",
        "source /" + "root/.profile",
        "https://" + "pypi" + ".org/simple",
        "pip install --" + "index-url x",
        "index" + "-url = x",
    ],
)
def test_foreign_text_is_found(text: str) -> None:
    assert len(foreign_text(text)) == 1


def test_ordinary_text_is_left_alone() -> None:
    assert not foreign_text("uv pip compile --no-emit-index-url; a home below /root cannot be entered; /var/lib/txsaga")
