"""What a service answers is a vote or an end; what it does not answer is asked again."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from time import monotonic

import pytest

from tests.oracle import MemoryStore
from tests.resources.callables.service import SECRET, Till
from tests.scene.answering import EARLY, answering
from tests.scene.dripping import certified, dripping
from txsaga.core.decision import Decision
from txsaga.errors import (
    CommunicationFailed,
    ConfigError,
    OtherReason,
    ResourceManagerError,
    ResourceManagerFailed,
    RolledBack,
    XaError,
)
from txsaga.flows.branch import BranchId, Finish, Vote
from txsaga.resources.http import HttpService
from txsaga.resources.reservations import Reservation, ReservationState
from txsaga.resources.tcc import TccParticipant
from txsaga.testing.participant_contract import new_branch

COMMIT, ROLLBACK = Decision.COMMIT, Decision.ROLLBACK


@pytest.fixture
def till(tmp_path: Path) -> Iterator[Till]:
    till = Till(tmp_path / "till")
    thread = Thread(target=till.serve_forever, args=(0.01,))
    thread.start()
    yield till
    till.shutdown()
    thread.join()
    till.server_close()


def service_at(port: int, *, secret: str = SECRET, timeout: float = 10.0) -> HttpService:
    at = f"http://127.0.0.1:{port}"
    return HttpService(try_=f"{at}/try", confirm=f"{at}/confirm", cancel=f"{at}/cancel", secret=secret, timeout=timeout)


def participant_at(port: int, *, secret: str = SECRET, timeout: float = 10.0) -> TccParticipant:
    return service_at(port, secret=secret, timeout=timeout).participant("till", MemoryStore())


@pytest.fixture
def participant(till: Till) -> TccParticipant:
    return participant_at(till.server_port)


def held(participant: TccParticipant) -> BranchId:
    branch = new_branch()
    enlisted = participant.enlist(branch)
    enlisted.handle(item=1)
    assert enlisted.prepare()() is Vote.PREPARED
    enlisted.leave()
    return branch


def test_each_call_names_branch_and_phase(participant: TccParticipant, till: Till) -> None:
    branch = held(participant)
    participant.finish(branch, COMMIT)
    assert [(called.branch, called.phase.value) for called in till.seen] == [(branch, "try"), (branch, "confirm")]
    (keys, ids) = zip(*((sent["Idempotency-Key"], sent["Txsaga-Transaction"]) for sent in till.headers), strict=True)
    assert keys == (f"{branch.gid}:try", f"{branch.gid}:confirm")
    assert set(ids) == {branch.transaction}
    assert SECRET not in str(till.headers)


@pytest.mark.parametrize(("status", "code"), [(409, RolledBack), (500, OtherReason), (302, OtherReason)])
def test_whatever_is_no_yes_is_a_no(participant: TccParticipant, till: Till, status: int, code: type[XaError]) -> None:
    till.answers.append(status)
    enlisted = participant.enlist(new_branch())
    with pytest.raises(code):
        enlisted.handle(item=1)
    with pytest.raises(RolledBack):
        enlisted.prepare()()
    assert enlisted.finish(ROLLBACK)() is Finish.DONE
    assert [called.phase.value for called in till.seen] == ["try", "cancel"]


def test_a_service_that_is_not_there_is_a_no(participant: TccParticipant) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    enlisted = participant_at(port).enlist(new_branch())
    with pytest.raises(CommunicationFailed):
        enlisted.handle(item=1)
    with pytest.raises(ResourceManagerFailed):
        enlisted.finish(ROLLBACK)()


def test_a_service_that_says_nothing_keeps_nobody_for_long() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        enlisted = participant_at(silent.getsockname()[1], timeout=0.1).enlist(new_branch())
        with pytest.raises(CommunicationFailed, match="timed out"):
            enlisted.handle(item=1)


@pytest.mark.parametrize("decision", list(Decision))
@pytest.mark.parametrize(
    ("status", "code"),
    [
        (503, ResourceManagerFailed),
        (429, ResourceManagerFailed),
        (409, ResourceManagerError),
        (302, ResourceManagerError),
    ],
)
def test_what_is_not_done_is_asked_again(
    participant: TccParticipant, till: Till, decision: Decision, status: int, code: type[XaError]
) -> None:
    branch = held(participant)
    till.answers.append(status)
    with pytest.raises(code, match=str(status)):
        participant.finish(branch, decision)
    assert list(participant.prepared(branch.store)) == [branch]
    assert participant.finish(branch, decision) is Finish.DONE
    assert till.items() == ({1} if decision is COMMIT else set())


@pytest.mark.req("WM-45")
@pytest.mark.parametrize("decision", list(Decision))
def test_what_the_service_does_not_know_is_a_hazard(
    participant: TccParticipant, till: Till, decision: Decision
) -> None:
    branch = held(participant)
    till.answers.append(404)
    assert participant.finish(branch, decision) is Finish.HAZARD


def test_a_try_that_never_came_through_may_be_unknown_to_its_cancel(participant: TccParticipant, till: Till) -> None:
    branch = new_branch()
    till.answers += [500, 404]
    enlisted = participant.enlist(branch)
    with pytest.raises(OtherReason):
        enlisted.handle(item=1)
    assert enlisted.finish(ROLLBACK)() is Finish.DONE


def test_a_service_with_another_secret_does_nothing(till: Till) -> None:
    participant = participant_at(till.server_port, secret="another secret, also long enough")
    with pytest.raises(OtherReason, match="401"):
        participant.enlist(new_branch()).handle(item=1)
    assert till.seen == []


@pytest.mark.parametrize(
    "address", ["ftp://host/x", "https:///x", "https://anna:word@host/x", "https://host/x#y", "http://host:x/", ""]
)
def test_an_address_that_can_not_be_signed_for_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="https://host/path"):
        HttpService(try_=address, confirm="https://host/", cancel="https://host/", secret=SECRET)


def test_a_secret_is_long_and_is_told_to_nobody(
    participant: TccParticipant, till: Till, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigError, match="5 bytes"):
        participant_at(till.server_port, secret="short")
    with caplog.at_level(logging.DEBUG):
        participant.finish(held(participant), COMMIT)
    assert SECRET not in caplog.text
    assert SECRET not in repr(vars(participant))


@pytest.mark.parametrize("where", ["status", "headers", "body"])
@pytest.mark.parametrize("phase", ["try", "confirm"])
def test_a_service_that_drips_keeps_nobody_for_longer_than_the_timeout(phase: str, where: str) -> None:
    with dripping(where) as port:
        begun, slow = monotonic(), service_at(port, timeout=1)
        if phase == "try":
            with pytest.raises(CommunicationFailed, match="timed out"):
                slow.attempt(new_branch(), {"item": 1})
        else:
            with pytest.raises(ResourceManagerFailed, match="timed out"):
                slow.confirm(new_branch(), Reservation(ReservationState.HELD, True, {"item": 1}))
        assert 0.9 < monotonic() - begun < 5


def test_a_service_that_takes_nothing_keeps_nobody_for_longer_than_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        begun = monotonic()
        with pytest.raises(CommunicationFailed, match="timed out"):
            participant_at(deaf.getsockname()[1], timeout=1).enlist(new_branch()).handle(item="x" * 30_000_000)
        assert monotonic() - begun < 5


def test_a_service_that_drips_over_tls_keeps_nobody_either(tmp_path: Path) -> None:
    server, client = certified(tmp_path)
    with dripping("body", server) as port:
        begun, at = monotonic(), f"https://localhost:{port}/"
        service = HttpService(try_=at, confirm=at, cancel=at, secret=SECRET, timeout=1, tls=client)
        with pytest.raises(CommunicationFailed, match="timed out"):
            service.participant("till", MemoryStore()).enlist(new_branch()).handle(item=1)
        assert monotonic() - begun < 5


def test_an_answer_comes_over_tls(tmp_path: Path) -> None:
    server, client = certified(tmp_path)
    with dripping("nothing", server) as port:
        at = f"https://localhost:{port}/"
        service = HttpService(try_=at, confirm=at, cancel=at, secret=SECRET, tls=client)
        assert service.participant("till", MemoryStore()).enlist(new_branch()).handle(item=1) == {"did": 1}


@pytest.mark.parametrize("timeout", [0, -1, "1", float("inf"), True, None])
def test_a_timeout_is_more_than_nothing(timeout: float) -> None:
    with pytest.raises(ConfigError, match=r"^timeout is .*; give seconds, more than 0$"):
        participant_at(80, timeout=timeout)


def test_an_answer_that_is_too_long_is_not_cut(participant: TccParticipant, till: Till) -> None:
    till.padding = " " * 1_000_000
    enlisted = participant.enlist(new_branch())
    with pytest.raises(OtherReason, match="more than 1,000,000 bytes; answer with less"):
        enlisted.handle(item=1)
    with pytest.raises(RolledBack, match="answer with less"):
        enlisted.prepare()()
    assert enlisted.finish(ROLLBACK)() is Finish.DONE


def test_an_answer_that_ends_early_is_no_answer_to_a_try_and_one_to_a_confirm() -> None:
    branch = new_branch()
    with answering(EARLY) as port, pytest.raises(OtherReason, match="answered with fewer bytes than it announced"):
        service_at(port).attempt(branch, {"item": 1})
    with answering(EARLY) as port:
        held = Reservation(ReservationState.HELD, True, {"item": 1})
        assert service_at(port).confirm(branch, held) is Finish.DONE


def test_an_answer_that_nobody_reads_may_have_any_length(participant: TccParticipant, till: Till) -> None:
    branch = held(participant)
    till.padding = " " * 1_000_000
    assert participant.finish(branch, COMMIT) is Finish.DONE
    assert till.items() == {1}
