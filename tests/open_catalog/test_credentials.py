"""Credentials for files, handed to clients without keys: with a store that knows users, roles and policies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import boto3
import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

import txsaga
from tests.cli.program import environment, run, started
from tests.console.listening import listening
from tests.lake.books import LEDGER, POSTING, Books
from tests.open_catalog.asking import SCHEMA, created, refused
from tests.open_catalog.go_client import run_go
from tests.open_catalog.guarded_store import KEYS, GuardedStore
from tests.open_catalog.java_program import java
from tests.services.objects import object_store
from txsaga.catalog import credentials
from txsaga.catalog.access import Client, Clients
from txsaga.catalog.app import create_app
from txsaga.catalog.credentials import EXPIRES, LIFETIME
from txsaga.catalog.cuts import KeptCuts
from txsaga.catalog.open_catalog import OpenCatalog
from txsaga.catalog.routes import REFRESH
from txsaga.core import exits
from txsaga.errors import ConfigError
from txsaga.gateway.access_keys import AccessKey
from txsaga.lake.table import TableName
from txsaga.wiring.connecting import open_store

pytestmark = pytest.mark.postgres
CLIENTS = """
reader:r read=bank.*
writer:w write=bank.*
owner:o create=bank.*
single:s create=bank.ledger,bank.posting,bank.mine,bank.renamed
admin:a
"""
Answer = Mapping[str, Any]
Vends = Callable[[str], Callable[..., Answer]]


@pytest.fixture(scope="module")
def objects() -> Iterator[GuardedStore]:
    """Give an object store."""
    with object_store() as store:
        yield GuardedStore(store)


@pytest.fixture
def warehouse(home_url: str, objects: GuardedStore) -> str:
    """Give a place for tables."""
    return f"s3://{objects.bucket}/{home_url.rpartition('=')[2]}"


@pytest.fixture
def books(home_url: str, objects: GuardedStore, warehouse: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Books]:
    """Give books in the object store."""
    for name, value in variables(objects).items():
        monkeypatch.setenv(name, value)
    open_store(home_url).close()
    with txsaga.connect(
        home_url, warehouse=warehouse, roles=False, answering=False, auto_create=True, env={}
    ) as broker:
        yield Books(broker)


def variables(objects: GuardedStore) -> Mapping[str, str]:
    """Return the environment of a program with the keys of the warehouse."""
    prefix = "PYICEBERG_CATALOG__TXSAGA__"
    return {f"{prefix}{k.replace('.', '__').replace('-', '_').upper()}": v for k, v in objects.settings.items()}


@pytest.fixture
def vends(books: Books, tmp_path: Path) -> Iterator[Vends]:
    """Give a way to serve the books with some credentials, and to ask for them as a client."""
    (tmp_path / "clients").write_text(CLIENTS)
    with ExitStack() as opened:

        def vends(kind: str) -> Callable[..., Answer]:
            catalog = OpenCatalog(books.broker, kind)
            app = create_app(lambda: catalog, Clients.read(tmp_path / "clients"))
            rest = opened.enter_context(httpx.Client(base_url=opened.enter_context(listening(app)), timeout=30))

            def ask(name: str, path: str = "namespaces/bank/tables/ledger", **headers: str) -> Answer:
                headers = {"x-iceberg-access-delegation": "vended-credentials,remote-signing", **headers}
                answer = rest.get(f"/v1/{path}", headers={"authorization": f"Bearer {name}:{name[0]}", **headers})
                return {"status": answer.status_code, "headers": answer.headers, "rest": rest, **answer.json()}

            return ask

        yield vends


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Give the policies with which sessions are begun."""
    found: list[Any] = []
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", session := boto3.Session())

    def keep(params: Mapping[str, Any], **_: Any) -> None:
        if "Policy" in params:  # one of a test has none
            found.append(json.loads(params["Policy"]))

    session.events.register("provide-client-params.sts.AssumeRole", keep)
    return found


def key_of(answer: Answer) -> str | None:
    """Return the key that a client would use."""
    found: str | None = answer["config"].get(KEYS[0])
    assert [each["config"] for each in answer.get("storage-credentials", [])] == ([answer["config"]] if found else [])
    return found


