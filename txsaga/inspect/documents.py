"""
What is known, as data for programs: the same for `--json` of the command line and for the console.
"""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from txsaga.errors import ChunkDamaged
from txsaga.flows.branch import BranchId
from txsaga.inspect.overview import ANSWERS

if TYPE_CHECKING:
    from txsaga.consume.dead_letter import DeadLetter
    from txsaga.core.identity import StoreId
    from txsaga.core.message import Delivered
    from txsaga.core.records import Bounds, Group, HalfView, TxView
    from txsaga.core.topic import Topic
    from txsaga.flows.ballot import Polled
    from txsaga.flows.branch import Branch
    from txsaga.flows.requests import SagaView
    from txsaga.flows.step import Step
    from txsaga.inspect.overview import Backlog, Checks, DoubtView, Position, Reading
    from txsaga.inspect.trace import Trace
    from txsaga.store.store import Store

CHECK_BACK = "check-back"
"""The role whose last round is shown."""


def transaction_document(view: TxView) -> dict[str, object]:
    """Write a transaction."""
    return asdict(view) | {"decision": view.decision and view.decision.name}


def doubt_document(doubt: DoubtView) -> dict[str, object]:
    """Write a doubt."""
    checks = doubt.checks
    named = {"txid": doubt.txid, "id": doubt.id, "state": doubt.progress, "member": doubt.member, "group": doubt.group}
    due = checks.due if checks.parked is None else None
    said = {"key": doubt.key, "checks": checks.asked, "next_check": due, "age_seconds": doubt.age}
    return named | said | {"why_parked": checks.parked, "remarks": [remark._asdict() for remark in checks.remarks]}


def half_document(half: HalfView) -> dict[str, object]:
    """Write a half."""
    place = {"topic": half.real_topic, "queue": half.real_queue}
    return place | {"messages": half.count, "flag": half.flag, "id": half.id}


def work_document(step: Step) -> dict[str, object]:
    """Write an attempt of a step of a flow."""
    from txsaga.flows.step import read_application

    application = read_application(step.mark)
    held = {"unit": step.unit if step.lane else None, "hold": step.hold, "statements": step.statements or None}
    more = {"application": application and application.name, "over_budget": step.late}
    return {
        "step": step.name,
        **_of(step, "attempt", "state", "resource"),
        **held,
        **more,
        "since": step.at,
        "why": step.error or None,
    }


def outcome_document(branch: Branch) -> dict[str, object]:
    """Write how far a branch of a transaction is."""
    shown = {"branch": branch.number, "attempt": branch.attempt, "resource": branch.resource, "state": branch.state}
    return shown | {"since": branch.at, "why": branch.why or None}


def ballot_document(txid: int, poll: Polled) -> dict[str, object]:
    """Write a ballot with its votes."""
    casts = [
        {"voter": each.voter, "yes": each.yes, "at": each.at, "evidence": dict(each.evidence)} for each in poll.casts
    ]
    said = poll.ballot
    rule = {"rule": said.rule, "needed": said.needed, "voters": list(said.voters)}
    return {"txid": txid, "ballot": said.name, **rule, "result": poll.result.name.lower(), "votes": casts}


def links_document(trace: Trace) -> dict[str, object]:
    """Write which transactions it replays or amends, and which do so with it."""
    links = {"replays": trace.replays, "replayed_as": trace.replayed_as, "amends": trace.amends}
    links["amended_as"] = None if trace.amended_as is None else trace.amended_as.txid
    return {name: txid for name, txid in links.items() if txid is not None}


def checks_document(checks: Checks | None) -> dict[str, object]:
    """Write how often it was checked, and the results."""
    if checks is None:
        return {}
    remarks = [remark._asdict() for remark in checks.remarks]
    return {"asked": checks.asked, "next_check": checks.due, "why_parked": checks.parked, "remarks": remarks}


def rows_document(store: Store, view: TxView, trace: Trace) -> dict[str, list[dict[str, object]]]:
    """Write what a transaction consists of, and who did what to it."""
    from txsaga.inspect.preview import undo_of

    return {
        "halves": [half_document(half) for half in store.halves.views(view.txid)],
        "history": [asdict(each) for each in store.overview.history(view.txid)],
        "work": [work_document(step) for step in trace.steps if trace.life and trace.life.flow],
        "branches": [outcome_document(branch) for branch in trace.branches],
        "undo": [each._asdict() for each in undo_of(trace, view.id)],
    }


def branch_document(store: StoreId, branch: Branch) -> dict[str, object]:
    """Write a branch."""
    named = {"branch": f"{branch.txid}.{branch.number}.{branch.attempt}", **_of(branch, "txid", "number", "attempt")}
    gid = BranchId(store.transaction(branch.txid), branch.number, branch.attempt).gid
    return {**named, **_of(branch, "resource", "state"), "since": branch.at, "why": branch.why or None, "gid": gid}


def saga_document(view: SagaView) -> dict[str, object]:
    """Write a saga that is not over."""
    decision = None if view.decision is None else view.decision.name
    figures = {**_of(view, "steps"), "left": view.waiting, **_of(view, "stalled", "driver", "until")}
    return {**_of(view, "txid", "group", "key"), "decision": decision, **figures, "why": view.why or None}


