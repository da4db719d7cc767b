"""
What is known, as data for programs: the same for `--json` of the command line, for metrics and for the console.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from txsaga.checkback.profile import PROFILES
from txsaga.errors import ChunkDamaged
from txsaga.flows.branch import BranchId
from txsaga.flows.step import HeldLocks
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
    return {**known, "kind": group.kind, "checks": dict(group.checks)}


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


STORE: Mapping[str, str] = {
    "txsaga_undecided": "Undecided transactions, including parked ones.",
    "txsaga_undecided_oldest_seconds": "Age of the oldest undecided transaction; 0 if there is none.",
    "txsaga_parked": "Transactions that ran out of checks and need an operator's decision.",
    "txsaga_dispatch_waiting": "Committed transactions that wait for the dispatcher.",
    "txsaga_tick_age_seconds": "Time since the last tick of the dispatcher; it also grows while nothing is waiting.",
}
GROUP: Mapping[str, str] = {
    "txsaga_group_lag": "Messages not delivered to the group yet.",
    "txsaga_group_held": "Messages in flight: claimed by members, or bound to transactions.",
    "txsaga_group_retrying": "Messages waiting for a retry.",
    "txsaga_group_members": "Live members of the group.",
    "txsaga_group_oldest_seconds": "Age of the oldest unprocessed message; 0 if there is none.",
}
PRODUCER: Mapping[str, str] = {
    "txsaga_producer_undecided": "Undecided transactions of a producer group, including parked ones.",
    "txsaga_producer_oldest_seconds": "Age of the group's oldest undecided transaction; 0 if there is none.",
    "txsaga_producer_parked": "Transactions of the group that ran out of checks and need an operator's decision.",
    "txsaga_producer_asked": "Transactions of the group that a member is being asked about.",
    "txsaga_producer_members": "Live members that answer checks for the group.",
}
ROUND: Mapping[str, str] = {
    "txsaga_check_waiting": "1 if transactions are due for a check.",
    "txsaga_check_round_age_seconds": "Time since the last round of check-back; it also grows while nothing is due.",
}
BRANCHES: Mapping[str, str] = {
    "txsaga_branches_undecided": "Branches of undecided transactions.",
    "txsaga_branches_waiting": "Branches of decided transactions that are still prepared in their resource.",
    "txsaga_branches_oldest_seconds": "Age of the oldest waiting branch; 0 if there is none.",
    "txsaga_branches_heuristic": "Branches settled outside txsaga (heuristic outcomes) and not acknowledged yet.",
}
HELD: Mapping[str, str] = {
    "txsaga_flow_held": "Steps of undecided flows that hold locks.",
    "txsaga_flow_over_budget": "Steps of undecided flows that hold locks longer than their budget.",
    "txsaga_flow_held_oldest_seconds": "Time for which the oldest of these steps has held locks; 0 if there is none.",
}
SAGAS: Mapping[str, str] = {
    "txsaga_sagas_running": "Undecided sagas.",
    "txsaga_sagas_driving": "Decided sagas whose compensations, or steps after the point of no return, are running.",
    "txsaga_sagas_waiting": "Decided sagas that wait for code, for a resource, or for a retry.",
    "txsaga_sagas_stalled": "Stalled sagas: an operator must resume or skip a step.",
}
DEAD = {"txsaga_dead_letters": "Dead letters of a group."}
MIN_AGE = PROFILES["classic"].min_age
Family = tuple[Mapping[str, str], Sequence[str], Iterable[tuple[Sequence[str], Iterable[float]]]]
"""Names of metrics with what they are, their labels, and rows: a value of each label, and of each metric."""


def figures(store: Store, min_age: timedelta = MIN_AGE) -> Iterator[Family]:
    """Read the figures of a store, as metrics and alarms name them."""
    overview, undecided, dispatch = store.overview, store.overview.undecided(), store.overview.dispatch()
    counts = (undecided.count, _seconds(undecided.oldest), undecided.parked, dispatch.waiting)
    yield STORE, [], [((), (*counts, dispatch.age.total_seconds()))]
    last = overview.last_round(CHECK_BACK)
    yield ROUND, [], [((), (store.doubts.waiting(min_age), math.inf if last is None else last.ago.total_seconds()))]
    backlogs, branches = overview.backlogs(), overview.branches()
    yield (
        PRODUCER,
        ["group"],
        [([e.group], (e.undecided, _seconds(e.oldest), e.parked, e.asked, e.members)) for e in backlogs],
    )
    read = [([e.group, e.topic], e) for e in overview.readings()]
    yield (
        GROUP,
        ["group", "topic"],
        [(of, (e.lag, e.held, e.retrying, e.members, _seconds(e.oldest))) for of, e in read],
    )
    of_each = [([e.resource], (e.undecided, e.waiting, _seconds(e.oldest), e.heuristics)) for e in branches]
    yield BRANCHES, ["resource"], of_each
    held = {each.resource: each for each in store.flows.held()}
    # Those without any are reported as 0, as are groups below: else an alert would not end.
    locks = [held.get(each.resource, HeldLocks(each.resource, 0, 0, None)) for each in branches]
    yield HELD, ["resource"], [([e.resource], (e.held, e.over, _seconds(e.oldest))) for e in locks]
    yield SAGAS, [], [((), astuple(store.work.saga_figures()))]
    dead = overview.dead_letters()
    yield DEAD, ["group"], [([n], [dead.get(n, 0)]) for n in sorted({g.name for g in store.groups.all()} | dead.keys())]


def _seconds(age: timedelta | None) -> float:
    return 0.0 if age is None else age.total_seconds()


def _of(found: object, *names: str) -> dict[str, Any]:
    return {name: getattr(found, name) for name in names}
