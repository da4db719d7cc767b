"""The logins of docker-compose.yml, on a server that its script has prepared: each may do its work, and no more."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping

import psycopg
import pytest
from sqlalchemy import make_url

from tests.architecture.test_compose import FIRST_START, SERVICES
from tests.cli.conftest import Cli
from tests.cli.program import COMMAND, environment, run
from tests.services.absent import ci_or_skip
from tests.services.embedded import embedded_server

pytestmark = [pytest.mark.postgres, pytest.mark.slow, pytest.mark.timeout(300)]

LOGINS = ("airflow", "engine", "flows")


@pytest.fixture(scope="module")
def urls() -> Iterator[Mapping[str, str]]:
    """Give the URL of the store for each login, prepared as the containers do it."""
    psql = shutil.which("psql")
    if psql is None:
        ci_or_skip("psql", "apt-get install -y --no-install-recommends postgresql-client")
    with embedded_server() as server:
        server.database("txsaga")
        owner = server.url("txsaga")
        plain = make_url(owner).set(drivername="postgresql").render_as_string(hide_password=False)
        secrets = {f"{login.upper()}_DB_PASSWORD": f"{login}-secret" for login in LOGINS}
        subprocess.run([psql, plain, "-v", "ON_ERROR_STOP=1", "-qf", FIRST_START], env=os.environ | secrets, check=True)
        env = environment(TXSAGA_URL=owner)
        assert run(*SERVICES["migrate"]["command"], env=env).code == 0
        grant = SERVICES["grant"]
        script = re.sub(r"\btxsaga (?=db)", " ".join(COMMAND) + " ", grant["command"][0].replace("$$", "$"))
        subprocess.run([*grant["entrypoint"], script], env=env, check=True, capture_output=True)
        assert run("topic", "create", "orders", env=env).code == 0
        yield {
            login: make_url(owner).set(username=login, password=f"{login}-secret").render_as_string(False)
            for login in LOGINS
        } | {"owner": owner}


@pytest.mark.parametrize(
    ("login", "command", "code"),
    [
        ("engine", "engine --once", 0),
        ("owner", "db grant engine --to engine", 0),  # again, as at each start
        ("engine", "status", 0),
        ("engine", "send orders hello", 7),
        ("engine", "topic create more", 7),
        ("engine", "db grant engine --to flows", 7),
        ("airflow", "send orders hello", 0),
        ("airflow", "topic create asset-events", 0),
        ("airflow", "engine --once", 7),
        ("airflow", "db migrate", 7),
        ("airflow", "db grant engine --to airflow", 7),
    ],
)
def test_a_login_may_do_its_work_on_the_store_and_no_more(
    urls: Mapping[str, str], bare: Cli, login: str, command: str, code: int
) -> None:
    said = bare(*command.split(), TXSAGA_URL=urls[login])
    assert said.code == code, said.err


@pytest.mark.parametrize("login", LOGINS)
def test_a_login_reaches_its_own_databases_only(urls: Mapping[str, str], login: str) -> None:
    with psycopg.connect(make_url(urls["owner"]).set(drivername="postgresql").render_as_string(False)) as owner:
        asked = "SELECT datname FROM pg_database WHERE has_database_privilege(%s, datname, %s) AND NOT datistemplate"
        reached, creates = ({name for (name,) in owner.execute(asked, (login, what))} for what in ("CONNECT", "CREATE"))
    flows = set(re.findall(r"CREATE DATABASE (\w+) OWNER flows;", FIRST_START.read_text("utf-8")))
    own = {"airflow": {"airflow"}, "engine": set[str](), "flows": flows}[login]
    assert creates == own
    assert reached - {"postgres"} == own | (set() if login == "flows" else {"txsaga"})
