"""The console in a browser: every page and act, what changes while it is open, and what a screen reader needs."""

from __future__ import annotations

import re
import subprocess
import tarfile
from collections.abc import Iterator

import pytest
from fastapi import FastAPI

from tests.airflow_host.browser import Page, browser, keep
from tests.console.listening import listening
from tests.console.proxied import proxied
from tests.console.test_elsewhere import NOWHERE
from tests.lake.books import Books, rows
from tests.scene.shop import Shop
from tests.services.absent import ci_or_skip
from txsaga.console.access import OwnGuard

AXE = "4.14.1"
PAGES = (
    *("", "tables", "table?name=bank.ledger", "groups", "topics", "letters", "resources", "engines", "cluster"),
    *("alarms", "audit", "transactions/{id}", "transactions/{id}?picture=full", "transactions/{id}/messages"),
    *("members?group=shop", "?problem=heuristic"),
)
SERIOUS = ("serious", "critical")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def started() -> Iterator[Page]:
    """Give a browser."""
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Give the script that looks for what people with disabilities can't use."""
    place = tmp_path_factory.mktemp("axe")
    try:
        subprocess.run(["npm", "pack", "--silent", f"axe-core@{AXE}"], cwd=place, check=True, timeout=100)
    except (OSError, subprocess.SubprocessError):
        ci_or_skip("axe-core from npm", "apt-get install npm")
    with tarfile.open(place / f"axe-core-{AXE}.tgz") as packed:
        found = packed.extractfile("package/axe.min.js")
        assert found is not None
        return found.read().decode()


@pytest.fixture
def wrong() -> list[str]:
    """Give the list of what the browser complains of; it must stay empty."""
    return []


@pytest.fixture
def open_page(started: Page, console: FastAPI, guard: OwnGuard, wrong: list[str]) -> Iterator[Page]:
    """Give a page of an administrator, and look at what the browser complains of at the end."""
    guard.link = "let-me-in"
    with listening(console) as address:
        context = started.new_context(
            viewport={"width": 1280, "height": 800}, base_url=address, bypass_csp=False, reduced_motion="reduce"
        )
        context.set_default_timeout(30_000)
        page = context.new_page()
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto("/enter?link=let-me-in")
        yield page
        context.close()
    assert wrong == []


def test_a_stuck_transaction_is_found_explained_and_settled(shop: Shop, open_page: Page) -> None:
    with shop.producer().transaction(key="order-41") as tx:
        tx.send("orders", b"a chair")
    receipt = shop.mq_producer().prepare_now("orders", b"a table")
    open_page.goto("/?state=prepared")
    keep(open_page, "console-list")
    open_page.get_by_role("link", name=str(receipt.txid), exact=True).click()
    open_page.get_by_text("Its owner has not decided it").wait_for()
    keep(open_page, "console-transaction")
    open_page.get_by_role("button", name="Commit").click()
    open_page.get_by_text("publish 1 message to orders").wait_for()
    keep(open_page, "console-act")
    open_page.get_by_label("Reason").fill("the order was paid")
    open_page.get_by_role("dialog").get_by_role("button", name="Commit").click()
    open_page.get_by_text("is decided by hand: COMMIT").wait_for()
    open_page.locator(".state.committed").first.wait_for()
    assert shop.pending() == []


def test_a_refused_act_says_why_in_its_dialog(shop: Shop, open_page: Page, wrong: list[str]) -> None:
    receipt = shop.mq_producer().prepare_now("orders", b"a table")
    open_page.goto(f"/transactions/{receipt.txid}")
    open_page.get_by_role("button", name="Roll back").click()
    shop.producer().commit(receipt)
    open_page.get_by_label("Reason").fill("too late")
    open_page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
    open_page.get_by_role("alert").filter(has_text="COMMIT").wait_for()
    open_page.get_by_role("button", name="Cancel").click()
    assert not open_page.get_by_role("dialog").is_visible()
    assert ["409" in each for each in wrong] == [True]
    wrong.clear()


def test_an_open_page_shows_what_is_decided_and_begun(shop: Shop, open_page: Page) -> None:
    producer = shop.mq_producer()
    receipt = producer.prepare_now("orders", b"a table")
    open_page.goto(f"/transactions/{receipt.txid}")
    open_page.get_by_text("Live").wait_for()
    producer.commit(receipt)
    open_page.locator(".state.committed").first.wait_for(timeout=3_000)
    open_page.goto("/")
    open_page.get_by_text("Live").wait_for()
    with producer.transaction(key="order-new") as tx:
        tx.send("orders", b"a chair")
    open_page.get_by_text("order-new").wait_for(timeout=3_000)


def test_times_go_on_without_asking_the_server(shop: Shop, open_page: Page) -> None:
    receipt = shop.mq_producer().prepare_now("orders", b"a table")
    open_page.goto(f"/transactions/{receipt.txid}")
    open_page.get_by_text("Live").wait_for()
    open_page.wait_for_timeout(1_000)  # it renews itself once
    asked = list[str]()
    open_page.on("request", lambda request: asked.append(request.url))
    waited = open_page.locator(".waiting time").first
    assert re.search(r"UTC \(\d+ s ago\)", before := waited.inner_text())
    open_page.wait_for_timeout(2_000)
    assert waited.inner_text() != before
    assert asked == []


