"""
A report of the votes on one transaction: one page of HTML that needs nothing from anywhere.

It is made of what is stored with the decision, so it can be made again as long as that is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from txsaga.model.ballot import Cast, Polled

if TYPE_CHECKING:
    from txsaga.engine.broker import Broker

STYLE = """body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:62rem;padding:0 1rem;color:#1b1f24}
table{border-collapse:collapse;width:100%;margin:.5rem 0 1.5rem}td,th{border:1px solid #d0d7de;padding:.3rem .6rem;
text-align:left;vertical-align:top}th{background:#f6f8fa}.yes{color:#116329}.no{color:#a40e26}code{font-size:.9em}"""


def report(broker: Broker, txid: int) -> str:
    """Return the votes on a transaction as a page."""
    return page(broker.identity.transaction(txid), broker.ballots(txid))


def page(title: str, polls: Sequence[Polled]) -> str:
    """Write the page."""
    body = "".join(map(_ballot, polls)) or "<p>Nobody voted on it.</p>"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Votes on {escape(title)}</title>'
        f"<style>{STYLE}</style></head><body><h1>Votes on transaction {escape(title)}</h1>{body}</body></html>"
    )


def _ballot(poll: Polled) -> str:
    said, result = poll.ballot, poll.result.name.lower()
    rule = f"{said.rule} {said.needed}" if said.needed is not None else str(said.rule)
    votes = "".join(map(_vote, poll.casts)) or "<p>No vote yet.</p>"
    head = (
        f"<h2>{escape(said.name)}: {result}</h2><p>Rule: {escape(rule)}; voters: {escape(', '.join(said.voters))}</p>"
    )
    return head + votes


def _vote(cast: Cast) -> str:
    word = "yes" if cast.yes else "no"
    facts = [f"{cast.evidence[key]} {what}" for key, what in FACTS if cast.evidence.get(key) is not None]
    when = "" if cast.at is None else f", {cast.at.isoformat(timespec='seconds')}"
    why = cast.evidence.get("why") or cast.evidence.get("reason")
    lines = [f'<h3><span class="{word}">{word}</span> of {escape(cast.voter)}{when}</h3>']
    lines += [f"<p>{escape(', '.join(facts))}</p>"] if facts else []
    lines += [f'<p class="{word}">{escape(str(why))}</p>'] if why else []
    results = cast.evidence.get("results")
    return "".join(lines) + (_results(results) if isinstance(results, Sequence) else "")


FACTS = (("rows", "rows"), ("engine", "read them"), ("seconds", "seconds"))


def _results(results: Sequence[Mapping[str, Any]]) -> str:
    head = "<tr><th>expectation</th><th>of</th><th>holds</th><th>found</th></tr>"
    return f"<table>{head}{''.join(map(_row, results))}</table>"


def _row(each: Mapping[str, Any]) -> str:
    word = "yes" if each["success"] else "no" if each.get("severity", "critical") == "critical" else each["severity"]
    kwargs = ", ".join(f"{key}={value!r}" for key, value in each["kwargs"].items())
    cells = (f"<code>{escape(each['type'])}</code>", f"<code>{escape(kwargs)}</code>")
    found = escape(str(each.get("why", "")))
    mark = "yes" if each["success"] else "no"
    return f'<tr><td>{cells[0]}</td><td>{cells[1]}</td><td class="{mark}">{word}</td><td>{found}</td></tr>'
