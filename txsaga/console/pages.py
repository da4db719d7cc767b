"""
Pages for people: written by the server, so that they need no data from scripts; a script only renews their parts.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, FileSystemLoader

from txsaga.console import acts, reading
from txsaga.console.access import SESSION, Operator, OwnGuard, Viewer
from txsaga.console.answers import broker_of, home_of, tagged
from txsaga.console.filters import PROBLEMS, PageFilter, Place, filter_of
from txsaga.console.full_picture import full_picture
from txsaga.console.lifecycle import lifecycle
from txsaga.console.people import Person, Rank
from txsaga.console.plans import together
from txsaga.console.queries import ConsoleQueries
from txsaga.console.subjects import subject_of
from txsaga.core.records import LISTED, TxFilter
from txsaga.errors import TxSagaError
from txsaga.inspect import documents, drawing
from txsaga.store.doctor import Severity

if TYPE_CHECKING:
    from txsaga.store.store import Store

router = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)
entrance = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)
TEMPLATES = Environment(loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True, trim_blocks=True)
ID = re.compile("[0-9a-f]{32}(-[0-9a-f]+){2,7}")
"""The id of a transaction, or of a message."""
VERSION = version("txsaga")
SEVERAL = 20
"""Transactions whose plan is shown before one act on all of them."""
LONGEST = 4_096
"""Bytes of a sign-in form."""
BULK = ("settle", "resume", "commit", "rollback")
"""What can be done to several transactions at once."""
PLACES = {
    "txsaga dlq list": ("letters", "Dead letters"),
    "txsaga dlq replay": ("letters", "Deliver again"),
    "purge": ("letters", "Delete"),
    "txsaga tx pending": ("?state=active&amp;state=sealed&amp;state=prepared&amp;state=parked", "Transactions"),
    "txsaga tx pending --parked": ("?state=parked", "Transactions, parked"),
    "txsaga tx resume": ("?state=parked", "Resume"),
    "commit": ("?state=parked", "Commit"),
    "rollback": ("?state=parked", "Roll back"),
    "txsaga branch heuristics": ("?problem=heuristic", "Transactions with a heuristic branch"),
    "txsaga branch forget": ("?problem=heuristic", "Forget"),
    "txsaga saga list --stalled": ("?problem=stalled", "Stalled sagas"),
    "txsaga tx show": ("?state=active", "Transactions"),
}
"""The page of the console, or a button on it, for a command that a remedy names."""
TABS = (
    ("transactions", "Transactions"),
    ("tables", "Tables"),
    ("groups", "Groups"),
    ("topics", "Topics"),
    ("letters", "Dead letters"),
    ("resources", "Resources"),
    ("engines", "Engines"),
    ("cluster", "Cluster"),
    ("alarms", "Alarms"),
    ("audit", "Audit"),
)


class Moment(str):
    """HTML of a moment: its clock time, in whose place the script writes how long ago or until then, each second."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


def moment(at: datetime | timedelta | float | None, form: str = "ago") -> str:
    """Write a moment, given as such or by its age; in the form "both" the clock time stays, "for" is a length."""
    if at is None:
        return ""
    now = datetime.now(UTC)
    if not isinstance(at, datetime):
        at = now - (at if isinstance(at, timedelta) else timedelta(seconds=at))
        at = at.replace(microsecond=0)
    at = at.astimezone(UTC)
    clock = f"{at:%H:%M:%S} UTC" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M:%S} UTC"
    return Moment(f'<time datetime="{at.isoformat()}" data-form="{form}">{clock}</time>')


def capitalized(text: str) -> str:
    """Begin a text with a capital letter, and leave the rest as it is."""
    return text[:1].upper() + text[1:]


def referred(text: str, base: str) -> str:
    """Write a remedy as HTML: the page or button of the console for a command that it has, else the command."""

    def place(found: re.Match[str]) -> str:
        command = found[1]
        path, words = PLACES.get(command, ("", command))
        return f'<a href="{base}/{path}">{words}</a>' if path else f"<code>{words}</code>"

    return re.sub("`(.+?)`", place, escape(text))