def test_a_session_that_is_over_is_said_and_leads_back(shop: Shop, open_page: Page, guard: OwnGuard) -> None:
    receipt = shop.mq_producer().prepare_now("orders", b"a table")
    open_page.goto(f"/transactions/{receipt.txid}")
    open_page.get_by_text("Live").wait_for()
    guard.secret = b"of a console that was started anew"
    open_page.get_by_role("button", name="Commit").click()
    open_page.get_by_role("link", name="Your session is over: sign in again").click()
    open_page.get_by_text("Each start prints a new one").wait_for()
    open_page.goto("/enter?link=let-me-in")
    open_page.get_by_role("heading", name="Transactions").wait_for()
    assert shop.pending() != []


def test_a_page_that_renewed_itself_looks_like_one_just_opened(shop: Shop, open_page: Page) -> None:
    producer = shop.mq_producer()
    receipt = producer.prepare_now("orders", b"a table")
    for path in ("/", f"/transactions/{receipt.txid}"):
        open_page.goto(path)
        open_page.get_by_text("Live").wait_for()
        producer.send("news", b"a") if path == "/" else producer.commit(receipt)
        open_page.locator(".state.committed").first.wait_for()
        renewed = open_page.locator("main").inner_html()
        seen = open_page.locator("main").screenshot(mask=[open_page.locator("time, .waiting, dd")])
        open_page.reload()
        open_page.get_by_text("Live").wait_for()
        assert re.sub(r"\d+ s", "", open_page.locator("main").inner_html()) == re.sub(r"\d+ s", "", renewed)
        assert open_page.locator("main").screenshot(mask=[open_page.locator("time, .waiting, dd")]) == seen


def test_several_are_settled_at_once_and_a_search_is_kept(shop: Shop, open_page: Page) -> None:
    producer = shop.mq_producer()
    for body in (b"a", b"b", b"c"):
        producer.prepare_now("orders", body)
    open_page.goto("/?state=prepared")
    open_page.get_by_label("Name of this search").fill("mine")
    open_page.get_by_role("button", name="Save").click()
    open_page.goto("/")
    open_page.get_by_role("link", name="mine").click()
    open_page.wait_for_url(re.compile("state=prepared"))
    open_page.get_by_label("Select all that are shown").check()
    bulk = open_page.locator(".bulk")
    assert bulk.get_by_role("button").all_inner_texts() == ["Check now", "Commit", "Roll back"]
    place = bulk.bounding_box()
    assert place is not None
    assert place["y"] + place["height"] <= 800
    bulk.get_by_role("button", name="Roll back").click()
    open_page.get_by_role("heading", name="Roll back: 3 transactions").wait_for()
    open_page.get_by_label("Reason").fill("a test")
    open_page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
    open_page.get_by_text("3 done, 0 refused").wait_for()
    assert shop.pending() == []


def test_an_act_takes_all_that_match_the_filter(shop: Shop, open_page: Page) -> None:
    for at in range(52):
        shop.mq_producer("crm" if at == 7 else "shop").prepare_now("orders", b"a table")
    open_page.goto("/?group=shop")
    open_page.get_by_label("Select all that are shown").check()
    bulk = open_page.locator(".bulk")
    bulk.get_by_label("all others that match").check()
    assert bulk.get_by_role("button").all_inner_texts() == ["Check now", "Resume", "Commit", "Roll back"]
    bulk.get_by_role("button", name="Roll back").click()
    open_page.get_by_role("heading", name="Roll back: 51 transactions").wait_for()
    open_page.get_by_text("It is done to the other 31 as well.").wait_for()
    open_page.get_by_label("Reason").fill("a test")
    open_page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
    open_page.get_by_text("51 done, 0 refused").wait_for()
    assert len(shop.pending()) == 1


def test_times_are_shown_as_a_person_wants_them_and_ids_are_copied(shop: Shop, open_page: Page) -> None:
    receipt = shop.mq_producer().prepare_now("orders", b"a table")
    open_page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_page.goto(f"/transactions/{receipt.txid}")
    time = open_page.locator("dt:text-is('Begun') + dd time")
    assert re.fullmatch(r"\d+ s ago", time.inner_text())
    times = open_page.get_by_label("Times")
    times.select_option("utc")
    assert re.fullmatch(r"(\d+-\d+-\d+ )?\d\d:\d\d:\d\d UTC", time.inner_text())
    times.select_option("local")
    local = "(each) => new Date(each.dateTime).toLocaleString(undefined, { timeZoneName: 'short' })"
    assert time.inner_text() == time.evaluate(local)
    open_page.reload()
    assert time.inner_text() == time.evaluate(local)
    step = open_page.locator(".steps time").first
    assert step.inner_text() == step.evaluate(local)
    open_page.get_by_role("button", name="Copy the id").click()
    open_page.get_by_text("Copied").wait_for()
    id = shop.store.registry.identity.transaction(receipt.txid)
    assert open_page.evaluate("navigator.clipboard.readText()") == id