def place_of(books: Books, name: str = LEDGER) -> str:
    """Return where a table is."""
    return books.table(name).location()


@pytest.mark.parametrize("kind", ["static", "role"])
def test_a_client_without_keys_makes_a_table_and_reads_it(
    home_url: str, objects: GuardedStore, warehouse: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    open_store(home_url).close()
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")  # the stranger would wait for it
    env = environment(TXSAGA_URL=home_url, TXSAGA_WAREHOUSE=warehouse, **variables(objects))
    chosen = objects.role if kind == "role" else kind
    with started("catalog", "--port", "0", "--credentials", chosen, env=env) as server:
        assert server.stdout is not None
        uri = server.stdout.readline().strip()
        catalog, stranger = (
            RestCatalog("files", uri=uri),
            RestCatalog("files", uri=uri, **{"header.X-Iceberg-Access-Delegation": ""}),
        )
        catalog.create_namespace("bank")
        rows = pa.table({"id": [1, 2]})
        table = catalog.create_table(LEDGER, rows.schema)
        table.append(rows)
        with catalog.create_table_transaction(POSTING, rows.schema) as staged:
            staged.append(rows)
        for name in (LEDGER, POSTING):
            assert catalog.load_table(name).scan().to_arrow().num_rows == 2
        with pytest.raises(OSError, match="AWS Error"):
            stranger.load_table(LEDGER).scan().to_arrow()
        given = catalog.load_credentials(LEDGER, table.location())
        assert (given["s3.endpoint"], given["client.region"]) == (objects.endpoint, "us-east-1")
        assert (EXPIRES in given) is (kind == "role")
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == exits.OK


def test_the_go_client_needs_no_keys(vends: Vends, books: Books, objects: GuardedStore) -> None:
    address = str(vends(objects.role)("admin", "namespaces")["rest"].base_url)
    assert run_go(address, "owner:o")["main"] == "2"
    assert books.ids("bank.sale") == [1, 4, 7]


@pytest.mark.spark
@pytest.mark.slow
def test_javas_iceberg_needs_no_keys(vends: Vends, books: Books, objects: GuardedStore) -> None:
    address = str(vends(objects.role)("admin", "namespaces")["rest"].base_url).rstrip("/")
    with books.producer.transaction() as tx:
        tx.table("bank.sale").create({"id": "long"}).append(pa.table({"id": [1]}))
    command = java("AppendAndRead", address, "owner:o", "2", s3=True)
    env = {"PATH": os.environ["PATH"], "AWS_EC2_METADATA_DISABLED": "true"}
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, check=False)
    assert sorted(ran.stdout.split()) == ["1", "2"], ran.stderr[-2000:]
    assert books.ids("bank.sale") == [1, 2]


def test_duckdb_needs_no_keys(vends: Vends, books: Books, objects: GuardedStore, duckdb: Any) -> None:
    ask = vends(objects.role)
    books.create()
    address = str(ask("admin")["rest"].base_url).rstrip("/")
    said = f"TYPE iceberg, CLIENT_ID 'owner', CLIENT_SECRET 'o', OAUTH2_SERVER_URI '{address}/v1/oauth/tokens'"
    duckdb.execute(f"CREATE SECRET own ({said})")
    duckdb.execute(f"ATTACH '' AS home (TYPE iceberg, ENDPOINT '{address}', SECRET own)")
    duckdb.execute("CREATE TABLE home.bank.sale AS SELECT 1::BIGINT AS id")
    duckdb.execute("INSERT INTO home.bank.sale VALUES (2)")
    assert duckdb.execute("SELECT id FROM home.bank.sale ORDER BY id").fetchall() == [(1,), (2,)]
    assert books.ids("bank.sale") == [1, 2]


def test_none_are_handed_out_unless_the_operator_says_so(vends: Vends, books: Books) -> None:
    books.create()
    ask = vends("none")
    assert key_of(ask("admin")) is None
    assert ask("admin", "namespaces/bank/tables/ledger/credentials")["storage-credentials"] == []


