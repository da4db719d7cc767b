"""A folder keeps every promise of a participant."""

from pathlib import Path

import pytest

from tests.resources.files.folder_shelf import FolderShelf, ParquetShelf
from txsaga.resources.files.folder import FolderParticipant
from txsaga.testing import ParticipantContract


def made(root: Path) -> FolderParticipant:
    root.mkdir(exist_ok=True)
    return FolderParticipant(root, name=root.name)


@pytest.fixture
def participant(tmp_path: Path) -> FolderParticipant:
    return made(tmp_path / "reports")


@pytest.fixture
def another(tmp_path: Path) -> FolderParticipant:
    return made(tmp_path / "reports")


@pytest.fixture
def shelf(tmp_path: Path, another: FolderParticipant) -> FolderShelf:
    return FolderShelf(tmp_path / "reports", another)


@pytest.fixture
def next_door(tmp_path: Path) -> tuple[FolderParticipant, FolderShelf]:
    participant = made(tmp_path / "letters")
    return participant, FolderShelf(tmp_path / "letters", made(tmp_path / "letters"))


@pytest.mark.req("IBM-40", "IBM-48")
class TestFolder(ParticipantContract):
    """The published suite."""


@pytest.mark.req("IBM-40", "IBM-48")
class TestParquet(ParticipantContract):
    """The published suite once more: items are rows that are appended to a directory of Parquet."""

    @pytest.fixture
    def shelf(self, tmp_path: Path, another: FolderParticipant) -> ParquetShelf:
        return ParquetShelf(tmp_path / "reports", another)

    @pytest.fixture
    def next_door(self, tmp_path: Path) -> tuple[FolderParticipant, ParquetShelf]:
        participant = made(tmp_path / "letters")
        return participant, ParquetShelf(tmp_path / "letters", made(tmp_path / "letters"))
