"""`/api/v1`: the console for programs, with the same data and the same acts as its pages."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Body, HTTPException, Request
from fastapi.responses import Response, StreamingResponse

from txsaga.console import acts, reading
from txsaga.console.access import Actor, Anyone, Operator, Viewer
from txsaga.console.answers import LIST, OBJECT, PAGE, answer, broker_of, described, home_of, refused
from txsaga.console.filters import Filter, Place
from txsaga.console.queries import ConsoleQueries
from txsaga.consume.dispatcher import dispatch
from txsaga.errors import TxSagaError
from txsaga.inspect import documents

router = APIRouter(prefix="/api/v1", responses=refused("4XX", 503))

COUNTS = described("Counts by state.", {"type": "object", "additionalProperties": {"type": "integer"}})
EVENTS = described("Events, one after the other.", {"type": "string"}, "text/event-stream")
_DONE = {
    "type": "object",
    "properties": {
        "told": {"type": "string", "description": "what was done, in a line"},
        "notice": {"type": "boolean", "description": "nothing was changed"},
        "group": {"type": ["string", "null"], "description": "the group to look at now"},
        "id": {"type": "string", "description": "of `ids`"},
        "done": {"type": "boolean", "description": "of `ids`: false if it was refused"},
    },
}
DONE = described("The act that was done; for `ids`, a list.", {"anyOf": [_DONE, {"type": "array", "items": _DONE}]})


@router.get("/openapi.json", include_in_schema=False)
def description(request: Request, person: Anyone) -> Response:
    """Describe every route."""
    return answer(request, request.app.openapi())


@router.get("/status", responses=OBJECT)
def status(request: Request, person: Viewer) -> Response:
    """Return the state of the store."""
    return answer(request, documents.status_document(broker_of(request).kernel.store))


@router.get("/transactions", responses=PAGE)
def transactions(request: Request, person: Viewer, only: Filter, limit: int = reading.PAGE) -> Response:
    """List transactions, newest first; `before` is the `next` of the page before."""
    return answer(request, reading.transactions(broker_of(request).kernel.store, only, limit))


@router.get("/transactions/{id}", responses=OBJECT)
def transaction(request: Request, person: Viewer, id: str) -> Response:
    """Return everything about one transaction; what its steps were given and returned only to operators."""
    return answer(request, reading.transaction(home_of(request), id, bodies=person.sees_bodies)[0])


@router.get("/counts", responses=COUNTS)
def counts(request: Request, person: Viewer) -> Response:
    """Count the undecided transactions by state; decided and delayed ones are not counted."""
    return answer(request, ConsoleQueries.of(broker_of(request).kernel.store).states())


@router.get("/groups", responses=LIST)
def groups(request: Request, person: Viewer) -> Response:
    """Return how far consumer groups have read."""
    return answer(request, [*map(documents.reading_document, broker_of(request).kernel.store.overview.readings())])


@router.get("/topics", responses=LIST)
def topics(request: Request, person: Viewer) -> Response:
    """Return topics and the bounds of their queues."""
    states = documents.topic_states(broker_of(request).kernel.store)
    return answer(request, [*map(documents.topic_document, states)])


@router.get("/producers", responses=LIST)
def producers(request: Request, person: Viewer) -> Response:
    """Return producer groups, and what is undecided in each."""
    return answer(request, [*map(documents.backlog_document, broker_of(request).kernel.store.overview.backlogs())])


@router.get("/members", responses=OBJECT)
def members(request: Request, person: Viewer, group: str) -> Response:
    """Return who answers checks for a producer group, and who reads as a member of a consumer group of that name."""
    return answer(request, reading.members(broker_of(request).kernel.store, group))


@router.get("/letters", responses=PAGE)
def letters(request: Request, person: Viewer, group: str | None = None, before: str | None = None) -> Response:
    """List dead letters, newest first, without their bodies; `before` is the `next` of the page before."""
    return answer(request, reading.letters(broker_of(request).kernel.store, group, before, bodies=False))


@router.get("/letters/{id}", responses=OBJECT)
def letter(request: Request, person: Operator, id: int) -> Response:
    """Return a dead letter with its body."""
    found = broker_of(request).dead_letters.get(id)
    if found is None:
        raise HTTPException(404, f"there is no dead letter {id}")
    return answer(request, reading.letter(found, bodies=True))


@router.get("/tables", responses=PAGE)
def tables(request: Request, person: Viewer, after: str = "") -> Response:
    """List the tables that transactions wrote to, by name; `after` is the `next` of the page before."""
    return answer(request, reading.tables(broker_of(request).kernel.store, after))


@router.get("/table", responses=PAGE)
def table(request: Request, person: Viewer, name: str, before: str | None = None) -> Response:
    """List the transactions that wrote to a table, newest first."""
    return answer(request, reading.table(broker_of(request).kernel.store, name, before))


@router.get("/resources", responses=LIST)
def resources(request: Request, person: Viewer) -> Response:
    """Return resources: whether they answer, their unfinished branches, and the locks that flows hold."""
    return answer(request, reading.resources(home_of(request), bodies=person.sees_bodies))


@router.get("/cluster", responses=OBJECT)
def cluster(request: Request, person: Viewer) -> Response:
    """Return the brokers of the cluster, and whether each answers."""
    return answer(request, reading.cluster(home_of(request), bodies=person.sees_bodies))


@router.get("/alarms", responses=OBJECT)
def alarms(request: Request, person: Viewer) -> Response:
    """Return what needs attention and what to do about it, and each alert of alerts.yml."""
    findings, alerts = home_of(request).trouble()
    return answer(request, {"findings": [*map(asdict, findings)], "alerts": [*map(asdict, alerts)]})


@router.get("/transactions/{id}/messages", responses=PAGE)
def messages(request: Request, person: Operator, id: str, after: Place = 0) -> Response:
    """List the messages of a transaction with their bodies; `after` is the `next` of the page before."""
    return answer(request, reading.messages(broker_of(request), id, after))


@router.get("/audit", responses=PAGE)
def audit(request: Request, person: Viewer, before: str | None = None, people: bool = False) -> Response:
    """Return what was done to transactions, newest first; with `people` only what people did."""
    store = broker_of(request).kernel.store
    return answer(request, reading.audit(store, before, bodies=person.sees_bodies, people=people))


@router.get("/engines", responses=LIST)
def engines(request: Request, person: Viewer) -> Response:
    """Return who leads the rounds of each role, and the processes that answer checks."""
    return answer(request, [*ConsoleQueries.of(broker_of(request).kernel.store).engines()])


@router.get("/events", responses=EVENTS, response_class=StreamingResponse)
def events(request: Request, person: Viewer) -> StreamingResponse:
    """Say, as server-sent events, that something changed."""
    return StreamingResponse(request.app.state.news.stream(), media_type="text/event-stream")


@router.post("/acts/{name}/plan", responses=LIST)
def plan(request: Request, person: Actor, name: str, said: Annotated[dict[str, Any], Body()]) -> Response:
    """Return what an act would do to `id`, in order; nothing is done."""
    act = _act(person, name)
    return answer(request, act.plan(broker_of(request), str(said.get("id")), said))


@router.post("/acts/{name}", responses=DONE)
def do(request: Request, person: Actor, name: str, said: Annotated[dict[str, Any], Body()]) -> Response:
    """Do an act to `id`, or to each of `ids`; a `reason` is recorded with it."""
    act, broker = _act(person, name), broker_of(request)
    who = f"{person.name}@console"
    if isinstance(said.get("ids"), list):
        done: object = acts.each_of(act, broker, [*map(str, said["ids"])], said, who)
    else:
        done = acts.do(act, broker, str(said.get("id")), said, who)._asdict()
    with suppress(TxSagaError):  # it is done; an engine gives the offsets
        dispatch(broker.kernel)
    return answer(request, done)


def _act(person: Any, name: str) -> acts.Act:
    if name not in acts.ACTS:
        raise HTTPException(404, f"there is no act {name!r}")
    act = acts.act_named(name, person.role)
    if act is None:
        raise HTTPException(403, f"{name} needs the role {acts.ACTS[name].role.name.lower()}; ask an administrator")
    return act
