"""The commands of the page on backups, on real servers: what was there comes back, and the store knows where it is."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import txsaga
from tests.docs.snippets import blocks
from tests.services.embedded import temporary_home
from txsaga.core.identity import StoreId
from txsaga.embedded.binaries import find_binaries

pytestmark = [pytest.mark.postgres, pytest.mark.rule("R8")]
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "backup.md"
SHELL = {block.body.splitlines()[0].removeprefix("# "): block.body for block in blocks(PAGE) if block.info == "sh"}
DEED = """
import txsaga
from sqlalchemy import text

with txsaga.connect(roles=False) as broker:
    with broker.producer("office", checker=lambda question: txsaga.UNKNOWN).transaction(key="deed-1") as tx:
        tx.send("deeds", b"deed 1")
        with tx.local("office") as connection:
            connection.execute(text("CREATE TABLE deed (number INTEGER)"))
"""


@pytest.fixture
def homes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Give a folder for homes of embedded servers, and what the page needs on the path of programs."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "txsaga").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m txsaga.cli "$@"\n')
    (programs / "txsaga").chmod(0o755)
    beside = find_binaries(wanted=None, major=None).folder
    monkeypatch.setenv("PATH", os.pathsep.join([str(programs), str(beside), os.environ["PATH"]]))
    monkeypatch.setenv("PYTHONPATH", str(PAGE.parents[2]))
    monkeypatch.delenv("TXSAGA_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    with temporary_home() as folder:
        monkeypatch.setenv("TXSAGA_PG_HOME", str(folder / "pg"))
        yield folder


def shell(script: str, **settings: str) -> str:
    """Run commands as a user would."""
    done = subprocess.run(
        ["bash", "-eu", "-c", script], env={**os.environ, **settings}, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout


def identity() -> StoreId:
    """Tell who the store is."""
    with txsaga.connect(roles=False) as broker:
        return broker.identity


def consumed(group: str = "billing") -> list[str]:
    """Return what a group is given, and leave it done."""
    return [line.split()[-1] for line in shell(f"txsaga consume {group} orders").splitlines()]


def test_every_block_of_the_page_is_tried() -> None:
    assert sorted(SHELL) == ["base backup", "dump", "restore the base backup", "restore the dump"]


@pytest.mark.slow
def test_a_dump_is_restored_in_another_server(homes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shell(
        "txsaga db migrate; txsaga topic create orders; txsaga send orders one --key a; txsaga send orders two --key a"
    )
    shell("txsaga consume billing orders --count 1")
    before = identity()
    shell(SHELL["dump"])
    shell("txsaga send orders three; txsaga db stop")
    monkeypatch.setenv("TXSAGA_PG_HOME", str(homes / "new"))
    restore, adopt = SHELL["restore the dump"].rsplit("txsaga db adopt", 1)
    shell(restore)
    with pytest.raises(txsaga.errors.IdentityChanged):
        identity()
    shell("txsaga db adopt" + adopt)
    assert (identity().uuid, identity().incarnation) == (before.uuid, before.incarnation + 1)
    assert consumed() == ["two"]
    shell("txsaga send orders four")
    assert consumed() == ["four"]
    assert sorted(consumed("another")) == ["four", "one", "two"]


@pytest.mark.slow
def test_a_base_backup_is_put_back_with_the_work_that_was_undecided(
    homes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell("txsaga db migrate; txsaga topic create orders; txsaga topic create deeds --type transaction")
    url = shell("txsaga db url").strip()
    shell(f"psql --quiet --command='CREATE DATABASE office' '{url}'")
    monkeypatch.setenv(
        "TXSAGA_RESOURCE_OFFICE", url.replace("postgresql:", "postgresql+psycopg:").rpartition("/")[0] + "/office"
    )
    Path("deed.py").write_text(DEED)
    shell(
        f"{sys.executable} deed.py || test $? = 137",
        TXSAGA_OBSERVERS="txsaga.testing.kill:observer",
        TXSAGA_KILL="Worked:1",
    )
    before = identity()
    shell(SHELL["base backup"])
    shell("txsaga send orders lost")
    shell(SHELL["restore the base backup"])
    assert identity().incarnation == before.incarnation + 1
    shell("txsaga tx settle --min-age 0")
    assert "deed 1" in shell("txsaga tail deeds")
    shell("txsaga send orders new")
    assert consumed() == ["new"]
