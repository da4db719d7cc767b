"""Every error has its exit code, and the page of the command line says the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.errors.tree import every_error
from txsaga import errors
from txsaga.core import exits

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
NAMED = {name: value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}


def exit_code(kind: type[errors.TxSagaError]) -> int:
    """Return the code of an error of this class, whatever its constructor wants."""
    return exits.code_of(kind.__new__(kind))


def test_no_two_codes_are_the_same() -> None:
    assert len(set(NAMED.values())) == len(NAMED)
    assert set(exits.CODES.values()) <= set(NAMED.values())


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.ConfigError, 3),
        (errors.CheckerMissing, 3),
        (errors.InvalidMessage, 3),
        (errors.UnknownTopic, 3),
        (errors.TopicExists, 3),
        (errors.ReservedName, 3),
        (errors.UnknownTransaction, 4),
        (errors.DecidedOtherwise, 5),
        (errors.AlreadyCommitted, 5),
        (errors.InDoubt, 5),
        (errors.StoreUnavailable, 6),
        (errors.OutcomeUnknown, 6),
        (errors.EmbeddedDatabaseError, 6),
        (errors.DataFolderDamaged, 7),
        (errors.RightsMissing, 7),
        (errors.SchemaMissing, 7),
        (errors.SchemaTooNew, 7),
        (errors.IdentityChanged, 7),
        (errors.EvidenceMissing, 7),
    ],
)
def test_an_error_has_the_code_of_its_kind(kind: type[errors.TxSagaError], code: int) -> None:
    assert exit_code(kind) == code


def test_the_page_lists_every_code_and_every_error() -> None:
    text = PAGE.read_text("utf-8")
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.M)}
    assert codes == set(NAMED.values())
    told = {
        name: int(code)
        for code, names in re.findall(r"^\| (\d+) \| [^|]* \| ([^|]*) \|$", text, re.M)
        for name in re.findall(r"`(\w+)`", names)
    }
    assert told == {kind.__name__: exit_code(kind) for kind in every_error()}
