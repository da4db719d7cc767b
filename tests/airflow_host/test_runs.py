"""What Airflow says of a run, and what is made of its silence (R5)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.airflow_host.fake import FakeAirflow, fake_airflow
from tests.services.free_port import free_port
from txsaga.airflow_host.instance import airflow_name, run_name, run_of
from txsaga.airflow_host.rest import Airflow
from txsaga.airflow_host.runs import SILENCE, AirflowRuns
from txsaga.checkback.runs import RunState
from txsaga.errors import ConfigError, HostFailed

pytestmark = pytest.mark.rule("R5")
RUN = "airflow:bank/manual__1"


class Clock:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def fake() -> Iterator[FakeAirflow]:
    """Give an Airflow."""
    with fake_airflow() as fake:
        yield fake


@pytest.mark.parametrize("state", ["queued", "running", "restarting"])
def test_a_run_that_has_not_ended_is_alive(fake: FakeAirflow, state: str) -> None:
    fake.runs["bank/manual__1"] = state
    assert AirflowRuns(Airflow(fake.url)).state(RUN) is RunState.ALIVE


@pytest.mark.parametrize("state", ["success", "failed"])
def test_a_run_that_ended_is_over_however_it_ended(fake: FakeAirflow, state: str) -> None:
    fake.runs["bank/manual__1"] = state
    assert AirflowRuns(Airflow(fake.url)).state(RUN) is RunState.OVER


def test_a_run_that_was_deleted_is_over(fake: FakeAirflow) -> None:
    assert AirflowRuns(Airflow(fake.url)).state(RUN) is RunState.OVER


@pytest.mark.parametrize("answer", [{"detail": "Not Found"}, {"error": "no route"}, {"detail": "Dag not found"}])
def test_a_404_that_is_not_airflows_own_ends_no_run(fake: FakeAirflow, answer: dict[str, str]) -> None:
    fake.missing = answer
    assert AirflowRuns(Airflow(fake.url)).state(RUN) is RunState.UNREACHABLE


def test_a_run_of_another_airflow_is_not_asked_about(fake: FakeAirflow, caplog: pytest.LogCaptureFixture) -> None:
    runs = AirflowRuns(Airflow(fake.url), name="north", clock=Clock())
    other = run_name("bank", "manual__1", "south")
    assert [runs.state(other), runs.state(other)] == [RunState.UNREACHABLE] * 2
    assert not fake.asked
    assert caplog.text.count("set the same TXSAGA_AIRFLOW_NAME") == 1
    fake.runs["bank/manual__1"] = "running"
    assert runs.state(run_name("bank", "manual__1", "north")) is RunState.ALIVE


def test_a_name_is_given_or_made_of_the_address() -> None:
    assert airflow_name("north", "http://a:b@one:8080") == "north"
    assert airflow_name(None, "http://a:b@one:8080/x/") == "one-8080-x"
    assert airflow_name(None, None) == ""
    with pytest.raises(ConfigError, match="TXSAGA_AIRFLOW_NAME is 'a/b'; write up to 64 letters"):
        airflow_name("a/b", None)


@pytest.mark.parametrize("airflow", ["", "one-8080"])
def test_a_name_of_a_run_is_read_as_it_was_made(airflow: str) -> None:
    assert run_of(run_name("bank", "manual:1/2", airflow)) == (airflow, "bank", "manual:1/2")
    assert run_of("cron/1") is None
    assert run_of("airflow:bank") is None


def test_who_is_silent_is_taken_for_alive_and_not_asked_again_at_once() -> None:
    clock = Clock()
    runs = AirflowRuns(Airflow(f"http://a:b@127.0.0.1:{free_port()}"), clock=clock)
    assert runs.state(RUN) is RunState.UNREACHABLE
    assert runs.state("airflow:bank/other") is RunState.UNREACHABLE


def test_who_answers_again_is_asked_again(fake: FakeAirflow) -> None:
    clock = Clock()
    runs = AirflowRuns(Airflow(fake.url), clock=clock)
    fake.broken = True
    assert runs.state(RUN) is RunState.UNREACHABLE
    fake.broken, asked = False, len(fake.asked)
    assert runs.state(RUN) is RunState.UNREACHABLE
    assert len(fake.asked) == asked
    clock.now += SILENCE
    assert runs.state(RUN) is RunState.OVER


def test_a_wrong_login_is_no_answer(fake: FakeAirflow) -> None:
    fake.refuses = True
    assert AirflowRuns(Airflow(fake.url)).state(RUN) is RunState.UNREACHABLE
    with pytest.raises(HostFailed, match="refuses the login"):
        Airflow(fake.url).run("bank", "manual__1")


def test_a_run_of_another_host_is_not_judged_here(fake: FakeAirflow) -> None:
    assert AirflowRuns(Airflow(fake.url)).state("cron/17") is RunState.UNREACHABLE
    assert AirflowRuns(Airflow(fake.url)).state("airflow:bank") is RunState.UNREACHABLE
    assert not fake.asked


def test_many_transactions_of_one_run_are_one_question(fake: FakeAirflow) -> None:
    fake.runs["bank/manual__1"] = "running"
    runs = AirflowRuns(Airflow(fake.url), clock=Clock())
    assert {runs.state(RUN) for _ in range(50)} == {RunState.ALIVE}
    assert len(fake.asked) == 2  # the login and one question


def test_a_token_that_ran_out_is_got_again(fake: FakeAirflow) -> None:
    airflow = Airflow(fake.url)
    fake.runs["bank/manual__1"] = "running"
    assert airflow.run("bank", "manual__1") == {"state": "running"}
    fake.valid = "token-2"
    assert airflow.run("bank", "manual__1") == {"state": "running"}
    assert fake.logins == 2


@pytest.mark.parametrize("url", ["localhost:8080", "postgresql://u:p@h/db", "http://"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="TXSAGA_AIRFLOW_URL"):
        Airflow(url)
