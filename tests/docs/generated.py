"""
The parts of the reference that are written from the code; `python -m tests.docs.generated` writes them anew.

What is outside of such parts is never touched, nor are the parts that a benchmark writes from what it measured.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.docs import command_line, licences
from tests.docs.parts import PART, filled
from txsaga.clusters.policies import PolicyName
from txsaga.core import facts
from txsaga.core.lifecycle import MESSAGE, TRANSACTION, Lifecycle
from txsaga.core.topic import ALLOWED, SendKind, TopicType
from txsaga.flows.branch import BRANCH
from txsaga.flows.step import STEP
from txsaga.provider.planning.refusals import Refusal

DOCS = Path(__file__).parents[2] / "docs"
POLICIES: Mapping[PolicyName, tuple[str, str]] = {
    PolicyName.ROUND_ROBIN: ("the next available broker in order", "the chosen broker"),
    PolicyName.STICKY: ("the first broker; if it fails, the next one for as long as that works", "the chosen broker"),
    PolicyName.RANDOM: ("any available broker, with equal probability", "the chosen broker"),
    PolicyName.WEIGHTED: ("available brokers in proportion to their weights", "the chosen broker"),
    PolicyName.BEST_EFFORT: ("all available brokers, or the first `most` of them", "one of them"),
    PolicyName.GUARANTEED: ("all available brokers, at least `needed` of them", "`needed` of them"),
}
"""What each policy sends to, and which brokers must accept."""
NOT_OF_A_DAG = {
    Refusal.NO_COORDINATOR,
    Refusal.COORDINATORS,
    Refusal.NO_LANE,
    Refusal.QUEUE_LANE,
    Refusal.NO_MIX,
    Refusal.HOLD_JOURNAL,
    Refusal.JOURNAL_BLIND,
    Refusal.CANNOT_WAIT,
    Refusal.RETRIES,
}
"""A DAG has one input, the home database as its coordinator, and databases as its resources."""
CALLS: Mapping[SendKind, str] = {
    SendKind.PLAIN: "`send`, `submit`, `send_many`",
    SendKind.HALF: "`prepare`, `transaction`",
    SendKind.JOIN: "`join`",
}


def _drawn(lifecycle: Lifecycle[Any, Any]) -> str:
    lines = [f"    {s.value} --> {t.value}: {e.value}" for (s, e), t in lifecycle.moves.items()]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


def transaction_diagram() -> str:
    """Draw the lifecycle of a transaction."""
    return _drawn(TRANSACTION)


def branch_diagram() -> str:
    """Draw the lifecycle of a branch."""
    return _drawn(BRANCH)


def step_diagram() -> str:
    """Draw the lifecycle of a step."""
    return _drawn(STEP)


def message_diagram() -> str:
    """Draw the lifecycle of a message."""
    return _drawn(MESSAGE)


def facts_table() -> str:
    """List the facts in pairs: before and after."""
    rows = [(f"`{a.__name__}`", f"`{b.__name__}`", a.__doc__ or "", b.__doc__ or "") for a, b in facts.AFTER.items()]
    return table(("before", "after", "what is about to happen", "what is true afterwards"), rows)


def topics_table() -> str:
    """Say which type takes which way of sending."""
    rows = [(f"`{type}`", *("yes" if type in ALLOWED[way] else "–" for way in SendKind)) for type in TopicType]
    return table(("type", *(f"{way.value}: {CALLS[way]}" for way in SendKind)), rows)


def refusals_table() -> str:
    """List what the flow of a DAG may not ask for."""
    rows = ((each.asked, each.remedy) for each in Refusal if each not in NOT_OF_A_DAG)
    return table(("refused", "what to do instead"), rows)


def policies_table() -> str:
    """List the policies of clusters."""
    rows = ((f"`{name}`", *about) for name, about in POLICIES.items())
    return table(("policy", "sends to", "must accept"), rows)


def licences_table() -> str:
    """List the licence of each package that txsaga names as needed."""
    named: dict[str, list[str]] = {}
    for extra, packages in licences.declared().items():
        for package in packages:
            named.setdefault(package.name, []).append(f"`{extra}`" if extra else "always")
    rows = ((f"`{package}`", licences.licence(package), ", ".join(extras)) for package, extras in sorted(named.items()))
    return table(("package", "licence", "comes with"), rows)


def sharing_table() -> str:
    """List the packages, of these and of those that they bring, under LGPL or MPL."""
    rows = ((f"`{package}`", said) for package, said in licences.demanding(licences.SHARING).items())
    return table(("package", "licence"), rows)


def table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Write a table."""
    lines = [heads, ("---",) * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


PARTS: Mapping[str, Callable[[], str]] = {
    "transaction": transaction_diagram,
    "branch": branch_diagram,
    "step": step_diagram,
    "message": message_diagram,
    "facts": facts_table,
    "topics": topics_table,
    "flow-refusals": refusals_table,
    "cluster-policies": policies_table,
    "commands": command_line.commands,
    "licences": licences_table,
    "licences-sharing": sharing_table,
}


def renewed(text: str) -> str:
    """Write the generated parts of a page anew."""
    return filled(text, {part["name"]: PARTS[part["name"]]() for part in PART.finditer(text) if part["name"] in PARTS})


def pages() -> list[Path]:
    """Return the pages that have generated parts."""
    return [page for page in sorted(DOCS.rglob("*.md")) if PART.search(page.read_text("utf-8"))]


if __name__ == "__main__":
    for page in pages():
        page.write_text(renewed(page.read_text("utf-8")), "utf-8")
