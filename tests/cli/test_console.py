"""`txsaga console`: the link that it prints leads in, and what it refuses is said before anything is served."""

from __future__ import annotations

import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import product
from pathlib import Path

import httpx
import pytest

import txsaga
from tests.cli.conftest import Cli
from tests.cli.program import environment, started
from tests.services.free_port import free_port
from txsaga import COMMIT
from txsaga.console.access import TOKEN
from txsaga.console.people import Credential, Rank, read_accounts
from txsaga.core import exits
from txsaga.rocketmq import TransactionMQProducer
from txsaga.wiring.connecting import open_store

pytestmark = pytest.mark.postgres


def test_the_link_leads_in_until_the_command_is_interrupted(home_url: str) -> None:
    open_store(home_url).close()
    with started("console", "--port", "0", env=environment(TXSAGA_URL=home_url)) as console:
        assert console.stdout is not None
        link = console.stdout.readline().strip()
        with httpx.Client(follow_redirects=True, timeout=30) as client:
            page = client.get(link)
            assert (page.status_code, "There are no transactions yet" in page.text) == (200, True)
            with client.stream("GET", f"{link.partition('/enter')[0]}/api/v1/events") as news:
                assert next(news.iter_lines()) == ": hello"
                console.send_signal(signal.SIGINT)
                assert console.wait(10) == exits.INTERRUPTED
        _, complaint = console.communicate(timeout=30)
    assert (console.returncode, complaint) == (exits.INTERRUPTED, "")


def test_a_request_that_waits_for_messages_is_answered_when_the_console_stops(home_url: str, tmp_path: Path) -> None:
    open_store(home_url).close()
    with txsaga.connect(home_url, roles=False, env={}) as broker:
        broker.create_topic("news")
    accounts = tmp_path / "accounts"
    accounts.write_text(f"{Credential.made('till', Rank.CLIENT, 'a-key', key=True).line}\n")
    options = ("--port", "0", "--accounts", str(accounts))
    with started("console", *options, env=environment(TXSAGA_URL=home_url)) as console, ThreadPoolExecutor(1) as pool:
        assert console.stdout is not None
        address, wish = console.stdout.readline().strip(), {"topic": "news", "wait": 20}
        with httpx.Client(base_url=address, headers={"authorization": "Bearer till.a-key"}, timeout=30) as client:
            assert client.post("/api/v1/messages/receive", json={"topic": "news"}).json() == {"messages": []}
            waiting = pool.submit(client.post, "/api/v1/messages/receive", json=wish)
            wait([waiting], 0.5)
            console.send_signal(signal.SIGINT)
            assert waiting.result(10).json() == {"messages": []}
        _, complaint = console.communicate(timeout=30)
    assert (console.returncode, complaint) == (exits.INTERRUPTED, "")


def test_a_page_left_open_over_a_restart_changes_nothing_and_no_secret_is_logged(home_url: str, tmp_path: Path) -> None:
    password, key, body = "a-long-password", "a-long-key", "the-body-of-a-message"
    open_store(home_url).close()
    with txsaga.connect(home_url, roles=False, env={}) as broker:
        broker.create_topic("orders", "transaction")
        txid = TransactionMQProducer(broker, "shop", checker=lambda question: COMMIT).prepare_now("orders", b"a").txid
    accounts = tmp_path / "accounts"
    people = Credential.made("ann", Rank.ADMIN, password), Credential.made("till", Rank.CLIENT, key, key=True)
    accounts.write_text("\n".join(each.line for each in people))
    command, env = (
        ("console", "--port", str(free_port()), "--accounts", str(accounts)),
        environment(TXSAGA_URL=home_url),
    )
    said, told = {"id": str(txid), "reason": "it was paid", "force": True}, ""
    with httpx.Client(headers={"accept": "text/html"}, timeout=30) as client:
        with started(*command, env=env) as console:
            assert console.stdout is not None
            client.base_url = httpx.URL(console.stdout.readline().strip())
            for given in (f"{password}-wrong", password):
                client.post("/sign-in", data={"name": "ann", "password": given})
            client.headers[TOKEN] = client.get("/").text.split('data-token="')[1].split('"')[0]
            for given, wish in product((key, f"{key}-wrong"), ({"topic": "orders"}, {"topic": "no"}, {"topic": body})):
                bearer = {"authorization": f"Bearer till.{given}"}
                client.post("/api/v1/messages", json=wish | {"text": body}, headers=bearer)
            assert client.post("/api/v1/acts/settle", json=said).status_code == 200
            console.send_signal(signal.SIGINT)
            told += "".join(console.communicate(timeout=30))
        with started(*command, env=env) as console:
            assert console.stdout is not None and console.stdout.readline()
            refused = client.post("/api/v1/acts/commit", json=said)
            assert (refused.status_code, refused.json()) == (401, {"error": "sign in first"})
            assert client.get(f"/transactions/{txid}").headers["location"].startswith("/sign-in?next=")
            client.post("/sign-in", data={"name": "ann", "password": password})
            refused = client.post("/api/v1/acts/commit", json=said)
            assert (refused.status_code, "load it again" in refused.json()["error"]) == (403, True)
            assert client.get(f"/api/v1/transactions/{txid}").json()["decision"] is None
            console.send_signal(signal.SIGINT)
            told += "".join(console.communicate(timeout=30))
    assert [each for each in (password, key, body) if each in told] == []


def test_with_a_prefix_the_path_on_the_proxy_is_printed(home_url: str, tmp_path: Path) -> None:
    open_store(home_url).close()
    file = tmp_path / "pair.json"
    file.write_text('{"brokers": ["east", "west"], "policy": "round-robin"}')
    options = ("--port", "0", "--root-path", "/txsaga", "--cluster", str(file))
    with started("console", *options, env=environment(TXSAGA_URL=home_url)) as console:
        assert console.stdout is not None
        assert console.stdout.readline().startswith("/txsaga/enter?link=")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--host", "0.0.0.0"), "opens the console to others; give --accounts or --user-header"),
        (("--accounts", "nowhere"), "the accounts can't be read"),
        (("--port", "70000"), "70000"),
        (("--role-header", "x"), "needs --user-header"),
        (("--root-path", "txsaga/"), "write a path such as /txsaga"),
        (("--cluster", "nowhere"), "nowhere can't be read"),
        (("account", "a:b"), "use one without spaces, colons"),
        (("account", "ann", "--role", "king"), "it is client, viewer, operator, admin"),
    ],
)
def test_a_wrong_option_gets_one_line(cli: Cli, words: tuple[str, ...], line: str) -> None:
    said = cli("console", *words)
    assert said.code in (2, 3)
    assert line in said.err.replace("\n", " ")


def test_a_port_in_use_gets_one_line(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = cli("console", "--port", str(taken.getsockname()[1]))
    assert (said.code, "can't listen on 127.0.0.1" in said.complaint) == (3, True)


def test_without_the_packages_the_command_says_what_to_install(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("txsaga.console")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    said = cli("console")
    assert (said.code, "pip install 'txsaga[console]'" in said.complaint) == (3, True)


def test_an_account_is_one_line_of_a_file(cli: Cli, tmp_path: Path) -> None:
    line = cli("console", "account", "ci", "--role", "operator", "--key")
    (name, _, key) = line.complaint.rpartition(": ")[2].partition(".")
    file = tmp_path / "accounts"
    file.write_text(line.out)
    (account,) = read_accounts(file).values()
    assert (account.name, account.role, name) == ("ci", Rank.OPERATOR, "ci")
    assert account.matches(key)
    assert not account.matches(f"{key}x")
