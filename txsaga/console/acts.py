"""
What a person can do in the console: each act shows its plan first, wants a reason, and does what the command line does.

An act is refused where the command line refuses it, by the same functions. Its row in the audit names the person.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from txsaga.checkback.by_hand import ByHand, require_reason
from txsaga.checkback.checkers import Question
from txsaga.checkback.heartbeat import checkers_of
from txsaga.checkback.one_check import OneCheck
from txsaga.console import plans
from txsaga.console.people import Rank
from txsaga.console.plans import Plan, Said, unattended
from txsaga.console.queries import ConsoleQueries
from txsaga.console.reading import transactions
from txsaga.console.subjects import letter_of, number_in
from txsaga.core.decision import Decision
from txsaga.core.identity import number_of
from txsaga.core.lifecycle import TxState
from txsaga.core.records import LISTED, TxFilter
from txsaga.errors import ConfigError, TxSagaError, UnknownTransaction
from txsaga.flows.by_hand import BranchesByHand, SagasByHand

if TYPE_CHECKING:
    from txsaga.broker import Broker


class ActResult(NamedTuple):
    """What was done, in a line."""

    told: str
    notice: bool = False  # it changed nothing
    group: str | None = None  # the one to look at now


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One act: who may do it, on what, what it would do, and how it is done."""

    name: str
    label: str
    on: str  # transaction, step, branch, letter, topic, group
    does: Callable[[Broker, str, Said, str], str | ActResult]  # returns a line about what was done
    plan: Plan
    role: Rank = Rank.OPERATOR
    danger: bool = False
    forced: bool = False  # whether it can be forced
    title: str = "{label}: {subject}"


def _decide(decision: Decision) -> Callable[[Broker, str, Said, str], str]:
    def does(broker: Broker, id: str, said: Said, who: str) -> str:
        txid = number_of(id, broker.identity)
        force = said.get("force") in (True, "on", "true")
        found = ByHand(broker.kernel).decide(txid, decision, who=who, why=said["reason"], force=force)
        how = "by hand" if found.won else "already"
        return f"transaction {txid} is decided {how}: {found.decision.name}"

    return does


def _resume(broker: Broker, id: str, said: Said, who: str) -> str:
    txid = number_of(id, broker.identity)
    ByHand(broker.kernel).resume(txid, who=who, why=said["reason"])
    return f"transaction {txid} is checked again"


def _settle(broker: Broker, id: str, said: Said, who: str) -> str | ActResult:
    txid = number_of(id, broker.identity)
    with broker.kernel.store.ledgers.open() as ledger:
        ledger.record(txid, "CHECK NOW", who=who, why=said["reason"])
    asked = list[Question]()
    found = OneCheck(broker.kernel).ask(txid, asked.append, who=who)
    if found.decision is not None:
        return f"transaction {txid} is decided: {found.decision.name}: {found.why}"
    queries, listed = ConsoleQueries.of(broker.kernel.store), broker.kernel.store.overview.checks(txid)
    queries.check_now(txid)
    if not asked:  # only a checker is asked
        return ActResult(f"transaction {txid} is not settled: {found.why}", notice=True)
    group, kind = asked[0].group, checkers_of(asked[0].case.doubt.group)
    if listed is not None and listed.parked is not None:
        return ActResult("checked: it is parked; resume it, and a checker is asked", notice=True)
    if any(broker.kernel.store.leases.alive([kind])[kind]):
        told = f"checked: only a checker of group {group} knows more; the next check asks one, and is due now"
        return ActResult(told, notice=True)
    return ActResult(f"checked: no checker of group {group} is running, so nothing was found out", notice=True)


def _replay(broker: Broker, id: str, said: Said, who: str) -> str:
    done = broker.replay(number_of(id, broker.identity), key=said.get("key") or None, who=who, why=said["reason"])
    return f"transaction {done.txid} {'was' if done.again else 'is'} replayed as transaction {done.replayed_as}"


def _step(what: str) -> Callable[[Broker, str, Said, str], str]:
    def does(broker: Broker, id: str, said: Said, who: str) -> str:
        txid, step = number_of(id, broker.identity), number_in(said, "step")
        hand = SagasByHand(broker.kernel)
        if what == "resume":
            hand.resume(txid, who=who, why=said["reason"], number=step)
        else:
            hand.skip(txid, step, who=who, why=said["reason"])
        return f"step {step} of transaction {txid} is {'retried' if what == 'resume' else 'skipped'}"

    return does


