"""
The outline of the site: the headings and links of docs/index.md, which stays a page of plain Markdown.

It gives Sphinx the tables of contents. For programs that read Markdown it writes `llms.txt`, and each page as Markdown.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

GENERATED = {"Reference": [("Python signatures", "site/python", ""), ("Testing and participants", "site/testing", "")]}
"""Pages that only Sphinx can show, under the heading to which they belong."""
HEADING = re.compile(r"^(##|###) (.+)$", re.M)
ENTRY = re.compile(r"^- \[(.+?)\]\((.+?)\.md\)(?:: (.+))?", re.M)
ROOTED = re.compile(r"\]\(\.\./(README|SECURITY)\.md")
INCLUDED = re.compile(r"^```\{include\} (.+)$", re.M)
LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
PROSE = re.compile(r"\n\n([^#|<!\s-].*?)(?=\n\n|\Z)", re.S)
FENCED = re.compile(r"^ *```.*?^ *```", re.M | re.S)


def rooted(index: str) -> str:
    """Let links to pages of the root folder lead to their place on the site."""
    return ROOTED.sub(lambda found: f"](site/{found[1].lower()}.md", index)


def sections(index: str) -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """Yield each caption, with the title and the name of its pages, and what the index says of them."""
    _, *parts = HEADING.split(rooted(index))
    above = ""
    for level, heading, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        above, caption = (heading, heading) if level == "##" else (above, f"{above}: {heading}")
        if pages := ENTRY.findall(body):
            yield caption, pages


def contents(index: str) -> Iterator[str]:
    """Yield a table of contents for each section."""
    for caption, pages in sections(index):
        lines = [f"{title} <{page}>" for title, page, _ in [*pages, *GENERATED.get(caption, ())]]
        yield "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *lines, "```", ""])


def markdown(page: Path) -> str | None:
    """Return the Markdown of a page, None if only Sphinx can show it."""
    text = page.read_text("utf-8")
    if found := INCLUDED.search(text):
        return (page.parent / found[1]).read_text("utf-8").replace("](docs/", "](../")
    return None if "```{eval-rst}" in text else rooted(text)


def about(text: str) -> str:
    """Return the first sentence of a page."""
    found = PROSE.search(FENCED.sub("", text))
    flat = " ".join(LINK.sub(r"\1", found[1] if found else "").replace("*", "").split())
    return re.split(r"(?<=[.!?]) ", flat)[0]


def listing(docs: Path) -> str:
    """Write llms.txt: each page of the index with one line."""
    index = (docs / "index.md").read_text("utf-8")
    lines = ["# txsaga", "", f"> {about(index)}", ""]
    for caption, pages in sections(index):
        lines += [f"## {caption}", ""]
        for title, page, said in pages:
            lines += [f"- [{title}]({page}.md): {said or about(markdown(docs / f'{page}.md') or '')}"]
        lines += [""]
    return "\n".join(lines)


def put_contents(app: Sphinx, page: str, source: list[str]) -> None:
    """Add the tables of contents to the index as Sphinx reads it."""
    if page == app.config.root_doc:
        source[0] = "\n".join([rooted(source[0]), *contents(source[0])])


def name_markdown(app: Sphinx, page: str, template: str, context: dict[str, Any], document: object) -> None:
    """Name the Markdown of a page in the head of its HTML."""
    if document is not None and markdown(Path(app.srcdir, f"{page}.md")) is not None:
        link = f'<link rel="alternate" type="text/markdown" href="{Path(page).name}.md">'
        context["metatags"] = f"{context.get('metatags', '')}\n{link}"


def write_markdown(app: Sphinx, failure: Exception | None) -> None:
    """Write llms.txt, each page next to its HTML, and the files that pages link."""
    if failure or app.builder.format != "html":
        return
    docs, site = Path(app.srcdir), Path(app.outdir)
    (site / "llms.txt").write_text(listing(docs), "utf-8")
    for path in filter(Path.is_file, docs.rglob("*")):
        place = site / path.relative_to(docs)
        if path.suffix == ".md" and (text := markdown(path)) is not None:
            place.write_text(text, "utf-8")
        elif path.suffix in (".png", ".yaml", ".yml"):
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)


def setup(app: Sphinx) -> dict[str, bool]:
    """Join Sphinx."""
    app.connect("source-read", put_contents)
    app.connect("html-page-context", name_markdown)
    app.connect("build-finished", write_markdown)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
