"""
The pages are written in plain English: common words, short sentences, headings in sentence case.

What the product itself says avoids the same words.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.docs.test_snippets import PAGES, name
from tests.docs.texts import texts

LONGEST = 32
"""Words in a sentence."""
AVOIDED: Mapping[str, str] = {
    r"who(so)?ever|whomever": "name who it is: the caller, a process, an engine",
    r"nobody|no one": "no process, no reader, no consumer …",
    r"anybody|everybody": "any process, every reader …",
    r"stands( already)?|stood": "is final, is already COMMIT",
    r"told|tell(s|ing)?|heard|hears?": "notify, inform, report, show; commit the prepared branch",
    r"anew": "again",
    r"behind|beside": "after, alongside, as well as, next to",
    r"over our head": "manually, outside of txsaga",
    r"a word|without a word|its word|own word": "an option, by default, silently",
    r"is away|are away|was away|were away|is there again": "is unavailable, is reachable again",
    r"mend(s|ed|ing)?": "fix",
    r"works? off|worked off|working off": "process one by one",
    r"begins? anew|at the same moment of": "restart",
    r"lies|lie|lay": "is stored, is in",
    r"gives? out|given out": "assign, publish",
    r"so (is|are|does|do(?! not)|was|has|have)": "subject first: 'X does too'",
    r"in its hands|in hands|in the hands": "in flight",
    r"is asked for by|asks? nobody": "say who asks",
    r"save for|save that": "except for, except that",
    r"bears?": "tolerate, be a no-op",
    r"look of": "poll",
}
RIDDLE = re.compile(r"(What|Who|Whom|Whose)\b(?![^.!]*\?)")
"""A sentence that begins with a clause as its subject: 'What is not decided is parked.'"""
FENCED = re.compile(r"^ *```.*?^ *```", re.M | re.S)
GENERATED = re.compile(r"<!-- generated: .*?<!-- end -->", re.S)
CODE = re.compile(r"`[^`\n]+`")
TARGET = re.compile(r"\]\([^)\s]+\)")
HEADING = re.compile(r"^#+ +(.+)$", re.M)
PROPER = {
    "Airflow",
    "Spark",
    "PostgreSQL",
    "MariaDB",
    "MySQL",
    "SQLite",
    "Python",
    "Iceberg",
    "Parquet",
    "RocketMQ",
    "Temporal",
    "DBOS",
    "PgBouncer",
    "Kubernetes",
    "Kafka",
}
PROPER |= {
    "SQLAlchemy",
    "Great",
    "Expectations",
    "DAG",
    "DAGs",
    "SQL",
    "XA",
    "HTTP",
    "URL",
    "CLI",
    "API",
    "JSON",
    "UI",
    "NOTIFY",
    "DuckDB",
    "PyIceberg",
    "Trino",
    "Flink",
}
LEFT_OUT = {"changelog.md"}  # written as things changed
WRITTEN = [page for page in PAGES if page.name not in LEFT_OUT]


def prose(page: Path) -> str:
    """Return a page's text, with code as `x`."""
    text = GENERATED.sub("", FENCED.sub("", page.read_text("utf-8")))
    return TARGET.sub("]", CODE.sub("x", text))


def sentences(text: str) -> Iterator[str]:
    """Split prose at full stops, and at the edges of paragraphs, list items, headings and cells."""
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*|#]|\d+\.) ?)|(?<=\S) *\| ", text):
        flat = " ".join(paragraph.replace("*", "").replace("|", " ").split()).lstrip("-# ")
        yield from (each for each in re.split(r"(?<=[.!?:;])\s+", flat) if each)


def idioms(text: str) -> Iterator[str]:
    """Name the words and the turns that only we would use."""
    for sentence in sentences(text):
        for avoided, instead in AVOIDED.items():
            if found := re.search(rf"\b({avoided})\b", sentence, re.IGNORECASE):
                yield f"{found[0]!r} ({instead}): {sentence}"
        if RIDDLE.match(sentence):
            yield f"begins with a clause, put the subject first: {sentence}"


def faults(text: str) -> Iterator[str]:
    """Name what a fluent reader would stumble over."""
    yield from idioms(text)
    for sentence in sentences(text):
        if len(sentence.split()) > LONGEST:
            yield f"{len(sentence.split())} words, at most {LONGEST}: {sentence}"
    for heading in HEADING.findall(text):
        capitals = [word for word in re.findall(r"(?<= )[A-Z]\w*", heading) if word not in PROPER and word != "I"]
        if capitals:
            yield f"headings are in sentence case: {heading}"


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_a_page_is_in_plain_words(page: Path) -> None:
    assert list(faults(prose(page))) == []


def test_the_product_speaks_in_plain_words() -> None:
    assert [f"{place}: {fault}" for place, text in texts() for fault in idioms(text)] == []


@pytest.mark.parametrize(
    "text",
    [
        "Kind of its messages.",  # the help of an option
        "Create a topic. Creating the same topic again is not an error.",  # the help of a command
        "The argument of a checker",  # the docstring of a class
        "Return the broker of this process",  # … and of a method
        "Parts that can't be replayed.",  # … and of an attribute
        "is not registered (known: x); register it with",  # an error
        "When the time is over, another member gets the messages.",  # a page of the console
    ],
)
def test_each_kind_of_text_is_read(text: str) -> None:
    assert any(text in read for _, read in texts())


@pytest.mark.parametrize(
    "text",
    [
        "It is undone, whoever is killed.",
        "What has no decision is parked.",
        "Run the engine beside the broker.",
        "## Settle By Hand",
        " ".join(["word"] * (LONGEST + 1)) + ".",
    ],
)
def test_what_a_reader_stumbles_over_is_found(text: str) -> None:
    assert list(faults(text))


def test_plain_text_passes() -> None:
    assert list(faults("## What is the engine?\n\nThe engine runs. What does it do? It recovers.\n")) == []
