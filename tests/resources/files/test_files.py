"""Files are in their places together, and nobody's file is lost by it."""

import fcntl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from stat import S_IMODE

import pyarrow as pa
import pytest

from txsaga.core.decision import Decision
from txsaga.errors import (
    ConfigError,
    DuplicateBranch,
    IntegrityViolated,
    RetryLater,
    StoreUnavailable,
    TransientFailure,
)
from txsaga.flows.branch import BranchId, Finish, Vote
from txsaga.resources.files.folder import FolderParticipant
from txsaga.resources.files.layout import Layout
from txsaga.testing.participant_contract import new_branch

ROUNDS = 1000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def folder(root: Path) -> FolderParticipant:
    return FolderParticipant(root, name="reports")


def voted(folder: FolderParticipant, branch: BranchId, *writes: tuple[str, bytes, str]) -> None:
    enlisted = folder.enlist(branch)
    for write in writes:
        enlisted.handle.write(*write)
    assert enlisted.prepare()() is Vote.PREPARED
    enlisted.leave()


def test_a_file_may_take_the_place_of_another(folder: FolderParticipant, root: Path) -> None:
    (root / "a").write_bytes(b"old")
    branch = new_branch()
    voted(folder, branch, ("a", b"new", "wb"), ("deep/er/b", b"new", "xb"))
    assert (root / "a").read_bytes() == b"old"
    assert not (root / "deep").exists()
    assert folder.finish(branch, Decision.COMMIT) is Finish.DONE
    assert (root / "a").read_bytes() == (root / "deep/er/b").read_bytes() == b"new"


def test_what_takes_the_place_of_a_file_has_its_permissions(folder: FolderParticipant, root: Path) -> None:
    (root / "a").write_bytes(b"old")
    (root / "a").chmod(0o640)
    branch = new_branch()
    voted(folder, branch, ("a", b"new", "wb"))
    folder.finish(branch, Decision.COMMIT)
    assert S_IMODE((root / "a").stat().st_mode) == 0o640


def test_only_a_plain_file_is_replaced(folder: FolderParticipant, root: Path) -> None:
    (root / "deep").mkdir()
    (root / "link").symlink_to(root / "a")
    enlisted = folder.enlist(new_branch())
    for name in ("deep", "link"):
        with pytest.raises(ConfigError, match="not a regular file"):
            enlisted.handle.write(name, b"mine", "wb")
    enlisted.leave()


def test_what_was_left_open_is_written_by_the_vote(folder: FolderParticipant, root: Path) -> None:
    enlisted = folder.enlist(new_branch())
    enlisted.handle.open("a").write(b"half a page")
    enlisted.prepare()()
    enlisted.finish(Decision.COMMIT)()
    enlisted.leave()
    assert (root / "a").read_bytes() == b"half a page"


def test_the_same_path_again_begins_anew(folder: FolderParticipant, root: Path) -> None:
    branch = new_branch()
    voted(folder, branch, ("a", b"first", "xb"), ("a", b"second", "xb"))
    folder.finish(branch, Decision.COMMIT)
    assert (root / "a").read_bytes() == b"second"


def test_a_new_file_needs_a_free_place(folder: FolderParticipant, root: Path) -> None:
    (root / "a").write_bytes(b"theirs")
    enlisted = folder.enlist(new_branch())
    with pytest.raises(FileExistsError, match="wb"):
        enlisted.handle.write("a", b"mine")
    enlisted.leave()