TEMPLATES.globals.update(zip=zip)
TEMPLATES.filters.update(referred=referred, capitalized=capitalized, moment=moment)


@entrance.get("/sign-in")
def sign_in_page(request: Request) -> Response:
    """Show the form for name and password."""
    return _page(request, "sign-in.html", None, wrong=False, next=request.query_params.get("next", ""))


@entrance.post("/sign-in")
async def sign_in(request: Request) -> Response:
    """Sign a person in."""
    said = dict(parse_qsl((await request.body())[:LONGEST].decode("utf-8", "replace")))
    name, password = said.get("name", ""), said.get("password", "")
    guard, address = _own(request), request.client.host if request.client else ""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return trouble(request, 403, "another site sent this form; sign in on the page of the console")
    person = await asyncio.to_thread(guard.sign_in, name, password, address)
    if person is None:
        blocked = guard.is_blocked(name, address)
        status, next = 429 if blocked else 401, said.get("next", "")
        return _page(request, "sign-in.html", None, wrong=True, blocked=blocked, next=next, status=status)
    return _entered(request, guard, person, said.get("next", ""))


@entrance.get("/enter")
def enter(request: Request, link: str = "") -> Response:
    """Let in the person who has the link that the command printed."""
    guard = _own(request)
    person = guard.enter(link)
    if person is None:
        return trouble(request, 401, "this link is of an earlier console; use the one that `txsaga console` printed")
    return _entered(request, guard, person)


@entrance.post("/sign-out")
def sign_out(request: Request, person: Viewer) -> Response:
    """End the session."""
    guard = _own(request)
    guard.end(request)
    response = RedirectResponse(place(request, "/sign-in"), 303)
    response.delete_cookie(guard.cookie, path=place(request, "") or "/")
    return response


@router.get("/", name="home")
def transactions(request: Request, person: Viewer, asked: PageFilter) -> Response:
    """List transactions, with filters in the address."""
    if ID.fullmatch(key := request.query_params.get("key", "").strip()):
        return RedirectResponse(place(request, f"/transactions/{key}"), 303)
    store, (only, wrong) = broker_of(request).kernel.store, asked
    found = reading.transactions(store, only)
    if request.query_params.get("only") and len(found["items"]) == 1:
        return RedirectResponse(place(request, f"/transactions/{found['items'][0]['id']}"), 303)
    if not found["items"] and _is_number(store, key):
        return RedirectResponse(place(request, f"/transactions/{key}"), 303)
    said = {k: v for k, v in only._asdict().items() if v and k not in ("states", "since")}
    said["state"] = sorted(only.states or ())
    if since := request.query_params.get("since"):
        said["since"] = since
    older = urlencode({**said, "before": found["next"]}, doseq=True) if found["next"] else None
    return _page(
        request,
        "transactions.html",
        person,
        **found,
        said=said,
        older=older,
        counts=ConsoleQueries.of(store).states(),
        wrong=wrong,
        status=400 if wrong else 200,
        others=urlencode({k: v for k, v in said.items() if v and k != "key"}, doseq=True),
        bulk=[act for name in BULK if (act := acts.act_named(name, person.role))],
        fitting={tx["txid"]: _fitting(tx, person.role) for tx in found["items"]},
        states=LISTED,
        problems=PROBLEMS,
        waits=reading.waits(store, found["items"], only.problem),
        tab="transactions",
    )


def _is_number(store: Store, key: str) -> bool:
    """Tell whether a text that is nobody's key is the number of a transaction."""
    if not key.isdecimal() or len(key) > 18 or store.overview.transactions(limit=1, only=TxFilter(key=key)):
        return False
    return store.overview.transaction(int(key)) is not None


def _fitting(tx: Mapping[str, Any], role: Rank) -> list[str]:
    """Return the acts on several transactions that make sense for this one."""
    return [act.name for act in acts.offered(tx, role) if act.name in BULK]


