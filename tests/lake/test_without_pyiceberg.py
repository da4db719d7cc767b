"""An engine without the extra `lake` says so once, does the rest, and leaves tables to an engine that has it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Thread

import pytest

from tests.cli.program import TIMEOUT, environment, started
from tests.lake.books import LEDGER, Books, rows
from tests.scene.patience import eventually
from tests.scene.stored import Stored
from txsaga.errors import LakeMissing
from txsaga.store.doctor import Finding, Severity, examine

pytestmark = pytest.mark.postgres

CHECKER = "from txsaga import LocalState\n\n\ndef say(question):\n    return LocalState.COMMIT\n"
MISSING = "import sys\n\nsys.modules['pyiceberg'] = None\n"


class Died(Exception):
    """What stands for the end of a process."""


@contextmanager
def engine(home_url: str, warehouse: Path, code: Path) -> Iterator[list[str]]:
    """Run an engine that says COMMIT for the bank; give what it logs, all of it after the block."""
    env = environment(TXSAGA_URL=home_url, TXSAGA_WAREHOUSE=str(warehouse), PYTHONPATH=str(code))
    logged: list[str] = []
    with started("engine", "--profile", "5x", "--checker", "bank=saying:say", env=env) as process:
        assert process.stderr is not None
        reading = Thread(target=logged.extend, args=(process.stderr,))
        reading.start()
        try:
            yield logged
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(TIMEOUT)
            reading.join()


def leave_closed(books: Books, key: str, *, table: bool) -> None:
    """Send, and perhaps write to a table, close, and never decide."""
    with pytest.raises(Died), books.producer.transaction(key=key) as tx:
        if table:
            tx.table(LEDGER).append(rows(1))
        tx.send("booked", key.encode())
        tx.prepare()
        raise Died


def tables(home_url: str) -> Finding:
    """Return what the doctor says of tables."""
    return next(finding for finding in examine(home_url) if finding.what == "tables")


def newer(stored: Stored, newest: str, looks: list[object]) -> object:
    """Return when the last check was, once it is another one than before."""
    found = stored.value(newest)
    return None if found in looks else found


@pytest.mark.rule("R2")
@pytest.mark.slow
@pytest.mark.timeout(90)
def test_tables_of_a_dead_producer_wait_for_an_engine_that_can_publish_them(
    home_url: str, books: Books, warehouse: Path, tmp_path: Path
) -> None:
    stored, code = Stored(home_url), tmp_path / "code"
    code.mkdir()
    (code / "saying.py").write_text(CHECKER)
    (code / "sitecustomize.py").write_text(MISSING)
    books.create()
    leave_closed(books, "with a table", table=True)
    leave_closed(books, "without", table=False)
    stored.let_pass(3600)
    newest = "SELECT max(r ->> 'at') FROM doubt, jsonb_array_elements(remarks) r"  # an equal remark takes its place
    looks: list[object] = [None]
    with engine(home_url, warehouse, code) as logged:
        eventually(lambda: stored.value("SELECT count(*) FROM log"), "the other transaction is committed")
        for _ in range(3):
            looks.append(eventually(partial(newer, stored, newest, looks), "the table is looked at again"))
            stored.let_pass(3600)
    assert sum(LakeMissing.INSTALL in line for line in logged) == 1
    assert not any("Traceback" in line for line in logged)
    found = tables(home_url)
    assert (found.severity, LakeMissing.INSTALL in str(found.remedy)) == (Severity.WARNING, True)
    assert books.ids() == []

    (code / "sitecustomize.py").unlink()
    with engine(home_url, warehouse, code):
        eventually(lambda: books.ids() == [1], "the table is published")
    assert tables(home_url).severity is Severity.OK
