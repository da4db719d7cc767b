"""The site of the documentation has every page, needs no network, and is there for programs as Markdown."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from docs.site import outline
from tests.airflow_host.browser import NAMES
from tests.docs.test_links import leads_somewhere, links
from tests.docs.test_snippets import PAGES, ROOT, SITE
from tests.services.absent import ci_or_skip

INDEX = (ROOT / "docs" / "index.md").read_text("utf-8")
LOADED = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=["']([^"']+)""")


def sphinx(docs: Path, configuration: Path, site: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Build a site as `make docs` does."""
    if any(find_spec(name) is None for name in ("furo", "myst_parser", "sphinx")):
        ci_or_skip("Sphinx", "make venv")
    words = ["--fail-on-warning", "--quiet", "-d", str(site.parent / "doctrees"), "-c", str(configuration), *options]
    command = [sys.executable, "-m", "sphinx", *words, str(docs), str(site)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site once, without drawing its diagrams."""
    folder = tmp_path_factory.mktemp("site") / "site"
    built = sphinx(ROOT / "docs", SITE, folder)
    assert built.returncode == 0, built.stderr
    return folder


def place(page: Path) -> Path:
    """Return where a page is on the site."""
    return Path("site", page.name.lower()) if page.parent == ROOT else page.relative_to(ROOT / "docs")


ON_SITE = [place(page) for page in [*PAGES, ROOT / "SECURITY.md"]]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_page_is_on_the_site_and_also_there_as_markdown(site: Path) -> None:
    missing = {page for page in ON_SITE for name in (page, page.with_suffix(".html")) if not (site / name).is_file()}
    assert missing == set()
    astray = [
        f"{page}: {target}"
        for page in ON_SITE
        for target in links(site / page)
        if not leads_somewhere(site / page, target)
    ]
    assert astray == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_reader_of_the_site_needs_no_network(site: Path) -> None:
    loaded = {target for page in site.rglob("*.html") for target in LOADED.findall(page.read_text("utf-8"))}
    assert loaded
    assert [target for target in loaded if "//" in target] == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_site_shows_the_signatures_of_public_names(site: Path) -> None:
    import txsaga

    shown = set(re.findall(r'id="txsaga\.(\w+)"', (site / "site" / "python.html").read_text("utf-8")))
    assert set(txsaga.__all__) - shown == {"COMMIT", "ROLLBACK", "UNKNOWN"}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_list_for_programs_has_each_page_once(site: Path) -> None:
    listed = re.findall(r"^- \[.+\]\((.+)\): \S", (site / "llms.txt").read_text("utf-8"), re.M)
    assert sorted(listed) == sorted(str(page) for page in ON_SITE if page.name != "index.md")


def page_with_a_diagram(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Build a site of one page, with a script in place of the npm package."""
    if not any(map(shutil.which, NAMES)) or find_spec("playwright") is None:
        ci_or_skip("Chromium", "make venv; apt-get install -y --no-install-recommends chromium")
    (folder / "docs").mkdir()
    (folder / "docs" / "index.md").write_text(f"# Page\n\n```mermaid\n{text}\n```\n", "utf-8")
    script = folder / "mermaid.js"
    script.write_text(
        "let drawn; window.mermaid = {initialize: (settings) => drawn = settings.theme, render: async (id, text) => {"
        " if (text.includes('wrong')) throw Error('no such shape');"
        " return {svg: `<svg id='${id}'>${drawn} ${text}</svg>`}}}",
        "utf-8",
    )
    return sphinx(folder / "docs", SITE, folder / "site", "-D", f"mermaid={script}")


@pytest.mark.slow
def test_a_diagram_is_drawn_while_the_site_is_built(tmp_path: Path) -> None:
    built = page_with_a_diagram(tmp_path, "flowchart LR\n    a --> b")
    assert built.returncode == 0, built.stderr
    page = (tmp_path / "site" / "index.html").read_text("utf-8")
    assert re.findall(r"<div class=\"(\S+)\"><svg id='\S+'>(\w+) flowchart LR", page) == [
        ("only-light", "default"),
        ("only-dark", "dark"),
    ]


@pytest.mark.slow
def test_a_diagram_that_cannot_be_drawn_is_named_with_its_page(tmp_path: Path) -> None:
    built = page_with_a_diagram(tmp_path, "wrong")
    assert built.returncode != 0
    assert re.search(r"index\.md:3: .*cannot be drawn: no such shape", built.stderr)


@pytest.mark.slow
def test_a_warning_of_sphinx_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Page\n\n[nowhere](nowhere.md)\n", "utf-8")
    built = sphinx(tmp_path / "docs", SITE, tmp_path / "site")
    assert built.returncode != 0
    assert "nowhere.md" in built.stderr


def test_the_headings_of_the_index_are_the_outline() -> None:
    text = "# T\n\n## A\n\n- [One](one.md): first.\n- [Two](../README.md)\n\n## B\n\n### C\n\n- [Three](x/y.md)\n"
    assert list(outline.sections(text)) == [
        ("A", [("One", "one", "first."), ("Two", "site/readme", "")]),
        ("B: C", [("Three", "x/y", "")]),
    ]
    assert [caption for caption, _ in outline.sections(INDEX)][:3] == [
        "Start",
        "Guides: Messages",
        "Guides: Databases, services and files",
    ]


def test_the_pages_that_sphinx_makes_follow_their_heading() -> None:
    assert [
        each
        for each in outline.contents(INDEX)
        if "Python signatures <site/python>" in each and ":caption: Reference" in each
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("# T\n\n**One** [two](x.md): three. Four.\n\nFive.\n", "One two: three."),
        ("# T\n\n## H\n\n```sh\n$ a\n\nb\n```\n\n| x |\n\n- item\n\nSix\nseven\n", "Six seven"),
    ],
)
def test_a_page_is_described_by_its_first_sentence(text: str, sentence: str) -> None:
    assert outline.about(text) == sentence
