"""The loop: rounds, waits, errors and stop exist once."""

from __future__ import annotations

import threading
import time

import pytest

from tests.scene.patience import eventually
from tests.scene.threads import fail_to_start_once
from txsaga.core.role_loop import Loop, Pace
from txsaga.errors import StoreUnavailable


class Counted:
    """A role that signals each of its rounds."""

    def __init__(
        self,
        name: str,
        *,
        pause: float = 0.001,
        breath: float = 0.0,
        fails: int = 0,
        done: int = 0,
        failure: Exception | None = None,
    ) -> None:
        self.name, self.pace = name, Pace(pause, 16 * pause, breath)
        self._fails, self._done, self._failure = fails, done, failure or RuntimeError("on purpose")
        self.rounds = 0
        self.reached = threading.Event()
        self.want = 3

    def run_once(self) -> int:
        self.rounds += 1
        if self.rounds >= self.want:
            self.reached.set()
        if self.rounds <= self._fails:
            raise self._failure
        return self._done


def test_every_role_runs_again_and_again_until_the_stop() -> None:
    roles = [Counted("one"), Counted("two")]
    loop = Loop(roles)
    loop.start()
    assert all(role.reached.wait(10) for role in roles)
    loop.stop()
    rounds = [role.rounds for role in roles]
    assert not any(thread.name.startswith("txsaga-one") for thread in threading.enumerate())
    assert rounds == [role.rounds for role in roles]


def test_a_failing_round_is_logged_and_the_role_goes_on(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txsaga.core.role_loop.AFTER_ERROR", 0.001)
    role = Counted("poor", fails=2)
    loop = Loop([role])
    loop.start()
    assert role.reached.wait(10)
    loop.stop()
    assert "role poor failed" in caplog.text


def test_what_a_retry_mends_is_told_once_and_so_is_its_end(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txsaga.core.role_loop.AFTER_ERROR", 0.001)
    role = Counted("patient", fails=3, failure=StoreUnavailable("the home database did not answer"))
    role.want = 5
    loop = Loop([role])
    loop.start()
    assert role.reached.wait(10)
    loop.stop()
    assert [record.getMessage() for record in caplog.records] == [
        "role patient waits: the home database did not answer",
        "role patient is running again",
    ]
    assert [record.exc_info for record in caplog.records] == [None, None]


def test_a_wake_ends_a_long_wait() -> None:
    role = Counted("sleepy", pause=3600)
    role.want = 2
    loop = Loop([role])
    loop.start()
    while role.rounds < 1:
        threading.Event().wait(0.001)
    loop.wake("sleepy")
    assert role.reached.wait(10)
    loop.stop()


def test_parts_of_a_role_do_not_wait_for_each_other() -> None:
    quick, asleep, may_end = Counted("two"), Counted("two", pause=3600), threading.Event()

    class Hanging(Counted):
        def run_once(self) -> int:
            super().run_once()
            may_end.wait(10)
            return 0

    hanging = Hanging("two", pause=3600)
    loop = Loop([hanging, quick, asleep])
    loop.start()
    eventually(lambda: hanging.rounds == 1 and asleep.rounds == 1, "the first round of each")
    assert quick.reached.wait(10)
    loop.wake("two")
    eventually(lambda: asleep.rounds == 2, "the round after the wake")
    stopper = threading.Thread(target=loop.stop)
    stopper.start()
    may_end.set()
    stopper.join(5)
    assert not stopper.is_alive()
    assert hanging.rounds == 1


def test_a_role_that_did_something_takes_its_breath_whoever_wakes_it() -> None:
    role = Counted("eager", breath=0.05, done=1)
    loop = Loop([role])
    began = time.monotonic()
    loop.start()
    while not role.reached.is_set():
        loop.wake("eager")
        threading.Event().wait(0.001)
    loop.stop()
    assert time.monotonic() - began >= 0.1


def test_what_wakes_a_role_in_its_breath_costs_no_round_more() -> None:
    class Once(Counted):
        def run_once(self) -> int:
            super().run_once()
            return 1 if self.rounds == 1 else 0

    role = Once("once", pause=3600, breath=0.2)
    role.want = 1
    loop = Loop([role])
    loop.start()
    assert role.reached.wait(10)
    loop.wake("once")
    eventually(lambda: role.rounds == 2, "the round behind the breath")
    threading.Event().wait(0.1)
    loop.stop()
    assert role.rounds == 2


def test_a_stop_ends_a_breath() -> None:
    role = Counted("eager", breath=3600, done=1)
    role.want = 1
    loop = Loop([role])
    loop.start()
    assert role.reached.wait(10)
    stopper = threading.Thread(target=loop.stop)
    stopper.start()
    stopper.join(5)
    assert not stopper.is_alive()


@pytest.mark.req("RMQ-30")
def test_a_stop_is_quick_even_in_a_long_wait() -> None:
    loop = Loop([Counted("sleepy", pause=3600)])
    loop.start()
    stopper = threading.Thread(target=loop.stop)
    stopper.start()
    stopper.join(5)
    assert not stopper.is_alive()


def test_of_threads_that_can_not_all_be_started_none_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    roles = [Counted("first"), Counted("second")]
    fail_to_start_once(monkeypatch, "txsaga-second")
    with pytest.raises(RuntimeError, match="can't start"):
        Loop(roles).start()
    assert not any(thread.name == "txsaga-first" for thread in threading.enumerate())
    again = Loop(roles)
    again.start()
    assert all(role.reached.wait(10) for role in roles)
    again.stop()