def step_document(step: Step) -> dict[str, object]:
    """Write a step."""
    written: dict[str, str | None] = _of(step, "input", "compensation", "action", "output")
    return {
        "step": step.number,
        **_of(step, "name", "state", "kind", "resource"),
        **{name: None if text is None else json.loads(text) for name, text in written.items()},
        **_of(step, "left", "tries"),
        "error": step.error or None,
        "due": step.due,
        "since": step.at,
    }


def message_document(message: Delivered) -> dict[str, object]:
    """Write a message."""
    text, encoding = readable(message.body)
    placed = _of(message, "topic", "queue", "offset", "id", "tx_id", "key", "tag")
    rest = {"ordering_key": message.ordering_key, "born": message.born, "body": text, "encoding": encoding}
    return {**placed, "headers": dict(message.headers), **rest}


def readable(body: bytes) -> tuple[str, str]:
    """Return bytes as text, and how they are encoded in it."""
    try:
        return body.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), "base64"


def letter_document(letter: DeadLetter) -> dict[str, object]:
    """Write a letter."""
    return {**_of(letter, "id", "group", "at", "attempts", "cause", "history"), "message": _message_of(letter)}


def _message_of(letter: DeadLetter) -> dict[str, object]:
    try:
        return message_document(letter.message)
    except ChunkDamaged:
        stored = base64.b64encode(letter.copy.body).decode()
        return {**_of(letter, "topic", "queue", "offset"), "id": letter.copy.message, "stored": stored}


def reading_document(reading: Reading) -> dict[str, object]:
    """Write how far a group has read a topic."""
    figures = _of(reading, "group", "topic", "lag", "held", "retrying", "members")
    queues = [position_document(position) for position in reading.positions]
    return {**figures, "oldest_seconds": reading.oldest, "queues": queues}


def position_document(position: Position) -> dict[str, object]:
    """Write how far a group has read a queue."""
    written = asdict(position)
    oldest = written.pop("oldest")
    return {**written, "lag": position.lag, "oldest_seconds": oldest}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """A topic and the bounds of its queues, in the order of their index."""

    topic: Topic
    bounds: tuple[Bounds, ...]

    @property
    def messages(self) -> int:
        """How many messages can be read."""
        return sum(bounds.head - bounds.tail for bounds in self.bounds)


def topic_states(store: Store, name: str | None = None) -> list[TopicState]:
    """Read the state of all topics, or of one."""
    topics = store.registry.topics() if name is None else [store.registry.topic(name)]
    bounds = store.log.bounds([qid for topic in topics for qid in topic.qids])
    return [TopicState(topic=topic, bounds=tuple(bounds[qid] for qid in topic.qids)) for topic in topics]


def topic_document(state: TopicState) -> dict[str, object]:
    """Write a topic."""
    ends = {"tails": [bounds.tail for bounds in state.bounds], "heads": [bounds.head for bounds in state.bounds]}
    kept = _of(state.topic, "retention_seconds", "retention_bytes")
    return {**_of(state.topic, "name", "type"), "messages": state.messages, **kept, **ends}


def backlog_document(backlog: Backlog) -> dict[str, object]:
    """Write the backlog of a group."""
    figures = {"oldest_seconds": backlog.oldest, **_of(backlog, "parked", "asked", "members")}
    answers = {answer: backlog.answers.get(answer, 0) for answer in ANSWERS}
    return {**_of(backlog, "group", "undecided"), **figures, "answers": answers}


def producers_document(group: Group, backlog: Backlog | None) -> dict[str, object]:
    """Write a group for programs: one without checkers and without undecided transactions has no backlog."""
    known = {"group": group.name} if backlog is None else backlog_document(backlog)
    return {**known, "checks": dict(group.checks)}


def status_document(store: Store) -> dict[str, object]:
    """Write the state of a store."""
    registry, overview = store.registry, store.overview
    undecided, last, backlogs = overview.undecided(), overview.last_round(CHECK_BACK), overview.backlogs()
    dispatch, asked = overview.dispatch(), sum(backlog.asked for backlog in backlogs)
    return {
        "store": _of(registry.identity, "uuid", "incarnation"),
        "rejects_transactions": registry.rejects_transactions,
        "undecided": {**_of(undecided, "count", "parked"), "oldest_seconds": undecided.oldest, "asked": asked},
        "last_round": None if last is None else {"leader": last.leader, "ago_seconds": last.ago},
        "producers": [backlog_document(backlog) for backlog in backlogs],
        "branches": [asdict(backlog) for backlog in overview.branches()],
        "sagas": asdict(store.work.saga_figures()),
        "held": [each._asdict() for each in store.flows.held()],
        "scheduled": undecided.scheduled,
        "dispatcher": {"tick": dispatch.tick, "age_seconds": dispatch.age, **_of(dispatch, "waiting", "blocked")},
        "topics": [topic_document(state) for state in topic_states(store)],
        "groups": [reading_document(each) for each in overview.readings()],
        "dead_letters": overview.dead_letters(),
    }


def _of(found: object, *names: str) -> dict[str, Any]:
    return {name: getattr(found, name) for name in names}
