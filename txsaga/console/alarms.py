"""
The alerts of alerts.yml, answered by the figures of the store now.

The file is the only source: its expressions are read here, as far as one look can answer them. What compares moments,
or is known to one engine alone, is left to Prometheus.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from txsaga.errors import TxSagaError
from txsaga.inspect.documents import figures

if TYPE_CHECKING:
    from txsaga.inspect.documents import Family
    from txsaga.store.store import Store

FILE = Path(__file__).parent / "alerts.yml"
RULE = re.compile(
    r"- alert: (?P<name>\w+)\n +expr: (?P<expr>.+)\n(?: +for: (?P<lasts>\w+)\n)?"
    r" +labels: \{severity: (?P<severity>\w+)\}\n +annotations:\n +summary: (?P<summary>.+)\n"
)
COMPARED = re.compile(r"(?P<sum>txsaga_\w+(?: \+ txsaga_\w+)*) (?P<how>==|>|<) (?P<number>[\d.]+)")
HOW = {"==": operator.eq, ">": operator.gt, "<": operator.lt}
Labels = tuple[tuple[str, str], ...]
Values = Mapping[str, Mapping[Labels, float]]
"""The values of each metric by its labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """One alert: what it is about, and where it holds now."""

    name: str
    severity: str
    lasts: str | None  # Prometheus tells after this time
    on: tuple[str, ...] | None  # what is wrong in each place; None: one look can't answer it
    summary: str


def alarms(store: Store) -> list[Alarm]:
    """Return every alert of the file, those that hold now first."""
    try:
        values = _values(figures(store))
    except TxSagaError:
        values = {"txsaga_store_up": {(): 0.0}}
    found = [_answered(rule.groupdict(), values) for rule in RULE.finditer(FILE.read_text("utf-8"))]
    return sorted(found, key=lambda each: (not each.on, each.on is None))


def _values(families: Iterable[Family]) -> Values:
    found: dict[str, dict[Labels, float]] = {"txsaga_store_up": {(): 1.0}}
    for names, labels, rows in families:
        for name in names:
            found[name] = {}
        for of, values in rows:
            place = tuple(zip(labels, of, strict=True))
            for name, value in zip(names, values, strict=True):
                found[name][place] = value
    return found


def _answered(rule: Mapping[str, str], values: Values) -> Alarm:
    holds = holding(rule["expr"], values)
    on = None if holds is None else tuple(_said(rule["summary"], labels) for labels in holds)
    return Alarm(
        name=rule["name"], severity=rule["severity"], lasts=rule["lasts"], on=on, summary=_said(rule["summary"], ())
    )


def holding(expression: str, values: Values) -> list[Labels] | None:
    """Return the labels for which an expression holds; None if one look can't answer it."""
    found = [_compared(part, values) for part in expression.split(" and ")]
    whole = [each for each in found if each is not None]
    if len(whole) < len(found):
        return None
    return [labels for labels in whole[0] if all(labels in each for each in whole)]


def _compared(text: str, values: Values) -> list[Labels] | None:
    part = COMPARED.fullmatch(text)
    if part is None or any(name not in values for name in part["sum"].split(" + ")):
        return None
    terms = [values[name] for name in part["sum"].split(" + ")]
    sums = {labels: sum(each[labels] for each in terms) for labels in terms[0] if all(labels in each for each in terms)}
    return [labels for labels, value in sums.items() if HOW[part["how"]](value, float(part["number"]))]


def _said(summary: str, labels: Labels) -> str:
    """Fill in the labels, as Prometheus does."""
    known = dict(labels)
    return re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: known.get(found[1], "…"), summary)
