"""
The parts of the reference that are written from the code; `python -m tests.docs.generated` writes them anew.

Such a part stands between `<!-- generated: name -->` and `<!-- end -->`. What is outside of these lines is
never touched.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from tests.docs import licences
from txsaga.clusters.policies import PolicyName
from txsaga.core import facts
from txsaga.core.lifecycle import MESSAGE, TRANSACTION
from txsaga.core.topic import ALLOWED, SendKind, TopicType
from txsaga.flows.branch import BRANCH
from txsaga.flows.step import STEP
from txsaga.provider.planning import modes
from txsaga.provider.planning.refusals import Refusal

DOCS = Path(__file__).parents[2] / "docs"
PART = re.compile(r"(?P<begin><!-- generated: (?P<name>[\w-]+) -->\n)(?P<text>.*?)(?P<end><!-- end -->)", re.DOTALL)
POLICIES: Mapping[PolicyName, tuple[str, str]] = {
    PolicyName.ROUND_ROBIN: ("the next available broker in order", "the chosen broker"),
    PolicyName.STICKY: ("the first broker; if it fails, the next one for as long as that works", "the chosen broker"),
    PolicyName.RANDOM: ("any available broker, with equal probability", "the chosen broker"),
    PolicyName.WEIGHTED: ("available brokers in proportion to their weights", "the chosen broker"),
    PolicyName.BEST_EFFORT: ("all available brokers, or the first `most` of them", "one of them"),
    PolicyName.GUARANTEED: ("all available brokers, at least `needed` of them", "`needed` of them"),
}
"""What each policy sends to, and which brokers must accept."""
CALLS: Mapping[SendKind, str] = {
    SendKind.PLAIN: "`send`, `submit`, `send_many`",
    SendKind.HALF: "`prepare`, `transaction`, `send_in_transaction`",
    SendKind.JOIN: "`join`",
}


def transaction_diagram() -> str:
    """Draw the lifecycle of a transaction."""
    return f"```mermaid\n{TRANSACTION.mermaid()}\n```"


def branch_diagram() -> str:
    """Draw the lifecycle of a branch."""
    return f"```mermaid\n{BRANCH.mermaid()}\n```"


def step_diagram() -> str:
    """Draw the lifecycle of a step."""
    return f"```mermaid\n{STEP.mermaid()}\n```"


def message_diagram() -> str:
    """Draw the lifecycle of a message."""
    return f"```mermaid\n{MESSAGE.mermaid()}\n```"


def facts_table() -> str:
    """List the facts in pairs: before and after."""
    rows = [(f"`{a.__name__}`", f"`{b.__name__}`", a.__doc__ or "", b.__doc__ or "") for a, b in facts.AFTER.items()]
    return table(("before", "after", "what is about to happen", "what is true afterwards"), rows)


def topics_table() -> str:
    """Say which type takes which way of sending."""
    rows = [(f"`{type}`", *("yes" if type in ALLOWED[way] else "–" for way in SendKind)) for type in TopicType]
    return table(("type", *(f"{way.value}: {CALLS[way]}" for way in SendKind)), rows)


def inputs_table() -> str:
    """Say what the mode of an input means."""
    rows = (
        (*_cells(key), found.settles.value, "take part" if found.inherited else "stay outside")
        for key, found in modes.INPUTS.items()
    )
    heads = ("transaction", "coordinated", "persistent", "the input settles", "steps and outputs in automatic mode")
    return table(heads, rows)


def input_kinds_table() -> str:
    """Say which inputs a rollback puts back."""
    rows = (
        (f"`{kind}`", "by a rollback" if back else "never: it settles at its own end", "–" if back else "yes")
        for kind, back in modes.PUT_BACK.items()
    )
    return table(("input", "is put back", "`retries`"), rows)


def steps_table() -> str:
    """Say where the work of a step is settled."""
    rows = ((*_cells(key), found.value, modes.QUEUES[found].value) for key, found in modes.STEPS.items())
    heads = ("resource", "step", "statement is marked", "resource takes part", "settles", "on a queue or broker")
    return table(heads, rows)


def outputs_table() -> str:
    """Say when an output leaves."""
    rows = ((*_cells(key), found.value) for key, found in modes.OUTPUTS.items())
    return table(("transaction", "automatic takes part", "leaves"), rows)


def persistence_table() -> str:
    """Say whether what is sent is persistent."""
    rows = ((*_cells(key), _cell(found)) for key, found in modes.PERSISTENCE.items())
    return table(("persistence", "the input was persistent", "the topic is", "what is sent is persistent"), rows)


def refusals_table() -> str:
    """List what a flow may not ask for."""
    return table(("refused", "what to do instead"), ((each.asked, each.remedy) for each in Refusal))


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


def _cells(key: Iterable[object]) -> Iterable[str]:
    return map(_cell, key)


def _cell(value: object) -> str:
    if value is None:
        return "any"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"`{value}`"


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
    "flow-inputs": inputs_table,
    "flow-input-kinds": input_kinds_table,
    "flow-steps": steps_table,
    "flow-outputs": outputs_table,
    "flow-persistence": persistence_table,
    "flow-refusals": refusals_table,
    "cluster-policies": policies_table,
    "licences": licences_table,
    "licences-sharing": sharing_table,
}


def renewed(text: str) -> str:
    """Write the generated parts of a page anew."""
    return PART.sub(lambda found: f"{found['begin']}{PARTS[found['name']]()}\n{found['end']}", text)


def pages() -> list[Path]:
    """Return the pages that have generated parts."""
    return [page for page in sorted(DOCS.rglob("*.md")) if PART.search(page.read_text("utf-8"))]


if __name__ == "__main__":
    for page in pages():
        page.write_text(renewed(page.read_text("utf-8")), "utf-8")