def _forget(broker: Broker, id: str, said: Said, who: str) -> str:
    txid = number_of(id, broker.identity)
    number, attempt = number_in(said, "branch"), number_in(said, "attempt")
    done = list(BranchesByHand(broker.kernel).forget(txid, number, attempt, who=who, why=said["reason"]))
    return f"{len(done)} branches of transaction {txid} are forgotten"


def _deliver(broker: Broker, id: str, said: Said, who: str) -> ActResult:
    letter = letter_of(broker, id)
    waiting = unattended(broker, letter.group)
    if not broker.dead_letters.replay([letter.id]):
        raise ConfigError(f"dead letter {letter.id} stays: it is gone, waits already, or its group does not read it")
    told = f"letter {letter.id} is put back for group {letter.group}; it is delivered when a member reads"
    return ActResult(f"{waiting}; {told}" if waiting else told, group=letter.group)


def _delete_letter(broker: Broker, id: str, said: Said, who: str) -> str:
    letter = letter_of(broker, id)
    broker.dead_letters.purge([letter.id])
    return f"letter {letter.id} is deleted"


def _purge(broker: Broker, id: str, said: Said, who: str) -> str:
    return f"messages dropped from {id}: {broker.purge_topic(id)}"


def _delete_topic(broker: Broker, id: str, said: Said, who: str) -> str:
    return f"topic {id} is deleted; messages dropped: {broker.delete_topic(id)}"


def _paused(paused: bool) -> Callable[[Broker, str, Said, str], str]:
    def does(broker: Broker, id: str, said: Said, who: str) -> str:
        broker.alter_group(id, paused=paused)
        return f"group {id} {'takes no more messages' if paused else 'takes messages again'}, within seconds"

    return does


def _delete_group(broker: Broker, id: str, said: Said, who: str) -> str:
    broker.delete_group(id)
    return f"group {id} is deleted"


ACTS: Mapping[str, Act] = {
    act.name: act
    for act in (
        Act(name="settle", label="Check now", on="transaction", does=_settle, plan=plans.check),
        Act(name="resume", label="Resume", on="transaction", does=_resume, plan=plans.resumed),
        Act(
            name="commit",
            label="Commit",
            on="transaction",
            does=_decide(Decision.COMMIT),
            plan=plans.decision(undo=False),
            forced=True,
        ),
        Act(
            name="rollback",
            label="Roll back",
            on="transaction",
            does=_decide(Decision.ROLLBACK),
            plan=plans.decision(undo=True),
            danger=True,
            forced=True,
        ),
        Act(name="replay", label="Replay", on="transaction", does=_replay, plan=plans.replayed),
        Act(
            name="resume-step",
            label="Retry step",
            on="step",
            does=_step("resume"),
            plan=plans.retried,
            title="Retry step {step} of {subject}",
        ),
        Act(
            name="skip-step",
            label="Skip step",
            on="step",
            does=_step("skip"),
            plan=plans.skipped,
            danger=True,
            title="Skip step {step} of {subject}",
        ),
        Act(
            name="forget",
            label="Forget",
            on="branch",
            does=_forget,
            plan=plans.forgotten,
            danger=True,
            title="Forget branch {branch} of {subject}",
        ),
        Act(
            name="replay-letter",
            label="Deliver again",
            on="letter",
            does=_deliver,
            plan=plans.delivered,
            title="Deliver {subject} again",
        ),
        Act(
            name="purge-letter",
            label="Delete",
            on="letter",
            does=_delete_letter,
            plan=plans.deleted_letter,
            role=Rank.ADMIN,
            danger=True,
            title="Delete {subject}",
        ),
        Act(
            name="purge-topic", label="Purge", on="topic", does=_purge, plan=plans.stored, role=Rank.ADMIN, danger=True
        ),
        Act(
            name="delete-topic",
            label="Delete",
            on="topic",
            does=_delete_topic,
            plan=plans.deleted_topic,
            role=Rank.ADMIN,
            danger=True,
        ),
        Act(name="pause-group", label="Pause", on="group", does=_paused(True), plan=plans.paused),
        Act(name="resume-group", label="Resume", on="group", does=_paused(False), plan=plans.unpaused),
        Act(
            name="delete-group",
            label="Delete",
            on="group",
            does=_delete_group,
            plan=plans.deleted_group,
            role=Rank.ADMIN,
            danger=True,
        ),
    )
}