def test_the_keys_of_the_warehouse_are_for_writers(vends: Vends, books: Books, objects: GuardedStore) -> None:
    books.create()
    ask = vends("static")
    found = {name: key_of(ask(name)) for name in ("reader", "writer", "owner", "single", "admin")}
    assert found == {"reader": None, **dict.fromkeys(["writer", "owner", "single", "admin"], objects.settings[KEYS[0]])}
    assert key_of(ask("writer", **{"x-iceberg-access-delegation": "remote-signing"})) is None
    given = ask("writer", "namespaces/bank/tables/ledger/credentials", **{"x-iceberg-access-delegation": ""})
    (only,) = given["storage-credentials"]
    assert (only["prefix"], only["config"][KEYS[0]]) == (place_of(books), objects.settings[KEYS[0]])
    assert refused(ask("writer")["rest"].get("/v1/namespaces/bank/tables/ledger/credentials"))[0] == 401


def test_a_session_opens_the_files_of_its_table_and_no_others(
    vends: Vends, books: Books, objects: GuardedStore, sent: list[Any]
) -> None:
    books.create(LEDGER, POSTING)
    ask, place = vends(objects.role), place_of(books)
    for name, may in (("reader", "read"), ("writer", "read write"), ("single", "read write")):
        answer = ask(name)
        assert answer["storage-credentials"][0]["prefix"] == place
        assert objects.may(sent[-1], f"{place}/data") == may
        others = (f"{place_of(books, POSTING)}/data", f"{place}2/data")
        assert [objects.may(sent[-1], each) for each in others] == ["", ""]
        listing = next(each for each in sent[-1]["Statement"] if each["Action"] == ["s3:ListBucket"])
        prefix = place.removeprefix(f"s3://{objects.bucket}/")
        assert listing["Condition"] == {"StringLike": {"s3:prefix": [f"{prefix}/*"]}}


