"""Files are in their places together, and nobody's file is lost by it."""

import fcntl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from stat import S_IMODE

import pytest

from txsaga.adapters.files import FolderParticipant
from txsaga.adapters.files.layout import Layout
from txsaga.errors import ConfigError, StoreUnavailable, xa
from txsaga.model.branch import BranchId, Finish, Vote
from txsaga.model.decision import Decision
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
        with pytest.raises(ConfigError, match="no plain file"):
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
    with pytest.raises(ConfigError, match="folder"):
        enlisted.handle.write(path, b"mine")
    enlisted.leave()


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
    with pytest.raises(xa.TransientFailure, match="another transaction"):
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
    with pytest.raises(xa.RetryLater):
        FolderParticipant(root, name="reports").finish(branch, Decision.ROLLBACK)
    enlisted.finish(Decision.COMMIT)()
    enlisted.leave()
    assert (root / "a").exists()


def test_one_branch_is_opened_once(folder: FolderParticipant) -> None:
    branch = new_branch()
    enlisted = folder.enlist(branch)
    with pytest.raises(xa.DuplicateBranch):
        folder.enlist(branch)
    enlisted.leave()


def test_an_empty_mount_point_does_not_say_that_all_was_rolled_back(folder: FolderParticipant, root: Path) -> None:
    branch = new_branch()
    voted(folder, branch, ("a", b"mine", "xb"))
    away = root.rename(root.with_name("away"))
    root.mkdir()
    with pytest.raises(StoreUnavailable, match="away"):
        folder.finish(branch, Decision.COMMIT)
    with pytest.raises(StoreUnavailable, match="away"):
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
