"""The kit for several tables in one commit: a good catalog passes, and each seeded defect is found."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.program import environment, started
from tests.open_catalog.defects import DEFECTS, Asked, Defect, Told, failure, through
from tests.open_catalog.reference import reference_server
from tests.services.databases import fresh_name
from tests.services.spares import Spares
from txsaga.core import exits
from txsaga.testing.catalog.__main__ import main
from txsaga.testing.catalog.client import CatalogClient
from txsaga.testing.catalog.running import CASES, CaseResult, CaseVerdict, must, run_cases
from txsaga.testing.catalog.visibility import Sighting, older
from txsaga.wiring.connecting import open_store

SHORT = ("--seconds", "1", "--patience", "10")
REFERENCE_VIOLATES = {
    *("torn-read", "partial-commit", "same-base", "opposite-orders", "table-twice"),
    *("empty-request", "unknown-requirement"),  # answered with 500
}
REFERENCE_LACKS = {"idempotent-retry", "create-with-change"}
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def shared_catalog(home_database: str, spares: Spares, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give the URL of our catalog; each case makes a namespace of its own there."""
    home = f"{home_database}{'&' if '?' in home_database else '?'}namespace={fresh_name('t')}"
    open_store(home).close()
    env = environment(TXSAGA_URL=home, TXSAGA_WAREHOUSE=str(tmp_path_factory.mktemp("warehouse")))
    with started("catalog", "--port", "0", env=env) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.send_signal(signal.SIGINT)
        assert server.wait(20) == exits.INTERRUPTED
    spares.give_back(home)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Give a way to run the command line: its exit code, standard output and standard error."""

    def run(*words: str) -> tuple[int, str, str]:
        code = main(words)
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


def results(url: str, names: Sequence[str], patience: float = 3) -> list[CaseResult]:
    """Run cases, briefly."""
    with closing(CatalogClient(url, {}, timeout=patience)) as client:
        client.configure(None, None)
        return list(run_cases(client, names, seconds=1, patience=patience))


@pytest.mark.parametrize("case", CASES)
def test_our_catalog_holds(shared_catalog: str, case: str) -> None:
    (result,) = results(shared_catalog, [case], patience=20)
    assert result.verdict is CaseVerdict.HELD, result.evidence


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda kind: kind.__name__)
def test_a_defect_is_found(shared_catalog: str, defect: type[Defect]) -> None:
    with through(defect(shared_catalog)) as url:
        found = results(url, defect.found_by)
    assert {result.case: result.verdict for result in found} == dict.fromkeys(defect.found_by, CaseVerdict.VIOLATED)


def test_the_proxy_alone_is_no_defect(shared_catalog: str) -> None:
    with through(Defect(shared_catalog)) as url:
        found = results(url, ["torn-read", "idempotent-retry", "same-base", "create-with-change"], patience=20)
    assert [f"{result.case}: {result.evidence}" for result in found if result.verdict is not CaseVerdict.HELD] == []


@pytest.mark.slow
def test_icebergs_reference_server_commits_table_by_table() -> None:
    with reference_server() as url:
        found = {result.case: result.verdict for result in results(url, [], patience=20)}
    assert {case for case, verdict in found.items() if verdict is CaseVerdict.VIOLATED} == REFERENCE_VIOLATES
    assert {case for case, verdict in found.items() if verdict is CaseVerdict.NOT_SUPPORTED} == REFERENCE_LACKS


def test_every_case_finds_some_defect() -> None:
    assert len(DEFECTS) >= 12
    assert {name for defect in DEFECTS for name in defect.found_by} == set(CASES)


def test_the_page_of_the_kit_lists_every_case_and_what_must_hold() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "check-a-catalog.md").read_text("utf-8")
    assert re.findall(r"^\| `(\w[a-z-]+)` \| ([A-Z][^|]*) \|$", page, re.M) == [
        (name, must(case)) for name, case in CASES.items()
    ]


def seen(where: str, n: int, sent: float, answered: float) -> Sighting:
    return Sighting(where, n, sent, answered)


def test_a_load_that_overlaps_another_proves_nothing() -> None:
    assert older([seen("a", 2, 0, 10), seen("b", 1, 9, 20)]) is None
    assert older([seen("a", 1, 0, 10), seen("b", 2, 11, 20), seen("a", 2, 21, 22)]) is None


def test_a_load_that_shows_less_than_one_before_it_is_a_tear() -> None:
    first, second = seen("a", 2, 0, 10), seen("b", 1, 10, 20)
    assert older([second, seen("c", 1, 0, 1), first]) == (first, second)


def test_the_command_line_prints_a_line_for_each_case(shared_catalog: str, run: Run) -> None:
    code, out, err = run(shared_catalog, "--only", "table-twice", "--only", "empty-request", *SHORT)
    assert (code, err) == (0, "")
    assert [line.split()[:2] for line in out.splitlines()] == [["table-twice", "held"], ["empty-request", "held"]]


def test_what_is_violated_is_told_with_its_evidence_and_by_the_exit_code(shared_catalog: str, run: Run) -> None:
    defect = next(each for each in DEFECTS if each.__name__ == "FailsOnNothing")
    with through(defect(shared_catalog)) as url:
        code, out, _ = run(f"{url}/v1/", "--only", "empty-request", "--json", *SHORT)
    (told,) = json.loads(out)
    assert code == 1
    assert told["result"] == "violated"
    assert "answers 500" in told["evidence"]
    assert told["must"].startswith("A commit of no changes")


class Configured(Defect):
    """Serves a configuration of its own, below a prefix, to who has a token."""

    def __init__(self, url: str, config: dict[str, object]) -> None:
        super().__init__(url)
        self._config = json.dumps(config).encode()
        self.prefixes: set[str] = set()

    def answer(self, asked: Asked) -> Told:
        if asked.headers.get("authorization") != "Bearer sesame" or asked.headers.get("x-team") != "a=b":
            return failure(401)
        if asked.path.startswith("/v1/config"):
            return Told(200, {"content-type": "application/json"}, self._config)
        prefix, _, rest = asked.path.removeprefix("/v1/").partition("/")
        self.prefixes.add(prefix)
        return super().answer(replace(asked, path=f"/v1/{rest}"))


@pytest.mark.parametrize("said", [[], ["--prefix", "mine"]], ids=["prefix of the server", "prefix that is given"])
def test_prefix_token_and_headers_are_sent(shared_catalog: str, run: Run, said: list[str]) -> None:
    defect = Configured(shared_catalog, {"defaults": {"prefix": "w"}, "overrides": {"prefix": "ware house"}})
    with through(defect) as url:
        given = [url, "--token", "sesame", "--header", "X-Team=a=b", "--only", "empty-request", *said, *SHORT]
        code, out, err = run(*given)
    assert (code, err) == (0, ""), out
    assert defect.prefixes == {"mine" if said else "ware%20house"}


def test_without_the_promise_to_remember_keys_they_are_not_tried(shared_catalog: str, run: Run) -> None:
    with through(Configured(shared_catalog, {"overrides": {"prefix": "w"}})) as url:
        given = [url, "--token", "sesame", "--header", "x-team=a=b", "--only", "idempotent-retry", *SHORT]
        code, out, _ = run(*given)
    assert code == 0
    assert out.split(maxsplit=3)[1:3] == ["not", "supported"]


@pytest.mark.parametrize(
    ("config", "token", "told"),
    [
        ({"endpoints": ["GET /v1/{prefix}/namespaces"]}, "sesame", "does not list POST /v1/{prefix}/transactions"),
        ({}, "wrong", "GET /v1/config answers 401"),
    ],
    ids=["no commits of several tables", "a wrong token"],
)
def test_what_is_no_catalog_of_that_kind_is_one_clear_line(
    shared_catalog: str, run: Run, config: dict[str, object], token: str, told: str
) -> None:
    with through(Configured(shared_catalog, config)) as url:
        code, out, err = run(url, "--token", token, "--header", "x-team=a=b")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert told in err


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "127.0.0.1:8181", "ftp://127.0.0.1"])
def test_a_server_that_is_not_there_is_one_clear_line(run: Run, url: str) -> None:
    code, out, err = run(url)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert url in err


def test_a_case_that_does_not_exist_is_a_mistake_of_usage(run: Run) -> None:
    with pytest.raises(SystemExit) as left:
        run("http://127.0.0.1:1", "--only", "nothing")
    assert left.value.code == 2


def test_files_that_cannot_be_reached_leave_a_case_untried(shared_catalog: str, tmp_path: Path) -> None:
    class Elsewhere(Defect):
        """Its files are where the kit can't look."""

        def load(self, asked: Asked) -> Told:
            told = self.send(asked)
            if told.status != 200:
                return told
            moved = {**told.parsed, "metadata-location": f"file://{tmp_path}/gone.metadata.json"}
            return replace(told, body=json.dumps(moved).encode())

    with through(Elsewhere(shared_catalog)) as url:
        kept, zombie = results(url, ["metadata-kept", "zombie-commit"])
    assert kept.verdict is CaseVerdict.NOT_SUPPORTED
    assert "not there, seen from here" in kept.evidence
    assert zombie.verdict is CaseVerdict.HELD
    assert "old snapshots not tried" in zombie.evidence
