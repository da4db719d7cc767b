"""Rows of a transaction are in a directory of Parquet together, or not at all."""

from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest
from pyarrow import dataset

from txsaga import Folder
from txsaga.core.decision import Decision
from txsaga.errors import ColumnsDiffer, ConfigError, IntegrityViolated, TransactionClosed, TypeDiffers
from txsaga.flows.branch import BranchId, Finish, Vote
from txsaga.resources.files.folder import FolderParticipant
from txsaga.resources.files.staging import FolderWork
from txsaga.testing.participant_contract import new_branch

MONDAY = date(2025, 3, 3)
SETS = 40
FILES = 5
PATIENCE = 60


@pytest.fixture
def folder(tmp_path: Path) -> FolderParticipant:
    return FolderParticipant(tmp_path, name="reports")


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "day": [MONDAY] * len(ids)})


def append(folder: FolderParticipant, *tables: pa.Table, decision: Decision = Decision.COMMIT) -> BranchId:
    branch = new_branch()
    enlisted = folder.enlist(branch)
    for each in tables:
        enlisted.handle.append("daily", each)
    assert enlisted.prepare()() is Vote.PREPARED
    enlisted.leave()
    assert folder.finish(branch, decision) is Finish.DONE
    return branch


def ids(root: Path) -> list[int]:
    paths = [str(path) for path in Folder(root).files("daily")]
    return sorted(dataset.dataset(paths).to_table().column("id").to_pylist()) if paths else []


def test_rows_are_there_with_the_decision(folder: FolderParticipant, tmp_path: Path) -> None:
    append(folder, rows(1, 2), rows(3))
    assert ids(tmp_path) == [1, 2, 3]
    append(folder, rows(4), decision=Decision.ROLLBACK)
    append(folder, rows(5))
    assert ids(tmp_path) == [1, 2, 3, 5]
    everybody = dataset.dataset(str(tmp_path / "daily"), format="parquet")
    assert sorted(everybody.to_table().column("id").to_pylist()) == [1, 2, 3, 5]
    assert not list(tmp_path.glob(".txsaga/*/*/*"))


def test_rows_are_parted_by_columns(folder: FolderParticipant, tmp_path: Path) -> None:
    branch = new_branch()
    enlisted = folder.enlist(branch)
    given = pa.table({"id": [1, 2, 3], "day": [MONDAY, None, MONDAY]})
    assert enlisted.handle.append("daily", given.to_reader(), partitions=["day"]) == 3
    enlisted.prepare()()
    enlisted.finish(Decision.COMMIT)()
    enlisted.leave()
    parts = {path.parent.name for path in Folder(tmp_path).files("daily")}
    assert parts == {"day=2025-03-03", "day=__HIVE_DEFAULT_PARTITION__"}
    read = dataset.dataset(str(tmp_path / "daily"), format="parquet", partitioning="hive").to_table()
    assert sorted(read.column("id").to_pylist()) == [1, 2, 3]


def test_no_rows_are_no_files(folder: FolderParticipant) -> None:
    enlisted = folder.enlist(new_branch())
    assert enlisted.handle.append("daily", rows()) == 0
    assert enlisted.prepare()() is Vote.READ_ONLY
    enlisted.leave()


def test_a_set_that_is_placed_in_part_is_left_out(folder: FolderParticipant, tmp_path: Path) -> None:
    append(folder, rows(1))
    branch = new_branch()
    enlisted = folder.enlist(branch)
    for each in (rows(2), rows(3)):
        enlisted.handle.append("daily", each)
    enlisted.prepare()()
    enlisted.leave()
    staged = sorted((tmp_path / ".txsaga" / branch.transaction / branch.qualifier).glob("[0-9]*"))
    manifest = (staged[0].parent / "manifest.json").read_text()
    target = next(line.split('"')[3] for line in manifest.splitlines() if '"target"' in line)
    (tmp_path / target).hardlink_to(staged[0])  # a process died here
    assert ids(tmp_path) == [1]
    assert folder.finish(branch, Decision.COMMIT) is Finish.DONE
    assert ids(tmp_path) == [1, 2, 3]


