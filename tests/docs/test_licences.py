"""What txsaga runs with may be distributed with a program under Apache-2.0."""

import re

import pytest

from tests.docs import licences


def test_no_package_has_a_licence_that_ours_can_not_be_used_with() -> None:
    assert licences.demanding(licences.SPREADING) == {}


@pytest.mark.parametrize("package", sorted({each.name for extra in licences.declared().values() for each in extra}))
def test_the_licence_of_a_named_package_is_known(package: str) -> None:
    terms = re.split(r" (?:AND|OR) ", licences.licence(package))
    assert all(term in licences.OPEN or licences.SHARING.match(term) for term in terms)


def test_packages_that_others_bring_are_looked_at() -> None:
    assert {"psycopg", "psycopg-binary", "greenlet", "apache-airflow-core", "certifi"} <= licences.needed()


@pytest.mark.parametrize(
    ("said", "spreads"),
    [("GPL-3.0-only", True), ("AGPL-3.0-or-later", True), ("GNU General Public License v2 (GPLv2)", True),
     ("LGPL-3.0-only", False), ("GNU Lesser General Public License v3 (LGPLv3)", False), ("MPL-2.0", False)],
)  # fmt: skip
def test_a_licence_that_spreads_is_told_from_one_that_shares(said: str, spreads: bool) -> None:
    assert bool(licences.SPREADING.search(said)) is spreads
    assert spreads or licences.SHARING.search(said)


def test_a_licence_that_is_refused_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(licences, "CHOSEN", {})
    assert licences.demanding(licences.SPREADING).keys() == {"text-unidecode"}
