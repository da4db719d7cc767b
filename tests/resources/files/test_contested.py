"""Of two branches whose files have no place together in a folder, one at the most votes yes."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from txsaga.core.decision import Decision
from txsaga.errors import IntegrityViolated, TransientFailure
from txsaga.flows.branch import BranchId, Finish, Vote
from txsaga.resources.files import folder as placing
from txsaga.resources.files.folder import FolderBranch, FolderParticipant
from txsaga.resources.files.layout import Layout
from txsaga.testing.participant_contract import new_branch

ROUNDS = 100
PATIENCE = 30.0
NESTED = [("n", "n/y.csv"), ("n/y.csv", "n"), ("n/deep/y.csv", "n"), ("n", "n/deep/y.csv"), ("n/deep", "n/deep/y.csv")]
Writing = tuple[BranchId, FolderBranch]


@pytest.fixture
def folder(tmp_path: Path) -> FolderParticipant:
    return FolderParticipant(tmp_path, name="reports")


def writing(folder: FolderParticipant, *paths: str, mode: str = "xb") -> Writing:
    branch = new_branch()
    enlisted = folder.enlist(branch)
    for path in paths:
        enlisted.handle.write(path, path.encode(), mode)
    return branch, enlisted


def ended(enlisted: FolderBranch) -> Finish | None:
    """Commit where the vote is yes; None for a no."""
    try:
        assert enlisted.prepare()() is Vote.PREPARED
        return enlisted.finish(Decision.COMMIT)()
    except (TransientFailure, IntegrityViolated):
        return None
    finally:
        enlisted.leave()


@pytest.mark.parametrize(("first", "second"), NESTED)
@pytest.mark.parametrize("decision", list(Decision))
def test_a_file_and_a_folder_of_its_name_are_not_both_promised(
    folder: FolderParticipant, tmp_path: Path, first: str, second: str, decision: Decision
) -> None:
    branch, earlier = writing(folder, first)
    _, later = writing(folder, "beside", second)
    assert earlier.prepare()() is Vote.PREPARED
    with pytest.raises(TransientFailure, match=f"votes no: '{second}' waits for another .* end; try again"):
        later.prepare()()
    later.leave()
    earlier.leave()
    assert folder.finish(branch, decision) is Finish.DONE
    assert (tmp_path / first).is_file() == (decision is Decision.COMMIT)
    assert not list(Layout(tmp_path).taken.iterdir())
    if decision is Decision.ROLLBACK:
        assert ended(writing(folder, second)[1]) is Finish.DONE


def test_many_write_into_one_folder_at_once(folder: FolderParticipant, tmp_path: Path) -> None:
    paths = ("n/a", "n/b", "n/deep/a", "n/deep/b", "nn")
    branches = [writing(folder, path) for path in paths]
    assert [enlisted.prepare()() for _, enlisted in branches] == [Vote.PREPARED] * len(paths)
    for branch, enlisted in branches:
        enlisted.leave()
        assert folder.finish(branch, Decision.COMMIT) is Finish.DONE
    assert all((tmp_path / path).read_text() == path for path in paths)
    assert not list(Layout(tmp_path).taken.iterdir())


@pytest.mark.parametrize("mode", ["xb", "wb"])
@pytest.mark.parametrize(("first", "second"), [*NESTED, ("a", "a")])
def test_what_was_placed_just_before_a_target_was_reserved_is_a_no(
    folder: FolderParticipant, first: str, second: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, earlier = writing(folder, first)
    _, later = writing(folder, second, mode=mode)
    reserve = placing.reserve

    def late(layout: Layout, branch: BranchId, targets: list[str]) -> None:
        monkeypatch.undo()
        assert ended(earlier) is Finish.DONE
        reserve(layout, branch, targets)

    monkeypatch.setattr(placing, "reserve", late)
    with pytest.raises(IntegrityViolated, match=f"votes no: '{second}'"):
        later.prepare()()
    later.leave()


def test_what_an_older_version_reserved_is_kept_and_freed(folder: FolderParticipant, tmp_path: Path) -> None:
    branch, earlier = writing(folder, "n")
    assert earlier.prepare()() is Vote.PREPARED
    earlier.leave()
    taken = Layout(tmp_path).taken
    assert [link.name for link in taken.iterdir()] == [Layout(tmp_path).reservation("n").name]
    assert ended(writing(folder, "n/y.csv")[1]) is None
    assert folder.finish(branch, Decision.COMMIT) is Finish.DONE
    assert not list(taken.iterdir())


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def test_two_that_look_at_one_moment_both_say_no_and_either_comes_through_alone(
    folder: FolderParticipant, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready, contested = Barrier(2), Layout.contested

    def at_once(layout: Layout, targets: list[str]) -> str | None:
        ready.wait(PATIENCE)
        found = contested(layout, targets)
        ready.wait(PATIENCE)  # who says no takes its links away
        return found

    monkeypatch.setattr(Layout, "contested", at_once)
    both = [writing(folder, path)[1] for path in ("n", "n/y.csv")]
    assert list(pool.map(ended, both)) == [None, None]
    monkeypatch.undo()
    assert ended(writing(folder, "n/y.csv")[1]) is Finish.DONE


@pytest.mark.parametrize("deep", ["y.csv", "deep/y.csv"])
def test_two_that_vote_at_one_moment_are_no_hazard(
    folder: FolderParticipant, tmp_path: Path, pool: ThreadPoolExecutor, deep: str
) -> None:
    ready = Barrier(2)

    def at_once(enlisted: FolderBranch) -> Finish | None:
        ready.wait(PATIENCE)
        return ended(enlisted)

    for name in map(str, range(ROUNDS)):
        both = [writing(folder, path)[1] for path in (name, f"{name}/{deep}")]
        ends = list(pool.map(at_once, both))
        assert ends.count(Finish.DONE) + ends.count(None) == 2, ends
        assert ends.count(Finish.DONE) < 2
        if not any(ends):
            assert ended(writing(folder, name)[1]) is Finish.DONE
    assert not list(Layout(tmp_path).taken.iterdir())


@pytest.mark.parametrize("decision", list(Decision))
def test_what_was_placed_is_known_though_its_committer_died_and_another_replaced_it(
    folder: FolderParticipant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decision: Decision
) -> None:
    branch, first = writing(folder, "n")
    assert first.prepare()() is Vote.PREPARED
    first.leave()
    with monkeypatch.context() as patch:
        patch.setattr(placing, "free", dying_behind(placing.free))
        with pytest.raises(KeyboardInterrupt):
            folder.finish(branch, Decision.COMMIT)
    assert ended(writing(folder, "n", mode="wb")[1]) is Finish.DONE
    found = Finish.DONE if decision is Decision.COMMIT else Finish.COMMITTED
    assert folder.finish(branch, decision) is found
    assert [each.name for each in (tmp_path / ".txsaga" / "taken").iterdir()] == []


def dying_behind(free: Callable[[Layout, BranchId], None]) -> Callable[[Layout, BranchId], None]:
    def dies(layout: Layout, branch: BranchId) -> None:
        free(layout, branch)
        raise KeyboardInterrupt

    return dies


def test_who_dies_before_its_places_are_free_is_waited_for_until_it_is_finished(
    folder: FolderParticipant, monkeypatch: pytest.MonkeyPatch
) -> None:
    branch, first = writing(folder, "n")
    assert first.prepare()() is Vote.PREPARED
    first.leave()
    with monkeypatch.context() as patch:
        patch.setattr(placing, "free", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            folder.finish(branch, Decision.COMMIT)
    assert ended(writing(folder, "n", mode="wb")[1]) is None
    assert folder.finish(branch, Decision.COMMIT) is Finish.DONE
    assert ended(writing(folder, "n", mode="wb")[1]) is Finish.DONE
