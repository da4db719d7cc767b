"""A session of Spark Connect writes on a branch as any other does, and is refused what any other is."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.lake.books import COLUMNS, LEDGER, Books, rows
from tests.services.absent import ci_or_skip
from tests.spark.conftest import JARS, MAKE_JARS, jars

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]


WITHOUT = """
import sys
sys.modules["grpc_status"] = None
from txsaga.errors import LakeMissing
from txsaga.spark import session
try:
    session(master="sc://127.0.0.1:1")
except LakeMissing as missing:
    print(missing)
"""


def test_a_session_through_connect_that_lacks_packages_says_which() -> None:
    command = [sys.executable, "-W", "ignore", "-c", WITHOUT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.startswith("a session through Connect needs more packages: pip install 'pyspark[connect]'"), (
        done.stdout + done.stderr
    )


@pytest.mark.usefixtures("jdbc_login")
def test_a_session_through_connect_changes_a_table_on_a_branch(books: Books, home_url: str, warehouse: Path) -> None:
    if find_spec("grpc_status") is None:
        ci_or_skip("the client of Spark Connect", "pip install 'pyspark[connect]'")
    if not jars():
        ci_or_skip("the Iceberg runtime", MAKE_JARS)
    with books.producer.transaction() as tx:
        tx.table(LEDGER).create(COLUMNS, partitions=["day"]).append(rows(1, 2, 3))
    said = {
        "TXSAGA_URL": home_url,
        "TXSAGA_WAREHOUSE": str(warehouse),
        "TXSAGA_CATALOG": books.lake.catalog.name,
        JARS: jars(),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_TESTING": "1",  # any free port: a client of a local server looks for it at one place otherwise
        "PYTHONPATH": f"{Path.cwd()}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    }
    command = [sys.executable, "-W", "ignore", "-m", "tests.spark.connecting", "local[2]", LEDGER]
    done = subprocess.run(command, env={**os.environ, **said}, capture_output=True, text=True, timeout=240, check=False)
    assert "FOUND" in done.stdout, done.stdout + done.stderr
    found = json.loads(done.stdout.rpartition("FOUND ")[2])
    assert (found["inside"], found["outside"]) == (4, 3)
    assert found["application"].startswith("local-")
    assert found["refused"].startswith("BranchMissed: this session wrote snapshot")
    assert books.ids() == [1, 3, 5, 6, 9]