@router.get("/transactions/{id}", name="transaction_page")
def transaction(request: Request, person: Viewer, id: str, picture: str = "compact") -> Response:
    """Show one transaction."""
    found, steps = reading.transaction(home_of(request), id, bodies=person.sees_bodies)
    lanes = full_picture(steps) if picture == "full" else drawing.picture(steps, to_scale=picture == "scale")
    drawn = {"lanes": lanes, "lifecycle": lifecycle(found["state"])}  # all text in it is escaped
    offered = acts.offered(found, person.role)
    return _page(
        request, "transaction.html", person, tx=found, acts=offered, drawn=drawn, picture=picture, tab="transactions"
    )


@router.get("/transactions/{id}/messages")
def messages(request: Request, person: Operator, id: str, after: Place = 0) -> Response:
    """Show the bodies of a transaction's messages."""
    found = reading.messages(broker_of(request), id, after)
    return _page(request, "messages.html", person, id=id, **found, after=after, tab="transactions")


@router.get("/groups")
def groups(request: Request, person: Viewer) -> Response:
    """Show how far consumer groups have read, and what is undecided of producer groups."""
    store = broker_of(request).kernel.store
    readings = [*map(documents.reading_document, store.overview.readings())]
    drawn = request.app.state.lag.pictures()
    letters = store.overview.dead_letters()
    paused = {group.name for group in store.groups.all() if group.policy.paused}
    found = {"readings": readings, "letters": letters, "drawn": drawn, "paused": paused}
    producers = [*map(documents.backlog_document, store.overview.backlogs())]
    return _page(request, "groups.html", person, **found, producers=producers, tab="groups")


@router.get("/members")
def members(request: Request, person: Viewer, group: str) -> Response:
    """Show who answers checks for a group, and who reads as one of its members."""
    found = reading.members(broker_of(request).kernel.store, group)
    return _page(request, "members.html", person, **found, tab="groups")


@router.get("/topics")
def topics(request: Request, person: Viewer) -> Response:
    """Show topics."""
    states = documents.topic_states(broker_of(request).kernel.store)
    return _page(request, "topics.html", person, topics=[*map(documents.topic_document, states)], tab="topics")


@router.get("/letters")
def letters(request: Request, person: Viewer, group: str | None = None, before: str | None = None) -> Response:
    """Show dead letters."""
    found = reading.letters(broker_of(request).kernel.store, group, before, bodies=person.sees_bodies)
    older = urlencode({"group": group or "", "before": found["next"]}) if found["next"] else None
    return _page(request, "letters.html", person, letters=found["items"], older=older, group=group, tab="letters")


@router.get("/tables")
def tables(request: Request, person: Viewer, after: str = "") -> Response:
    """Show the tables that transactions wrote to, and who published to each last."""
    found = reading.tables(broker_of(request).kernel.store, after)
    more = urlencode({"after": found["next"]}) if found["next"] else None
    return _page(request, "tables.html", person, **found, after=after, more=more, tab="tables")


@router.get("/table")
def table(request: Request, person: Viewer, name: str, before: str | None = None) -> Response:
    """Show the transactions that wrote to a table."""
    found = reading.table(broker_of(request).kernel.store, name, before)
    older = urlencode({"name": name, "before": found["next"]}) if found["next"] else None
    return _page(request, "table.html", person, **found, older=older, tab="tables")


@router.get("/resources")
def resources(request: Request, person: Viewer) -> Response:
    """Show resources: whether they answer, their unfinished branches, and the locks that flows hold."""
    found = reading.resources(home_of(request), bodies=person.sees_bodies)
    return _page(request, "resources.html", person, resources=found, tab="resources")


@router.get("/cluster")
def cluster(request: Request, person: Viewer) -> Response:
    """Show the brokers of the cluster, and whether each answers."""
    found = reading.cluster(home_of(request), bodies=person.sees_bodies)
    return _page(request, "cluster.html", person, **found, tab="cluster")


@router.get("/engines")
def engines(request: Request, person: Viewer) -> Response:
    """Show who leads the rounds of each role, and the processes that answer checks."""
    found = ConsoleQueries.of(broker_of(request).kernel.store).engines()
    return _page(request, "engines.html", person, engines=found, tab="engines")


