"""Rows of several places are judged as one, unless some of them are no files."""

import pytest
from pyiceberg.manifest import DataFile

from txsaga.errors import ConfigError
from txsaga.lake.gates import Subject, together


def test_files_of_several_places_are_judged_as_one() -> None:
    files = [DataFile(), DataFile()]
    found = together("bank.ledger", [Subject(about="x", files=(file,), count=2) for file in files])
    assert (found.about, found.files, found.count) == ("bank.ledger", tuple(files), 4)


def test_rows_of_a_branch_are_judged_by_themselves() -> None:
    rows, files = Subject(about="x", rows=[{"id": 1}], count=1), Subject(about="x", files=(DataFile(),), count=2)
    assert together("bank.ledger", [rows]).rows == [{"id": 1}]
    with pytest.raises(ConfigError, match="give each its own gate"):
        together("bank.ledger", [rows, files])
