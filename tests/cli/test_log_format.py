"""The log of a command: one line per record, for people or as JSON."""

from __future__ import annotations

import json
import logging
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.program import TIMEOUT, environment, started
from txsaga.cli.log_format import to_stderr

logger = logging.getLogger("txsaga")


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:], logger.propagate = before[0], before[2]
    logger.setLevel(before[1])


def written(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return the one document on standard error."""
    (line,) = capsys.readouterr().err.splitlines()
    found = json.loads(line)
    assert isinstance(found, dict)
    return found


def test_a_document_carries_what_a_record_is_about(capsys: pytest.CaptureFixture[str]) -> None:
    to_stderr(debug=False, as_json=True)
    logger.error("transaction %d is\nlost", 7, extra={"txid": 7, "group": "billing"})
    found = written(capsys)
    assert found.pop("time").endswith("+00:00")
    assert found == {"level": "error", "message": "transaction 7 is\nlost", "txid": 7, "group": "billing"}


def test_a_document_names_the_role_whose_thread_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    to_stderr(debug=False, as_json=True)
    thread = threading.Thread(target=lambda: logger.warning("slow"), name="txsaga-check-back")
    thread.start()
    thread.join()
    assert written(capsys)["role"] == "check-back"


@pytest.mark.parametrize("debug", [False, True])
def test_a_failure_is_named_and_its_traceback_only_with_debug(capsys: pytest.CaptureFixture[str], debug: bool) -> None:
    to_stderr(debug=debug, as_json=True)
    try:
        raise ValueError("no chair is left")
    except ValueError:
        logger.exception("it failed")
    found = written(capsys)
    assert (found["error"], found["error_message"]) == ("ValueError", "no chair is left")
    assert ("traceback" in found) is debug


def test_people_get_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    to_stderr(debug=False)
    logger.warning("two\nlines", extra={"txid": 7})
    assert capsys.readouterr().err.endswith("WARNING two lines\n")


@pytest.mark.postgres
def test_an_engine_writes_documents(own_url: str) -> None:
    with started("engine", "--log-format", "json", env=environment(TXSAGA_URL=own_url)) as engine:
        assert engine.stderr is not None
        first = json.loads(engine.stderr.readline())
        engine.send_signal(signal.SIGTERM)
        _, rest = engine.communicate(timeout=TIMEOUT)
    assert (first["level"], first["message"][:15]) == ("info", "engine started:")
    assert [json.loads(line)["message"][:15] for line in rest.splitlines()] == ["engine stopped:"]
