"""
Gates that a transaction accepts: one suite, all of several, or a quorum.

    expect("ledger_suite")                              a no prevents the commit
    expect("ledger_suite", warn=True)                   a no is only reported and stored
    expect("ledger_suite", drift=0.2)                   the row count must also stay within 20 % of the previous one
    expect([{"type": "expect_…", "kwargs": {…}}])       expectations without a file
    quorum(2, expect("a"), expect("b"), expect("c"))    two of three

A gate that cannot reach a verdict votes no, with the reason as evidence. A suite is a JSON file in the format of Great
Expectations, or a list. It is read here, so that a wrong name is found before hours of work; only the gate process
knows what an expectation means.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txsaga.config import SUITES
from txsaga.core.arguments import check_kind
from txsaga.errors import ConfigError, UnknownSuite
from txsaga.flows.ballot import Ballot, CastVote, Polled, Rule
from txsaga.gate import process
from txsaga.lake.gates import Subject

if TYPE_CHECKING:
    from txsaga.broker import Broker


FOLDER = "gx/expectations"
"""Where a Great Expectations project keeps its suites."""
SHAPE = '[{"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "id"}}, …]'

Expectation = Mapping[str, Any]


def folder(env: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the suites."""
    return Path(SUITES.of(env) or FOLDER)


def found(suite: str) -> list[Expectation]:
    """Read a suite by its name or the path of its file."""
    path = Path(suite) if suite.endswith(".json") else folder() / f"{suite}.json"
    try:
        said = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        known = sorted(each.stem for each in path.parent.glob("*.json"))
        raise UnknownSuite(suite, str(path.parent), known) from None
    except ValueError as error:
        raise ConfigError(f"suite {path} is not JSON: {error}; export it again") from error
    return checked(said.get("expectations") if isinstance(said, Mapping) else said, f"suite {path}")


def checked(said: object, what: str) -> list[Expectation]:
    """Check the shape of a list of expectations, before anything is staged."""
    if not isinstance(said, Sequence) or isinstance(said, str) or not said:
        raise ConfigError(f"{what} has no expectations; write {SHAPE}")
    if not all(isinstance(each, Mapping) and isinstance(each.get("type"), str) for each in said):
        raise ConfigError(f"{what} has an expectation without a type; write {SHAPE}")
    return list(said)


INLINE = "expectations"
"""The name of a suite that is given as a list."""


class Engine(StrEnum):
    """What reads the rows in the gate process."""

    AUTO = "auto"  # Spark for what does not fit into memory
    PANDAS = "pandas"
    SPARK = "spark"


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteGate:
    """One suite and how its verdict counts."""

    suite: str
    expectations: tuple[Expectation, ...] | None = None
    """None: read by the name of the suite."""
    warn: bool = False
    drift: float | None = None
    """How far the number of rows may differ from that of the published rows they replace, as a fraction of it."""
    allow_empty: bool = False
    timeout: timedelta = timedelta(minutes=30)
    engine: Engine = Engine.AUTO

    def warm(self) -> None:
        """Read the suite and start a process."""
        self._read()
        process.warm()

    def ballot(self, name: str) -> Ballot:
        """Return the ballot, in which this suite is the only voter."""
        return Ballot(name=name, voters=(self.suite,), rule=Rule.WARN if self.warn else Rule.ALL)

    def judge(self, subject: Subject) -> Sequence[CastVote]:
        """Vote."""
        evidence: dict[str, Any] = {"suite": self.suite, "about": subject.about}
        if subject.count == 0:
            evidence["rows"] = 0
            return [self._cast(self._empty(), evidence)]
        request = {"expectations": self._read(), "engine": self.engine.value, "about": subject.about}
        evidence |= process.ask(request, subject, self.timeout)
        if not evidence["rows"] and "error" not in evidence:
            return [self._cast(self._empty(), evidence)]
        return [self._cast(evidence.pop("why", "") or self._drifted(evidence["rows"], subject.published), evidence)]

    def _cast(self, why: str, evidence: Mapping[str, Any]) -> CastVote:
        told = {**evidence, "why": why} if why else dict(evidence)
        return CastVote(voter=self.suite, yes=not why, evidence=told)

    def _empty(self) -> str:
        return "" if self.allow_empty else "there are no rows to check; pass allow_empty=True if that is allowed"

    def _drifted(self, rows: int, published: int | None) -> str:
        if self.drift is None or published is None or abs(rows - published) <= self.drift * published:
            return ""
        return f"{rows:,} rows in the place of {published:,}: more than {self.drift:.0%} apart"

    def _read(self) -> list[Expectation]:
        return list(self.expectations) if self.expectations is not None else found(self.suite)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """Several suites that vote in one ballot."""

    members: tuple[SuiteGate, ...]
    rule: Rule
    needed: int | None = None

    def warm(self) -> None:
        """Read all suites and start a process."""
        for each in self.members:
            each.warm()

    def ballot(self, name: str) -> Ballot:
        """Return the ballot of all suites."""
        return Ballot(name=name, voters=tuple(each.suite for each in self.members), rule=self.rule, needed=self.needed)

    def judge(self, subject: Subject) -> Sequence[CastVote]:
        """Vote with each suite, one after the other."""
        return [cast for each in self.members for cast in each.judge(subject)]


