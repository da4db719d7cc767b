"""The kinds of storage that a setting may name are those that PyIceberg knows."""

import pytest

from txsaga.config import STORAGES


def test_every_storage_of_pyiceberg_can_be_named_and_no_other() -> None:
    known = pytest.importorskip("pyiceberg.io").SCHEMA_TO_FILE_IO
    assert set(STORAGES) == set(known)
