"""Which PostgreSQL is taken: the user's, else the wheel's, and always one that fits the data."""

from pathlib import Path

import pytest

from txsaga.embedded.binaries import find_binaries
from txsaga.errors import EmbeddedDatabaseError


def fake_binaries(folder: Path, version: str) -> Path:
    for name in ("postgres", "initdb"):
        (folder / name).write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n")
        (folder / name).chmod(0o755)
    return folder


def test_binaries_of_another_machine_are_named(tmp_path: Path) -> None:
    for name in ("postgres", "initdb"):
        (tmp_path / name).write_bytes(b"\x7fELF for another processor")
        (tmp_path / name).chmod(0o755)
    with pytest.raises(EmbeddedDatabaseError, match=r"does not run here \(Exec format error\), and there is no"):
        find_binaries(wanted=tmp_path, major=None)


def test_a_new_data_folder_gets_the_newest_of_the_wheel() -> None:
    found = find_binaries(wanted=None, major=None)
    assert found.major >= 18
    assert found.postgres.exists() and found.initdb.exists()


def test_an_older_data_folder_gets_binaries_of_its_own_version() -> None:
    assert find_binaries(wanted=None, major=16).major == 16


def test_what_the_user_named_is_taken_even_if_the_wheel_is_newer(tmp_path: Path) -> None:
    named = fake_binaries(tmp_path, "17.2 (Debian 17.2-1)")
    assert find_binaries(wanted=named, major=None).major == 17


@pytest.mark.parametrize(
    ("version", "major", "line"),
    [("14.9", None, "PostgreSQL 15 is needed"), ("17.2", 16, "is of PostgreSQL 16 and there is 17 in")],
)
def test_what_the_user_named_is_refused_if_it_does_not_fit(
    tmp_path: Path, version: str, major: int | None, line: str
) -> None:
    with pytest.raises(EmbeddedDatabaseError, match=line):
        find_binaries(wanted=fake_binaries(tmp_path, version), major=major)