def test_an_act_takes_only_what_it_fits(shop: Shop, open_page: Page) -> None:
    receipt = shop.mq_producer().prepare_now("orders", b"a table")
    group = shop.store.registry.group("bank", transactional=True)
    with shop.store.ledgers.open() as ledger:
        assert ledger.create(group.id, None, 1) is not None  # it is active: it can't be committed
    open_page.goto("/")
    bulk = open_page.locator(".bulk")
    assert not bulk.is_visible()
    open_page.get_by_label("Select all that are shown").check()
    buttons = bulk.get_by_role("button")
    assert buttons.all_inner_texts() == ["Check now", "Commit (1)", "Roll back"]
    bulk.get_by_role("button", name="Commit").click()
    open_page.get_by_role("heading", name=f"Commit: transaction {receipt.txid}").wait_for()


def test_a_small_screen_shows_the_whole_menu_and_dialog(shop: Shop, open_page: Page) -> None:
    receipt = shop.mq_producer().prepare_now("orders", b"a table")
    open_page.set_viewport_size({"width": 390, "height": 800})
    open_page.goto("/")
    assert all(each.bounding_box()["x"] < 390 for each in open_page.locator("nav a").all())
    assert not open_page.locator("td[data-label='DAG run']").is_visible()
    open_page.goto(f"/transactions/{receipt.txid}")
    open_page.get_by_role("button", name="Commit").click()
    dialog = open_page.locator("dialog")
    dialog.get_by_text(f"Commit: transaction {receipt.txid}").wait_for()
    assert dialog.evaluate("(each) => each.scrollWidth <= each.clientWidth")
    assert dialog.get_by_label("Reason").evaluate("(each) => each.offsetWidth > 0.9 * each.form.offsetWidth")


def test_the_keyboard_is_enough(shop: Shop, open_page: Page) -> None:
    for at in range(3):
        shop.producer().send("news", str(at).encode())
    open_page.goto("/")
    open_page.keyboard.press("/")
    assert open_page.evaluate("document.activeElement.name") == "key"
    open_page.get_by_role("heading", name="Transactions").click()
    for key in ("j", "j", "k", "Enter"):
        open_page.keyboard.press(key)
    open_page.get_by_role("heading", name="Transaction").wait_for()


def test_a_console_behind_a_proxy_with_a_prefix_is_live_and_acts(
    shop: Shop, started: Page, console: FastAPI, guard: OwnGuard
) -> None:
    guard.link, receipt = "let-me-in", shop.mq_producer().prepare_now("orders", b"a table")
    wrong = list[str]()
    with proxied(console) as address:
        page = started.new_page()
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        page.goto(f"{address}/enter?link=let-me-in")
        page.get_by_role("link", name=str(receipt.txid), exact=True).click()
        page.get_by_text("Live").wait_for()
        page.get_by_role("button", name="Commit").click()
        page.get_by_label("Reason").fill("the order was paid")
        page.get_by_role("dialog").get_by_role("button", name="Commit").click()
        page.locator(".state.committed").first.wait_for()
        page.get_by_role("link", name="Tables").click()
        page.get_by_role("heading", name="Tables").wait_for()
        assert page.url == f"{address}/tables"
        page.close()
    assert wrong == []


def test_who_published_a_row_is_three_clicks_away(books: Books, open_page: Page) -> None:
    books.create()
    with books.producer.transaction(key="payday") as tx:
        tx.table("bank.ledger").append(rows(1, 2))
    open_page.get_by_role("link", name="Tables").click()
    open_page.get_by_role("link", name="bank.ledger").click()
    open_page.get_by_text("payday").wait_for()
    open_page.get_by_role("link", name=str(tx.txid), exact=True).click()
    open_page.get_by_role("cell", name="bank.ledger").wait_for()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_can_be_used_by_everybody(
    shop: Shop, books: Books, started: Page, console: FastAPI, guard: OwnGuard, axe: str, width: int, scheme: str
) -> None:
    guard.link = "let-me-in"
    receipt = shop.mq_producer().prepare_now("orders", b"a table")
    if scheme == "dark":  # in the light the pages are empty
        books.create()
        books.append(1, 2)
        console.state.home.env = {"TXSAGA_RESOURCE_BANK": NOWHERE, "TXSAGA_BROKER_EAST": NOWHERE}
    found = list[str]()
    with listening(console) as address:
        context = started.new_context(
            viewport={"width": width, "height": 800}, base_url=address, bypass_csp=True, color_scheme=scheme
        )
        page = context.new_page()
        page.goto("/enter?link=let-me-in")
        for path in PAGES:
            page.goto(f"/{path.format(id=receipt.txid)}")
            page.add_script_tag(content=axe)
            violations = page.evaluate("axe.run().then((found) => found.violations)")
            found += [f"/{path}: {v['id']} {v['nodes'][0]['html']}" for v in violations if v["impact"] in SERIOUS]
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, f"/{path} is {wide} wide"
        context.close()
    assert found == []