def expect(
    suite: str | Sequence[Expectation],
    *,
    name: str | None = None,
    warn: bool = False,
    drift: float | None = None,
    allow_empty: bool = False,
    timeout: timedelta | float = 1800.0,
    engine: str = Engine.AUTO,
) -> SuiteGate:
    """Return the gate of a suite: the name of a file, or a list of expectations."""
    inline = None if isinstance(suite, str) else tuple(checked(suite, "the list"))
    if drift is not None and not 0 <= drift:
        raise ConfigError(f"drift is {drift}; give the part by which the number of rows may differ, like 0.2")
    if engine not in list(Engine):
        raise ConfigError(f"unknown engine {engine!r} for a gate; use one of {', '.join(Engine)}")
    limit = timeout if isinstance(timeout, timedelta) else timedelta(seconds=timeout)
    if limit <= timedelta(0):
        raise ConfigError(f"timeout is {timeout}; give the seconds after which a gate votes no")
    return SuiteGate(
        suite=name or (suite if isinstance(suite, str) else INLINE),
        expectations=inline if name is None or inline is not None else tuple(found(str(suite))),
        warn=warn,
        drift=drift,
        allow_empty=allow_empty,
        timeout=limit,
        engine=Engine(engine),
    )


def every(*gates: SuiteGate) -> Gates:
    """Return a gate that passes only if every suite votes yes."""
    return Gates(members=_members(gates), rule=Rule.ALL)


def quorum(needed: int, *gates: SuiteGate) -> Gates:
    """Return a gate that passes if at least `needed` suites vote yes."""
    members = _members(gates)
    Ballot(name="quorum", voters=tuple(each.suite for each in members), rule=Rule.QUORUM, needed=needed)
    return Gates(members=members, rule=Rule.QUORUM, needed=needed)


def _members(gates: Sequence[SuiteGate]) -> tuple[SuiteGate, ...]:
    for each in gates:
        check_kind(each, SuiteGate, "each gate", "pass the result of expect(…)")
    names = [each.suite for each in gates]
    if len(set(names)) != len(names) or not names:
        raise ConfigError(f"gates that vote together need different names ({', '.join(names)}); pass name=… to expect")
    return tuple(gates)


STYLE = """body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:62rem;padding:0 1rem;color:#1b1f24}
table{border-collapse:collapse;width:100%;margin:.5rem 0 1.5rem}td,th{border:1px solid #d0d7de;padding:.3rem .6rem;
text-align:left;vertical-align:top}th{background:#f6f8fa}.yes{color:#116329}.no{color:#a40e26}code{font-size:.9em}"""


def report(broker: Broker, txid: int) -> str:
    """Return the votes on a transaction as an HTML page."""
    return page(broker.identity.transaction(txid), broker.ballots(txid))


def page(title: str, polls: Sequence[Polled]) -> str:
    """Render the page."""
    body = "".join(map(_ballot, polls)) or "<p>No votes yet.</p>"
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


def _vote(cast: CastVote) -> str:
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
