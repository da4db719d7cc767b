"""What a person sees of a flow in Airflow's own pages: form, run, the way to its transaction, connection."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from sqlalchemy import make_url

from tests.airflow_host.browser import Page, browser, keep, page_of
from tests.airflow_host.hosts import HostedAirflow, hosted
from tests.console.test_browser import SERIOUS, axe
from txsaga import UNKNOWN
from txsaga.airflow_host.home import LOGIN
from txsaga.embedded.server import EmbeddedServer

DAGS = Path(__file__).parents[2] / "dags"
FLOW = "bank_transfer"
BANKS = ("bank_current", "bank_mortgage", "bank_audit")
__all__ = ["axe"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def started() -> Iterator[Page]:
    """Give a browser: it is asked for before anything that takes long."""
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def host(started: Page) -> Iterator[HostedAirflow]:
    """Give an Airflow with the examples, and accounts to transfer between."""
    with hosted(prepare=_banks, dags=DAGS) as host:
        with host.broker() as broker:
            broker.create_topic("transfers", "transaction")
        assert host.end_of("bank_open", host.trigger("bank_open")) == "success"
        yield host


@pytest.fixture
def page(started: Page, host: HostedAirflow) -> Iterator[Page]:
    """Give a page of somebody who has logged in."""
    keys = host.home.keys()
    assert keys is not None
    with page_of(started, keys.url(), LOGIN, keys.password) as page:
        yield page


def _banks(server: EmbeddedServer) -> dict[str, str]:
    server.ensure()
    return {f"TXSAGA_RESOURCE_{name.upper()}": server.database(name).url(name) for name in BANKS}


@pytest.fixture(scope="module")
def rolled_back(host: HostedAirflow) -> str:
    """Give the address of a run whose flow was rolled back."""
    run = host.trigger(FLOW, fault="after the audit")
    assert host.end_of(FLOW, run) == "failed"
    return f"/dags/{FLOW}/runs/{quote(run, safe='')}"


def test_the_form_of_a_flow_asks_for_its_params_and_starts_it(host: HostedAirflow, page: Page) -> None:
    page.goto(f"/dags/{FLOW}")
    page.get_by_role("button", name="Trigger Dag").click()
    form = page.get_by_role("dialog")
    for title in ("Account", "Cents to move", "Seconds that the debit takes"):
        form.get_by_role("spinbutton", name=title).wait_for()
    form.get_by_text("nothing: everything becomes visible").wait_for()
    keep(page, "trigger-form")
    form.get_by_role("spinbutton", name="Cents to move").fill("1200")
    with page.expect_response(lambda answer: answer.request.method == "POST" and "dagRuns" in answer.url) as answered:
        form.get_by_role("button", name="Trigger", exact=True).click()
    run = answered.value.json()
    assert run["conf"]["cents"] == 1200
    assert host.end_of(FLOW, run["dag_run_id"]) == "success"


def test_a_run_shows_which_step_failed_and_that_its_end_rolled_back(rolled_back: str, page: Page) -> None:
    page.goto(rolled_back)
    for task, state in (("seal", "Success"), ("check", "Failed"), ("end", "Failed")):
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name=task, exact=True))
        row.get_by_text(state, exact=True).wait_for()
    keep(page, "run")


def test_a_task_leads_to_its_transaction(host: HostedAirflow, rolled_back: str, page: Page) -> None:
    page.goto(f"{rolled_back}/tasks/end/details")
    link = page.locator("a[href*='/txsaga/transactions/']").filter(has_text="Transaction")
    link.wait_for()
    keep(page, "link")
    link.click()
    page.get_by_role("heading", name=re.compile("Transaction .* rolled back")).wait_for()
    page.get_by_text(FLOW).first.wait_for()


def test_a_store_is_a_connection_with_a_form_of_its_own_that_can_be_tried(host: HostedAirflow, page: Page) -> None:
    store = make_url(EmbeddedServer.from_env(host.env).url("txsaga"))
    page.goto("/connections")
    page.get_by_role("button", name="Add Connection").click()
    form = page.get_by_role("dialog")
    form.get_by_role("textbox", name="Connection ID").fill("orders_store")
    form.get_by_role("combobox", name="Connection Type").fill("TxSaga")
    page.get_by_role("option", name="TxSaga store").click()
    said = {"Host": store.host, "Login": store.username, "Password": store.password, "Database": store.database}
    for label, value in said.items():
        form.get_by_role("textbox", name=label).fill(value)
    form.get_by_role("spinbutton", name="Port").fill(str(store.port))
    keep(page, "connection")
    form.get_by_role("button", name="Extra Fields", exact=True).click()
    form.get_by_text("The schema of the store").wait_for()
    form.get_by_role("button", name="Save").click()
    page.get_by_role("row", name="orders_store").get_by_role("button", name="Test Connection").click()
    page.get_by_text("Test Connection Successful").wait_for()
    page.get_by_text("this is store").wait_for()


def test_a_transaction_is_settled_on_its_page_which_everybody_can_use(
    host: HostedAirflow, page: Page, axe: str
) -> None:
    wrong = list[str]()
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    with host.broker() as broker:
        half = broker.producer("clerks", checker=lambda _: UNKNOWN).prepare_now("transfers", b"one", immunity=600)
    page.goto(f"/txsaga/transactions/{half.txid}")
    page.get_by_role("button", name="Roll back").click()
    page.get_by_label("Reason").fill("nobody wants it")
    page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
    page.get_by_role("heading", name=re.compile("Transaction .* rolled back")).wait_for()
    for path in ("", f"transactions/{half.txid}", "groups", "audit"):
        page.goto(f"/txsaga/{path}")
        page.evaluate(axe)
        violations = page.evaluate("axe.run().then((found) => found.violations)")
        assert [each["id"] for each in violations if each["impact"] in SERIOUS] == []
    page.get_by_text("nobody wants it").first.wait_for()
    assert wrong == []


def test_the_console_opens_on_the_transaction_of_a_run(rolled_back: str, page: Page) -> None:
    page.goto(f"{rolled_back}/plugin/txsaga_run")
    console = page.frame_locator("iframe")
    console.get_by_role("heading", name=re.compile("Transaction .* rolled back")).wait_for()
    console.get_by_text("It is over").wait_for()
    keep(page, "console-airflow")
    page.goto("/plugin/txsaga")
    console.get_by_role("heading", name="Transactions").wait_for()
    console.get_by_text("Live").wait_for()