@pytest.mark.parametrize("path", ["../a", "/a", "x/../../a", ".txsaga/folder", "", ".", "out/a"])
def test_what_leads_out_of_the_folder_is_refused(
    folder: FolderParticipant, root: Path, path: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (root / "out").symlink_to(tmp_path_factory.mktemp("elsewhere"))
    enlisted = folder.enlist(new_branch())
    with pytest.raises(ConfigError, match="give a path inside it"):
        enlisted.handle.write(path, b"mine")
    enlisted.leave()


@pytest.mark.parametrize("path", ["file/x.csv", "file/deep/x.csv", "nowhere/x.csv"])
@pytest.mark.parametrize("mode", ["xb", "wb"])
def test_nothing_is_written_below_what_is_no_folder(
    folder: FolderParticipant, root: Path, path: str, mode: str
) -> None:
    (root / "file").write_bytes(b"theirs")
    (root / "nowhere").symlink_to(root / "none")
    enlisted = folder.enlist(new_branch())
    with pytest.raises(ConfigError, match=f"'{path.split('/')[0]}' is not a folder; choose another path"):
        enlisted.handle.write(path, b"mine", mode)
    assert not enlisted.handle.used
    enlisted.leave()


def test_rows_are_not_appended_to_a_file(folder: FolderParticipant, root: Path) -> None:
    (root / "sales").write_bytes(b"theirs")
    enlisted = folder.enlist(new_branch())
    with pytest.raises(ConfigError, match="'sales' is not a folder"):
        enlisted.handle.append("sales", pa.table({"item": [1]}))
    assert not enlisted.handle.used
    enlisted.leave()


@pytest.mark.parametrize("paths", [("n", "n/y.csv"), ("n/y.csv", "n"), ("n/deep/y.csv", "n"), ("n", "n/deep/y.csv")])
def test_no_file_is_the_folder_of_another(folder: FolderParticipant, root: Path, paths: tuple[str, str]) -> None:
    branch = new_branch()
    enlisted = folder.enlist(branch)
    enlisted.handle.write(paths[0], b"first")
    with pytest.raises(ConfigError, match=r"can't be a file and a folder .*; choose another path"):
        enlisted.handle.write(paths[1], b"second")
    assert enlisted.prepare()() is Vote.PREPARED
    assert enlisted.finish(Decision.COMMIT)() is Finish.DONE
    enlisted.leave()
    assert (root / paths[0]).read_bytes() == b"first"


def test_rows_are_not_appended_to_a_file_that_is_written_here(folder: FolderParticipant) -> None:
    enlisted = folder.enlist(new_branch())
    enlisted.handle.write("sales", b"mine")
    with pytest.raises(ConfigError, match="'sales' can't be a file and a folder"):
        enlisted.handle.append("sales", pa.table({"item": [1]}))
    enlisted.leave()


@pytest.mark.parametrize("path", ["x" * 300, "new/" + "x" * 300, "x" * 300 + "/a", "é" * 200, "deep/" * 1000 + "a"])
def test_a_name_that_is_too_long_is_refused(folder: FolderParticipant, path: str) -> None:
    enlisted = folder.enlist(new_branch())
    with pytest.raises(ConfigError, match="is too long for this folder; choose a shorter path") as refusal:
        enlisted.handle.write(path, b"mine")
    assert len(str(refusal.value)) < 300
    enlisted.leave()


@pytest.mark.parametrize("path", ["\ud800.txt", "new/\udcff"], ids=ascii)
def test_a_name_that_is_no_text_is_refused(folder: FolderParticipant, path: str) -> None:
    enlisted = folder.enlist(new_branch())
    with pytest.raises(ConfigError, match="is not valid Unicode; choose another path"):
        enlisted.handle.write(path, b"mine")
    enlisted.leave()


def test_a_name_may_be_as_long_as_the_folder_takes(folder: FolderParticipant, root: Path) -> None:
    branch = new_branch()
    voted(folder, branch, ("x" * 255, b"mine", "xb"))
    assert folder.finish(branch, Decision.COMMIT) is Finish.DONE
    assert (root / ("x" * 255)).read_bytes() == b"mine"


@pytest.mark.parametrize("path", ["n/y.csv", "n/deep/y.csv"])
def test_a_file_that_came_where_a_folder_must_be_is_a_no(folder: FolderParticipant, root: Path, path: str) -> None:
    enlisted = folder.enlist(new_branch())
    enlisted.handle.write(path, b"mine")
    (root / "n").write_bytes(b"theirs")
    with pytest.raises(IntegrityViolated, match=r"votes no: .* 'n' is not a folder"):
        enlisted.prepare()()
    enlisted.leave()
    assert (root / "n").read_bytes() == b"theirs"


def test_only_writing_can_be_coordinated(folder: FolderParticipant) -> None:
    enlisted = folder.enlist(new_branch())
    with pytest.raises(ConfigError, match="xb"):
        enlisted.handle.open("a", "ab")
    enlisted.leave()


def test_two_that_want_one_place_do_not_both_vote_yes(folder: FolderParticipant, root: Path) -> None:
    first, second = new_branch(), new_branch()
    voted(folder, first, ("a", b"first", "xb"))
    later = folder.enlist(second)
    later.handle.write("a", b"second")
    with pytest.raises(TransientFailure, match="another transaction"):
        later.prepare()()
    later.leave()
    assert folder.finish(first, Decision.ROLLBACK) is Finish.DONE
    third = new_branch()
    voted(folder, third, ("a", b"third", "xb"))
    assert folder.finish(third, Decision.COMMIT) is Finish.DONE
    assert (root / "a").read_bytes() == b"third"


def overtaken(root: Path) -> None:
    (root / "a").write_bytes(b"theirs")


def left_a_folder(root: Path) -> None:
    (root / "a").mkdir()


@pytest.mark.req("WM-45")
@pytest.mark.parametrize("meddle", [overtaken, left_a_folder])
def test_what_a_stranger_placed_behind_the_vote_is_left_alone_and_told(
    folder: FolderParticipant, root: Path, meddle: Callable[[Path], None]
) -> None:
    branch = new_branch()
    voted(folder, branch, ("a", b"mine", "xb"), ("b", b"mine", "xb"))
    meddle(root)
    assert folder.finish(branch, Decision.COMMIT) is Finish.HAZARD
    assert folder.finish(branch, Decision.COMMIT) is Finish.HAZARD
    assert (root / "b").read_bytes() == b"mine"
    assert (root / "a").is_dir() or (root / "a").read_bytes() == b"theirs"
    assert list(folder.prepared(branch.store)) == [branch]
    folder.forget(branch)
    assert [path.name for path in (root / ".txsaga").iterdir() if path.name not in ("folder", "taken")] == []


def test_a_commit_that_had_begun_is_not_rolled_back_in_part(folder: FolderParticipant, root: Path) -> None:
    branch = new_branch()
    voted(folder, branch, ("a", b"mine", "xb"), ("b", b"mine", "xb"))
    (root / "a").hardlink_to(root / ".txsaga" / branch.transaction / branch.qualifier / "1")
    assert folder.finish(branch, Decision.ROLLBACK) is Finish.COMMITTED
    assert (root / "b").read_bytes() == b"mine"


def test_nobody_finishes_what_its_owner_holds(folder: FolderParticipant, root: Path) -> None:
    branch = new_branch()
    enlisted = folder.enlist(branch)
    enlisted.handle.write("a", b"mine")
    enlisted.prepare()()
    with pytest.raises(RetryLater):
        FolderParticipant(root, name="reports").finish(branch, Decision.ROLLBACK)
    enlisted.finish(Decision.COMMIT)()
    enlisted.leave()
    assert (root / "a").exists()


def test_one_branch_is_opened_once(folder: FolderParticipant) -> None:
    branch = new_branch()
    enlisted = folder.enlist(branch)
    with pytest.raises(DuplicateBranch):
        folder.enlist(branch)
    enlisted.leave()


def test_an_empty_mount_point_does_not_say_that_all_was_rolled_back(folder: FolderParticipant, root: Path) -> None:
    branch = new_branch()
    voted(folder, branch, ("a", b"mine", "xb"))
    away = root.rename(root.with_name("away"))
    root.mkdir()
    with pytest.raises(StoreUnavailable, match="is unavailable"):
        folder.finish(branch, Decision.COMMIT)
    with pytest.raises(StoreUnavailable, match="is unavailable"):
        folder.prepared(branch.store)
    root.rmdir()
    away.rename(root)
    assert folder.finish(branch, Decision.COMMIT) is Finish.DONE


def test_a_folder_keeps_its_uuid_and_another_has_its_own(root: Path) -> None:
    (root / "one").mkdir()
    (root / "two").mkdir()
    one, again, two = (FolderParticipant(root / name, name="x").database for name in ("one", "one", "two"))
    assert one == again != two


def test_a_folder_that_is_not_there_is_refused_before_any_work(root: Path) -> None:
    with pytest.raises(ConfigError, match="create it"):
        FolderParticipant(root / "none", name="reports").probe()


def test_the_lock_goes_with_the_session(folder: FolderParticipant, root: Path) -> None:
    branch = new_branch()
    enlisted = folder.enlist(branch)
    enlisted.handle.write("a", b"mine")
    enlisted.prepare()()
    enlisted.leave()
    with (root / ".txsaga" / "folder").open() as file:  # any descriptor: nothing of ours holds it
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert folder.finish(branch, Decision.COMMIT) is Finish.DONE


def test_branches_may_go_while_they_are_listed(root: Path, folder: FolderParticipant) -> None:
    voting = new_branch()
    voted(folder, voting, ("a", b"mine", "xb"))
    layout = Layout(root)

    def come_and_go() -> None:
        for branch in (new_branch() for _ in range(ROUNDS)):
            layout.staging(branch).mkdir(parents=True)
            layout.staging(branch).rmdir()
            layout.staging(branch).parent.rmdir()

    with ThreadPoolExecutor(1) as pool:
        others = pool.submit(come_and_go)
        while not others.done():
            assert list(layout.prepared("*")) == [voting]
            assert list(layout.marked("*", 0)) == []
        others.result()