def test_a_session_is_handed_out_again_for_half_of_its_time(
    vends: Vends, books: Books, objects: GuardedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    books.create(LEDGER, POSTING)
    ask = vends(objects.role)
    first = ask("writer")
    left = int(first["config"][EXPIRES]) / 1000 - time.time()
    assert LIFETIME - 60 < left <= LIFETIME
    path = first["config"][REFRESH]
    assert path == "v1/namespaces/bank/tables/ledger/credentials"
    (again,) = ask("writer", path.removeprefix("v1/"))["storage-credentials"]
    assert again["config"][KEYS[0]] == key_of(first) == key_of(ask("writer"))
    others = {key_of(ask("owner")), key_of(ask("writer", "namespaces/bank/tables/posting"))}
    assert len({key_of(first), *others}) == 3
    later = time.time() + LIFETIME / 2 + 1
    monkeypatch.setattr("txsaga.catalog.credentials.time.time", lambda: later)
    assert key_of(ask("writer")) not in (key_of(first), None)


def test_a_client_that_has_the_table_gets_new_credentials_all_the_same(
    vends: Vends, books: Books, objects: GuardedStore
) -> None:
    books.create()
    ask = vends(objects.role)
    plain = ask("writer", **{"x-iceberg-access-delegation": ""})
    answer = ask("writer", **{"if-none-match": plain["headers"]["etag"]})
    assert (answer["status"], key_of(answer) is not None) == (200, True)
    assert (answer["headers"].get("etag"), answer["headers"]["cache-control"]) == (None, "no-store")


def test_a_cut_is_only_read(vends: Vends, books: Books, objects: GuardedStore, sent: list[Any]) -> None:
    books.create()
    books.append(1)
    KeptCuts(books.broker).keep("monday", ["bank.*"], lease=None, who="ann")
    ask, place = vends(objects.role), place_of(books)
    answer = ask("admin", "cut-monday/namespaces/bank/tables/ledger")
    assert answer["config"][REFRESH] == "v1/cut-monday/namespaces/bank/tables/ledger/credentials"
    assert objects.may(sent[-1], f"{place}/data") == "read"
    static = vends("static")
    found = [
        key_of(static("admin", f"{each}/namespaces/bank/tables/ledger")) for each in ("cut-monday", "c%75t-monday")
    ]
    assert found == [None, None]


def test_a_client_with_limits_gets_no_session_for_places_that_another_may_own(
    vends: Vends, books: Books, objects: GuardedStore, warehouse: str, tmp_path: Path
) -> None:
    books.create()
    ask = vends(objects.role)
    rest = ask("admin")["rest"]
    rest.headers["authorization"] = "Bearer admin:a"
    created(rest, namespace="bank")
    for name, location in (
        ("mine", f"{warehouse}/bank/ledger"),
        ("renamed", f"{warehouse}/bank/mine-0a1b2c3d"),
        ("far", f"{warehouse}/shop/ledger"),
        ("local", f"file://{tmp_path}/bank/ledger"),
    ):
        new = {"name": name, "schema": SCHEMA, "location": location}
        assert rest.post("/v1/namespaces/bank/tables", json=new).status_code == 200
    table = "namespaces/bank/tables"
    found = {
        each: {name for name in ("mine", "renamed", "far", "local") if key_of(ask(each, f"{table}/{name}")) is not None}
        for each in ("owner", "reader", "admin")
    }
    inside = {"mine", "renamed"}
    assert found == {"owner": inside, "reader": inside, "admin": {*inside, "far"}}
    assert {key_of(ask("single", f"{table}/{name}")) for name in ("mine", "renamed")} == {None}
    assert key_of(ask("single")) is not None


def test_no_path_leads_out_of_the_folder_of_a_namespace() -> None:
    client, name = Client("owner", AccessKey("o", {"write": ["bank.*"]})), TableName("home", "bank", "ledger")
    reached = {
        each: client.reaches("write", name, "s3://lake/bank", f"s3://lake/{each}")
        for each in (
            "bank/ledger",
            "bank/ledger/data",
            "bank",
            "bank/",
            "bank/../shop/a",
            "bank2/ledger",
            "shop/ledger",
        )
    }
    assert {each for each, may in reached.items() if may} == {"bank/ledger", "bank/ledger/data"}


def test_a_second_folder_of_a_table_is_in_the_same_session(
    vends: Vends, books: Books, objects: GuardedStore, sent: list[Any]
) -> None:
    books.create()
    ask, other = vends(objects.role), f"{place_of(books)}-0a1b2c3d"
    changed = {"updates": [{"action": "set-properties", "updates": {"write.data.path": other}}]}
    headers = {"authorization": "Bearer single:s"}
    assert ask("single")["rest"].post("/v1/namespaces/bank/tables/ledger", json=changed, headers=headers).is_success
    assert ask("single")["storage-credentials"][0]["prefix"] == "s3"
    assert [objects.may(sent[-1], each) for each in (f"{place_of(books)}/metadata", other)] == [
        "read write",
        "read write",
    ]


def test_a_policy_takes_a_place_for_what_it_is() -> None:
    access = credentials.FileAccess("a", ("s3a://lake/bank/a*?${b}",), writes=False)
    (files, *_) = credentials.policy(access, "minio")["Statement"]
    assert files["Resource"] == ["arn:aws:s3:::lake/bank/a${*}${?}${$}{b}/*"]
    assert credentials.policy(access, "aws-cn")["Statement"][0]["Resource"][0].startswith("arn:aws-cn:s3:::lake/")


def test_a_store_that_gives_no_session_is_said(vends: Vends, books: Books, objects: GuardedStore) -> None:
    books.create()
    answer = vends(objects.untrusted())("writer")
    assert (answer["status"], answer["error"]["type"]) == (503, "ServiceUnavailableException")
    assert "there are no credentials for the files now; the log" in answer["error"]["message"]


def test_mistakes_end_the_command(home_url: str, tmp_path: Path) -> None:
    open_store(home_url).close()
    env = environment(TXSAGA_URL=home_url, TXSAGA_WAREHOUSE=str(tmp_path), AWS_ACCESS_KEY_ID="")
    for kind, line in (("sttic", "write none, static or the ARN"), ("static", "AWS_ACCESS_KEY_ID")):
        answer = run("catalog", "--port", "0", "--credentials", kind, env=env)
        assert (answer.code, line in answer.complaint) == (exits.MISTAKE, True)
    with pytest.raises(ConfigError):
        credentials.chosen("arn:aws:iam::1:user/a", {})