@router.get("/audit")
def audit(request: Request, person: Viewer, before: str | None = None, people: bool = False) -> Response:
    """Show what was done to transactions."""
    found = reading.audit(broker_of(request).kernel.store, before, bodies=person.sees_bodies, people=people)
    return _page(request, "audit.html", person, **found, people=people, tab="audit")


@router.get("/alarms")
def alarms(request: Request, person: Viewer) -> Response:
    """Show what needs attention."""
    findings, alerts = home_of(request).trouble()
    found = [each for each in findings if each.severity is not Severity.OK]
    return _page(request, "alarms.html", person, findings=found, alerts=alerts, tab="alarms")


@router.get("/acts/{name}")
def act(request: Request, person: Viewer, name: str, id: str = "", match: str | None = None) -> Response:
    """Show what an act would do to `id`, or to all that a filter matches, with the form for its reason."""
    chosen = acts.act_named(name, person.role)
    if chosen is None:
        return trouble(request, 403, "your role does not allow this; ask an administrator")
    said, broker = {k: v for k, v in request.query_params.items() if k not in ("id", "match")}, broker_of(request)
    ids, cut = (id.split(","), False) if match is None else acts.matching(chosen, broker, filter_of(match))
    if not ids:
        return trouble(request, 404, f"no transaction that matches is in a state for this: {chosen.label.lower()}")
    plan = together(each for one in ids[:SEVERAL] for each in chosen.plan(broker, one, said))
    found = [subject_of(broker, chosen.on, one) for one in ids[:SEVERAL]]
    name = found[0].name if len(ids) == 1 else f"{len(ids)} transactions"
    parts = {part: said.get(part, "") for part in ("step", "branch")}
    title = chosen.title.format(label=chosen.label, subject=name, **parts)
    forced = chosen.forced and (len(ids) > SEVERAL or any(each.contradicted for each in found))
    warnings = [each for each in plan if each["does"] == "warn"]
    return _page(
        request,
        "act.html",
        person,
        act=chosen,
        id=",".join(ids),
        title=title,
        subjects=found,
        warnings=warnings,
        plan=[each for each in plan if each not in warnings],
        forced=forced,
        said=said,
        more=len(ids) - len(found),
        cut=cut,
    )


def trouble(request: Request, status: int, line: str, person: Person | None = None) -> Response:
    """Show one line about what went wrong."""
    return _page(request, "trouble.html", person, status=status, line=line, code=status)


def place(request: Request, path: str) -> str:
    """Return the address of a page, without a host: a proxy may show another one."""
    return f"{request.scope.get('root_path', '')}{path}"


def _page(request: Request, template: str, person: Person | None, *, status: int = 200, **values: Any) -> Response:
    token = request.app.state.guard.token(request, person) if person is not None else ""
    base = request.scope.get("root_path", "")
    shown = TEMPLATES.get_template(template).render(
        base=base,
        version=VERSION,
        operates=person is not None and person.role >= Rank.OPERATOR,
        person=person,
        token=token,
        tabs=TABS,
        badges=_badges(request) if person is not None and status < 500 else {},
        request=request,
        signs_in=request.app.state.guard.signs_in,
        **values,
    )
    response = HTMLResponse(shown, status)
    return tagged(request, response) if status == 200 and request.method == "GET" and person else response


def _badges(request: Request) -> Mapping[str, int]:
    with suppress(TxSagaError):  # a store that is away: the page says so
        return home_of(request).badges()
    return {}


def _own(request: Request) -> OwnGuard:
    guard = request.app.state.guard
    assert isinstance(guard, OwnGuard)
    return guard


def _entered(request: Request, guard: OwnGuard, person: Person, next: str = "") -> Response:
    wanted = next if next.startswith("/") and not next.startswith(("//", "/\\")) else "/"
    response = RedirectResponse(place(request, wanted), 303)
    secure = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))
    session, path = guard.session(person), place(request, "") or "/"
    response.set_cookie(guard.cookie, session, SESSION, path=path, httponly=True, samesite="lax", secure=secure)
    return response
