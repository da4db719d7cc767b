"""The licences of what txsaga runs with, read from the packages that are installed here."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.architecture.sources import ROOT

DEVELOPMENT = {"all", "dev", "docs"}
"""Extras that are no feature: `all` names the others, `dev` and `docs` are for this repository."""
NAMED: Mapping[str, str] = {
    "Apache Software License": "Apache-2.0",
    "3-Clause BSD License": "BSD-3-Clause",
    "BSD 3-Clause License": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
"""What packages without a licence expression write, as an expression."""
OPEN = {"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "MIT", "PSF-2.0"}
SHARING = re.compile(r"LGPL|Lesser|MPL|Mozilla")
"""Licences that ask for the source of the package itself, not of a program that imports it."""
SPREADING = re.compile(r"\b(?:A?GPL|SSPL)|Affero|GNU General")
"""Licences that a program under Apache-2.0 can't be distributed with."""
CHOSEN = {"text-unidecode": "Artistic"}
"""What is used of packages that leave the choice."""


def declared() -> dict[str, list[Requirement]]:
    """Return the packages that each extra names; the empty extra is always installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = {"": project["dependencies"], **project["optional-dependencies"]}
    return {extra: [Requirement(each) for each in extras[extra]] for extra in extras if extra not in DEVELOPMENT}


def written(package: str) -> list[str]:
    """Return what an installed package says about its licence, the most exact first."""
    about = distribution(package).metadata
    said = [
        each.partition("\n")[0].strip()
        for name in ("License-Expression", "License")
        for each in about.get_all(name) or ()
    ]
    classified = (each for each in about.get_all("Classifier") or () if each.startswith("License"))
    return [each for each in [*said, *(each.rpartition(" :: ")[2] for each in classified)] if each]


def licence(package: str) -> str:
    """Return the licence of an installed package, as an SPDX expression."""
    said = written(package)[0]
    return NAMED.get(said, said)


def demanding(licences: re.Pattern[str]) -> dict[str, str]:
    """Return the packages under one of these licences, if they leave no other choice."""
    found = {package: [each for each in written(package) if licences.search(each)] for package in sorted(needed())}
    return {package: NAMED.get(said[0], said[0]) for package, said in found.items() if said and package not in CHOSEN}


@cache
def needed() -> set[str]:
    """Return every package that txsaga may run with, those that others bring included."""
    pending = [each for packages in declared().values() for each in packages]
    seen: set[tuple[str, frozenset[str]]] = set()
    while pending:
        each = pending.pop()
        known = canonicalize_name(each.name), frozenset(each.extras)
        if known not in seen:
            seen.add(known)
            pending += brought(each)
    return {name for name, _ in seen}


def brought(by: Requirement) -> Iterator[Requirement]:
    """Yield what an installed package needs on this machine, with these extras of it."""
    for text in distribution(by.name).requires or ():
        each = Requirement(text)
        if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in {"", *by.extras}):
            yield each
