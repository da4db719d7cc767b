"""`txsaga config show`, `txsaga completion` and lengths of time: none needs a database."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.cli.conftest import Cli
from txsaga.cli.printing import shown

pytestmark = pytest.mark.core
AWAY = "postgresql://anna:secret@127.0.0.1:1/none?namespace=orders"


def test_settings_are_listed_without_secrets_and_with_their_problems(bare: Cli) -> None:
    said = bare(
        "config",
        "show",
        "--json",
        TXSAGA_URL=AWAY,
        TXSAGA_RESOURCE_BANK="postgresql://bob:hidden@h/d",
        TXSAGA_AUTO_CREATE="maybe",
        TXSAGA_SUITES="",
        TXSAGA_WAREHUOSE="/lake",
    )
    found = {each["setting"]: (each["value"], each["problem"]) for each in said.documents}
    assert found["TXSAGA_RESOURCE_BANK"] == ("postgresql://***@h/d", "")
    assert found["TXSAGA_AUTO_CREATE"] == ("maybe", "")
    assert found["TXSAGA_WAREHUOSE"] == ("***", "no setting has this name")
    assert found["TXSAGA_SUITES"] == ("", "")
    assert found["home database"] == ("not usable", "TXSAGA_AUTO_CREATE is 'maybe'; write 1 or 0")
    assert (said.code, "secret" in said.out, "hidden" in said.out) == (0, False, False)


def test_the_home_database_is_the_one_that_is_used(bare: Cli) -> None:
    home = bare("config", "show", "--json", TXSAGA_URL=AWAY).documents[0]
    assert home == {"setting": "home database", "value": "postgresql://***@127.0.0.1:1/none?***", "problem": ""}
    assert "embedded, namespace bank" in bare("config", "show", "--namespace", "bank").lines[1]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"TXSAGA_URL": "mysql://anna:secret@h/d"}, "the home database is PostgreSQL"),
        ({"TXSAGA_RESOURCE_BANK": "secret"}, "is not a database URL"),
        ({"TXSAGA_PARTICIPANT_X": "nomod:thing"}, "can't be loaded"),
        ({"TXSAGA_AIRFLOW_URL": "admin:secret"}, "is not an address of Airflow"),
    ],
)
def test_what_every_command_would_refuse_is_a_problem(bare: Cli, settings: dict[str, str], problem: str) -> None:
    said = bare("config", "show", "--json", **settings)
    assert (said.code, "secret" in said.out) == (0, False)
    assert problem in said.documents[0]["problem"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_asks_for_completions(bare: Cli, shell: str) -> None:
    assert "_TXSAGA_COMPLETE" in bare("completion", shell).out


@pytest.mark.parametrize(
    ("line", "at", "wanted"), [("txsaga tx s", 2, ["show", "settle"]), ("txsaga branch list --st", 3, ["--state"])]
)
def test_a_shell_is_answered(bare: Cli, line: str, at: int, wanted: list[str]) -> None:
    said = bare(_TXSAGA_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(at))
    assert (said.code, said.lines) == (0, wanted)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (59.94, "59.9 s"),
        (60, "1 min 0 s"),
        (3_599.6, "1 h 0 min"),
        (7_500, "2 h 5 min"),
        (273_600, "3 d 4 h"),
    ],
)
def test_a_length_of_time_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert shown(timedelta(seconds=seconds)) == text