LONGEST, MOST, PAGE = 500, 1_000, 500
"""Letters of a reason, transactions that one act takes, and how many are looked for at once."""
WITHOUT = ("letter", "topic", "group")
"""What an act is on without a transaction: its audit row names number 0."""


def act_named(name: str, role: Rank) -> Act | None:
    """Return the act that a person with this role may do."""
    act = ACTS.get(name)
    return act if act is not None and role >= act.role else None


def do(act: Act, broker: Broker, id: str, said: Said, who: str) -> ActResult:
    """Do it; return a line about what was done. What has no transaction is recorded before it is done."""
    reason = _reason(said)
    what = f"{act.name.upper().replace('-', ' ')} {''.join(c if c.isprintable() else '?' for c in id[:LONGEST])}"
    if act.on in WITHOUT:
        _record(broker, what, who, reason)
    try:
        done = act.does(broker, id, said, who)
    except TxSagaError as refused:
        with suppress(TxSagaError):  # a store that is away, or a login without the right, records nothing
            _record(broker, f"REFUSED: {what}", who, f"{reason} (refused: {refused})", _known(act, broker, id, refused))
        raise
    return done if isinstance(done, ActResult) else ActResult(done)


def _known(act: Act, broker: Broker, id: str, refused: TxSagaError) -> int:
    """Return the number of the transaction of a refused act; 0 if there is none."""
    if act.on not in WITHOUT and not isinstance(refused, UnknownTransaction):
        with suppress(TxSagaError):
            return number_of(id, broker.identity)
    return 0


def _reason(said: Said) -> str:
    reason = said.get("reason")
    if not isinstance(reason, str):
        raise ConfigError("give a reason: it is recorded with the action")
    require_reason(reason)
    if len(reason) > LONGEST or not reason.isprintable():
        raise ConfigError(f"the reason can't be recorded; write one line of at most {LONGEST} letters")
    return reason


def _record(broker: Broker, what: str, who: str, why: str, txid: int = 0) -> None:
    with broker.kernel.store.ledgers.open() as ledger:
        ledger.record(txid, what, who=who, why=why)


def offered(document: Mapping[str, Any], role: Rank) -> list[Act]:
    """Return the acts that make sense for a transaction in its present state."""
    return [act for name in _fitting(document["state"]) if (act := act_named(name, role))]


def _fitting(state: str) -> list[str]:
    if state in (TxState.COMMITTED, TxState.ROLLED_BACK):
        return ["replay"] if state == TxState.ROLLED_BACK else []
    only = [*(["resume"] if state == TxState.PARKED else []), *(["commit"] if state != TxState.ACTIVE else [])]
    return ["settle", *only, "rollback"]


def matching(act: Act, broker: Broker, only: TxFilter) -> tuple[list[str], bool]:
    """Return the transactions of a filter that an act fits, newest first, and whether there are more than it takes."""
    fitting = frozenset(state for state in only.states or LISTED if act.name in _fitting(state))
    only, found = only._replace(states=fitting, before=None), list[str]()
    while fitting and len(found) <= MOST:
        page = transactions(broker.kernel.store, only, PAGE)
        found += [each["id"] for each in page["items"]]
        if page["next"] is None:
            break
        only = only._replace(before=page["next"])
    return found[:MOST], len(found) > MOST


def each_of(act: Act, broker: Broker, ids: list[str], said: Said, who: str) -> list[dict[str, object]]:
    """Do an act for several; one that is refused does not stop the others."""
    if len(ids) > MOST:
        raise ConfigError(f"{len(ids)} transactions are too many at once; select at most {MOST}")
    done: list[dict[str, object]] = []
    for id in ids:
        try:
            done.append({"id": id, "done": True, **do(act, broker, id, said, who)._asdict()})
        except TxSagaError as refused:
            done.append({"id": id, "done": False, "told": str(refused)})
    return done