def test_a_reader_sees_all_or_none_of_each_set(folder: FolderParticipant, tmp_path: Path) -> None:
    over, looked, torn, seen = Event(), Event(), list[int](), set[int]()

    def look() -> None:
        while not over.is_set():
            count = len(Folder(tmp_path).files("daily"))
            seen.add(count)
            torn.extend([count] if count % FILES else [])
            looked.set()

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(look)
        try:
            for number in range(SETS):
                append(folder, *[rows(number)] * FILES)
                looked.clear()
                assert looked.wait(PATIENCE) or reader.done()
        finally:
            over.set()
        reader.result()
    assert not torn
    assert len(seen) > 1
    assert len(ids(tmp_path)) == SETS * FILES


@pytest.mark.parametrize(
    ("given", "partitions", "error"),
    [
        (pa.table({"id": [1]}), [], ColumnsDiffer),
        (pa.table({"id": ["1"], "day": [MONDAY]}), [], TypeDiffers),
        (rows(1), ["day"], ColumnsDiffer),
        (rows(1), ["hour"], ColumnsDiffer),
        (rows(1), ["id", "day"], ColumnsDiffer),
        (pa.table({"id": [1], "_day": [MONDAY]}), ["_day"], ColumnsDiffer),
        (pa.table({"id": [1], ".day": [MONDAY]}), [".day"], ColumnsDiffer),
        ([1, 2], [], ConfigError),
    ],
    ids=[
        "a column less",
        "another type",
        "parted otherwise",
        "no such column",
        "nothing but parts",
        "hidden",
        "dotted",
        "no rows",
    ],
)
def test_rows_that_do_not_fit_are_refused(
    folder: FolderParticipant, given: object, partitions: list[str], error: type[Exception]
) -> None:
    append(folder, rows(1))
    enlisted = folder.enlist(new_branch())
    work: FolderWork = enlisted.handle
    with pytest.raises(error):
        work.append("daily", given, partitions=partitions)
    assert enlisted.prepare()() is Vote.READ_ONLY
    enlisted.leave()


def test_rows_are_as_those_of_the_same_transaction(folder: FolderParticipant, tmp_path: Path) -> None:
    enlisted = folder.enlist(new_branch())
    work: FolderWork = enlisted.handle
    work.append("daily", rows(1))
    work.append("hourly", pa.table({"hour": [1]}))
    with pytest.raises(ColumnsDiffer, match="'daily' has columns id, day"):
        work.append("daily", pa.table({"id": [2]}))
    with pytest.raises(ColumnsDiffer, match="partitioned by"):
        work.append("daily", rows(2), partitions=["day"])
    with pytest.raises(TypeDiffers, match="'id' of directory 'daily' is int64"):
        work.append("daily", pa.table({"id": ["2"], "day": [MONDAY]}))
    assert enlisted.prepare()() is Vote.PREPARED
    enlisted.finish(Decision.COMMIT)()
    enlisted.leave()
    assert ids(tmp_path) == [1]


def test_rows_of_others_that_came_meanwhile_are_a_no(folder: FolderParticipant, tmp_path: Path) -> None:
    enlisted = folder.enlist(new_branch())
    enlisted.handle.append("daily", pa.table({"id": ["one"]}))
    append(folder, rows(1))
    vote = enlisted.prepare()
    with pytest.raises(IntegrityViolated, match="votes no: directory 'daily' has columns id, day"):
        vote()
    enlisted.leave()
    assert ids(tmp_path) == [1]


def test_nothing_is_appended_behind_the_vote(folder: FolderParticipant) -> None:
    enlisted = folder.enlist(new_branch())
    enlisted.prepare()()
    with pytest.raises(TransactionClosed):
        enlisted.handle.append("daily", rows(1))
    enlisted.leave()


def test_what_was_refused_says_nothing_of_later_rows(folder: FolderParticipant, tmp_path: Path) -> None:
    branch = new_branch()
    enlisted = folder.enlist(branch)
    enlisted.handle.write("daily/day=2025-03-03", b"a file where a folder must be")
    with pytest.raises(ConfigError, match="can't be a file and a folder in one transaction"):
        enlisted.handle.append("daily", rows(1), partitions=["day"])
    assert enlisted.handle.append("daily", pa.table({"other": [1]})) == 1
    enlisted.leave()


def test_a_directory_that_is_a_file_is_refused_before_rows_are_read(folder: FolderParticipant) -> None:
    enlisted = folder.enlist(new_branch())
    enlisted.handle.write("daily", b"a file")
    with pytest.raises(ConfigError, match="'daily' can't be a file and a folder in one transaction"):
        enlisted.handle.append("daily", None)
    enlisted.leave()
