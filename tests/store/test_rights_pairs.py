"""Two rights on one login are no more than both: what neither may do of a rival's, a login with both may not do either.

Each statement is tried by raw SQL as a login of each right, and of each pair of them; the owner does all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import combinations
from typing import NamedTuple

import psycopg
import pytest
from sqlalchemy import make_url

from tests.scene.stored import Stored
from tests.store.opened_as import Open, made, open_as, operator, run_roles
from tests.store.rights_scene import Scene, outcome, scene
from tests.store.rights_table import (
    BEGIN_WORK,
    DECIDE,
    DONE,
    LEASE,
    LOGGED,
    ONE,
    PREPARE,
    PUBLISH,
    RAW_HALF,
    RECALL,
    RESOLVE,
    C,
    E,
    P,
)
from txsaga.checkback.by_hand import ByHand
from txsaga.core.decision import Decision, LocalState
from txsaga.store.right import Right

__all__ = ["made", "open_as", "operator", "scene"]

pytestmark = pytest.mark.postgres

PAIRS = list(combinations(Right, 2))
MAKERS: list[tuple[Right, ...]] = [*((right,) for right in Right), *PAIRS]
THEIRS = ONE | {"group": "{theirs}"}
ROWS = [
    "INSERT INTO part VALUES ({key}, 8, 1)",
    "INSERT INTO effect VALUES ({key}, 8, 'late', '{{}}')",
    "INSERT INTO branch (txid, number, attempt, resource, state, decision) VALUES ({key}, 8, 1, 1, 'active', 2)",
    "INSERT INTO flow_unit (txid, resource, number, attempt) VALUES ({key}, 'r', 8, 1)",
    "INSERT INTO step (txid, number, name, attempt, state, kind, input) "
    "VALUES ({key}, 8, 'x', 1, 'started', 'call', 'null')",
    "INSERT INTO saga (txid, ticket, until) VALUES ({key}, 8, now())",
    "INSERT INTO event (txid, what, who, why) VALUES ({key}, 'a', 'b', 'c')",
    "INSERT INTO table_intent VALUES ('c', 'n', 't', '', {own_key})",
]
"""What lies there of the rival's, to be changed and deleted."""


class Try(NamedTuple):
    """Something of a rival's that somebody tries, and where the owner finds it done where its answer does not tell."""

    what: str
    sql: str
    look: str | None = None


TRIES = [
    Try("prepare", PREPARE.format(**THEIRS)),
    Try("publish", PUBLISH.format(**THEIRS)),
    Try("schedule", "SELECT * FROM schedule(1::int8, true, {theirs}, {qid}, 0, 1, NULL::int4, NULL::int4, {body}, "
        "1::float8, NULL::float8)"),
    Try("send", "SELECT * FROM send({theirs}, {qid}, 1, {body})"),
    Try("begin work", BEGIN_WORK),
    Try("resolve", RESOLVE.format(txid="{open}")),
    Try("note a branch", "SELECT * FROM note_branches(ARRAY[{key}]::int8[], '{{8}}', '{{1}}', '{{rolled_back}}', "
        "'{{x}}')", "SELECT FROM branch WHERE txid = {key} AND state = 'rolled_back'"),
    Try("decide with the token", DECIDE.format(txid="{plain}", group="{theirs}", token="{token}", check=True)),
    Try("decide without a token", DECIDE.format(txid="{plain}", group="{theirs}", token="''", check=True)),
    Try("recall", RECALL),
    Try("ask for the token", "SELECT 1 WHERE token({theirs}, {plain}) IS NOT NULL"),
    Try("read what is asked about", "SELECT * FROM contents({plain})"),
    Try("hold", "SELECT hold('{{{plain}}}', 30)",
        "SELECT FROM doubt WHERE check_at > now() + interval '10 seconds' AND txid = {plain}"),
    Try("take up a question", "SELECT * FROM take('you', 9)"),
    Try("answer a question", "SELECT answered('you', '{{{plain}}}', '{{UNKNOWN}}', '{{x}}')",
        "SELECT 1 WHERE NOT EXISTS (SELECT FROM question WHERE txid = {plain})"),
    Try("take off the list", "SELECT unlist({plain})",
        "SELECT 1 WHERE NOT EXISTS (SELECT FROM doubt WHERE txid = {plain})"),
    Try("read the log", "SELECT * FROM {s}.fetch({qid}, 0, 9, 9)"),
    Try("read a body", "SELECT body FROM half WHERE txid = {plain}"),
    Try("add a half", RAW_HALF + "({key}, {theirs}, {qid}, 1, 1, 9, 1, true, {body})"),
    Try("add a half to a plain one", RAW_HALF + "({plain}, {theirs}, {qid}, 0, 0, 9, 1, true, {body})"),
    Try("add a half to no transaction", RAW_HALF + "(nextval('tx_seq'), {theirs}, {qid}, 0, 0, 0, 1, true, {body})"),
    Try("decide a keyed one as a plain one", "INSERT INTO op (txid, decision) VALUES ({key}, 1)"),
    Try("add a plain half", RAW_HALF + "(nextval('tx_seq'), {theirs}, {qid}, 0, 0, 0, 1, false, {body})"),
    Try("decide a half", "INSERT INTO op (txid, decision) VALUES ({plain}, 2)"),
    Try("decide a keyed one", "UPDATE tx SET state = 'rolled_back' WHERE txid = {key}; "
        "INSERT INTO op (txid, decision, keyed) VALUES ({key}, 2, true)"),
    Try("open a life", "SELECT nextval('tx_seq'); INSERT INTO tx (txid, pgroup, key, epoch, state) "
        "VALUES (currval('tx_seq'), {theirs}, 'z', 1, 'active')"),
    Try("move a life", "UPDATE tx SET state = 'sealed' WHERE txid = {key}"),
    Try("win a part", "INSERT INTO part VALUES ({key}, 7, 9)"),
    Try("change a part", "UPDATE part SET attempt = 9 WHERE txid = {key}"),
    Try("keep a place", "INSERT INTO effect VALUES ({key}, 9, 'late', '{{}}')"),
    Try("give a place up", "DELETE FROM effect WHERE txid = {key}"),
    Try("call a ballot", "INSERT INTO ballot VALUES ({key}, 'b', 'all', NULL, '{{x}}')"),
    Try("vote", "INSERT INTO vote (txid, ballot, voter, yes, evidence) VALUES ({key}, 'b', 'x', true, 'null')"),
    Try("name a branch", "INSERT INTO branch (txid, number, attempt, resource, state) "
        "VALUES ({key}, 9, 1, 1, 'active')"),
    Try("move a branch", "UPDATE branch SET state = 'forgotten' WHERE txid = {key}"),
    Try("declare a resource", "INSERT INTO flow_resource VALUES ({key}, 'r', false, 1)"),
    Try("begin a step of a flow", "INSERT INTO step (txid, number, name, attempt, state, lane, unit, branch, mark) "
        "VALUES ({key}, 10, 'x', 1, 'started', false, 0, 1, '')"),
    Try("tell of a step of a flow", "UPDATE step SET late = true WHERE txid = {key}"),
    Try("open a unit", "INSERT INTO flow_unit (txid, resource, number, attempt) VALUES ({key}, 'r', 9, 1)"),
    Try("decide a unit", "UPDATE flow_unit SET decision = 1 WHERE txid = {key}"),
    Try("journal statements", "UPDATE step SET journal = '[]' WHERE txid = {key}"),
    Try("move what undoes a step", "UPDATE step SET kind = NULL, input = NULL, compensation = NULL WHERE txid = {key}"),
    Try("write a step down", "INSERT INTO step (txid, number, name, attempt, state, kind, input) "
        "VALUES ({key}, 9, 'x', 1, 'started', 'call', 'null')"),
    Try("move a step", "UPDATE step SET state = 'skipped' WHERE txid = {key}"),
    Try("begin a saga", "INSERT INTO saga (txid, ticket, until) VALUES ({own_key}, 9, now())"),
    Try("wake a saga", "UPDATE saga SET until = now() WHERE txid = {key}"),
    Try("end a saga", "DELETE FROM saga WHERE txid = {key}"),
    Try("intend a table", "INSERT INTO table_intent VALUES ('c', 'n', 'u', '', {key})"),
    Try("take over a table", "UPDATE table_intent SET txid = {key}"),
    Try("write the audit", "INSERT INTO event (txid, what, who, why) VALUES ({key}, 'a', 'b', 'c')"),
    Try("put a check off", "UPDATE doubt SET check_at = now() WHERE txid = {plain}"),
    Try("take a question away", "DELETE FROM question WHERE txid = {plain}"),
    Try("count an answer", "INSERT INTO tally VALUES ({theirs}, 'COMMIT', 9)"),
    Try("unschedule", "DELETE FROM scheduled WHERE txid = {later}"),
    Try("answer for a group", LEASE.format(kind="checker:{theirs}")),
    Try("be a member of a consumer group", LEASE.format(kind="member:workers")),
    Try("say that a call is under way", LEASE.format(kind="call").replace("'x'", "'{key}/1'")),
    Try("lead the rounds", LEASE.format(kind="round")),
    Try("bind offsets", "INSERT INTO intent VALUES ('workers', {qid}, 0, 1, 1, {key}, 'me')"),
    Try("end bound offsets", "DELETE FROM intent WHERE txid = {key}"),
    Try("add a claim", "INSERT INTO claim (grp, qid, base, size, open, attempts, until) "
        "VALUES ('workers', {qid}, 50, 1, 1, 1, now())"),
    Try("free a bound claim", "UPDATE claim SET txid = NULL WHERE base = 77"),
    Try("bind a claim", "UPDATE claim SET txid = {key} WHERE base <> 77"),
    Try("end a bound claim", "DELETE FROM claim WHERE base = 77"),
    Try("make a group that backs out", "INSERT INTO consumer_group (name, style, backout, first_retry, longest_retry) "
        "VALUES ('sly', 'work', 'orders', '1s', '1s')"),
    Try("change a group", "UPDATE consumer_group SET backout = 'orders'"),
    Try("change a producer group", "UPDATE producer_group SET checks = '{{}}' WHERE id = {theirs}"),
    Try("change its kind", "UPDATE producer_group SET transactional = true WHERE id = {theirs}"),
    Try("move a cursor", "UPDATE cursor SET off = 9"),
    Try("move a head", "UPDATE queue SET head = 99"),
    Try("write the log", LOGGED),
    Try("create a topic", "INSERT INTO topic (name, type) VALUES ('x', 'normal')"),
    Try("reject transactions", "UPDATE store SET rejecting = true"),
    Try("delete dead letters", "DELETE FROM dead_letter"),
]  # fmt: skip


class Logins:
    """A connection of each login."""

    def __init__(self, scene: Scene, opened: ExitStack) -> None:
        made, url = scene.made, make_url(scene.made.url)

        def connected(login: str | None = None) -> psycopg.Connection:
            address = url if login is None else make_url(made.url_of(login))
            address = address.set(drivername="postgresql").difference_update_query(["namespace"])
            connection = opened.enter_context(psycopg.connect(address.render_as_string(hide_password=False)))
            connection.execute(f'SET search_path = "{made.namespace}"')
            connection.commit()
            return connection

        self.owner = connected()
        self.names = dict(scene.names)
        with self.owner.transaction():
            for sql in ROWS:
                self.owner.execute(sql.format(**self.names))
            self.owner.execute("INSERT INTO intent VALUES ('workers', -1, 0, 1, 1, {key}, 'me')".format(**self.names))
            self.owner.execute("INSERT INTO cursor (grp, qid, off) VALUES ('workers', -1, 0)")
            opened_life = (
                "INSERT INTO tx (txid, pgroup, epoch, state) VALUES (nextval('tx_seq'), {theirs}, 1, 'active')"
            )
            life = self.owner.execute(opened_life.format(**self.names) + " RETURNING txid").fetchone()
        assert life is not None
        self.names["open"] = life[0]
        self.login = {rights: made.new(*rights) for rights in MAKERS}
        self.of = {rights: connected(login) for rights, login in self.login.items()}

    def may(self, rights: tuple[Right, ...], trial: Try) -> bool:
        """Tell whether a login with these rights gets something done; nothing of it stays."""
        if trial.look is None:
            return self._done(self.of[rights], trial.sql)
        self.owner.execute(f"SET LOCAL SESSION AUTHORIZATION {self.login[rights]}")
        return self._done(self.owner, f"{trial.sql}; RESET SESSION AUTHORIZATION; {trial.look}")

    def owner_may(self, trial: Try) -> bool:
        """Tell whether the owner gets it done: that no statement fails for a reason of its own."""
        return self._done(self.owner, "; ".join(filter(None, (trial.sql, trial.look))))

    def _done(self, connection: psycopg.Connection, sql: str) -> bool:
        try:
            return outcome(connection, sql.format(**self.names)) == DONE
        except psycopg.errors.InsufficientPrivilege:
            return False
        finally:
            connection.rollback()


@pytest.fixture(scope="module")
def of(scene: Scene) -> Iterator[Logins]:
    with ExitStack() as opened:
        yield Logins(scene, opened)


@pytest.mark.parametrize("trial", TRIES, ids=lambda trial: trial.what)
def test_a_pair_of_rights_may_do_what_one_of_them_may(of: Logins, trial: Try) -> None:
    assert of.owner_may(trial)
    alone = {right: of.may((right,), trial) for right in Right}
    allowed = {pair for pair in PAIRS if of.may(pair, trial)}
    assert allowed == {(one, other) for one, other in PAIRS if alone[one] or alone[other]}
    assert not alone[P] and (trial.what in CONSUMERS or not alone[C])
    assert trial.what not in NOBODYS or not any(alone.values())


NOBODYS = {"add a half to a plain one", "add a half to no transaction", "decide a keyed one as a plain one"}
"""What none of the rights may do."""
CONSUMERS = {"read the log", "be a member of a consumer group", "add a claim", "move a cursor"}


@pytest.mark.parametrize("decision", list(Decision))
def test_a_producer_who_is_operator_too_decides_others_by_hand_with_a_record(
    operator: object, open_as: Open, decision: Decision
) -> None:
    rival = open_as(P).producer("rival", checker=lambda _: None)
    plain, keyed = rival.prepare_now("orders", b"a"), rival.transaction(key="k").__enter__()
    keyed.prepare()
    both = open_as(P, Right.OPERATOR)
    for txid in (plain.txid, keyed.txid):
        assert txid is not None
        assert ByHand(both.kernel).decide(txid, decision, who="anna", why="the shop is closed").won
        assert [each.who for each in both.kernel.store.overview.history(txid)] == ["anna"]


def test_a_producer_who_is_engine_too_checks_others_back(operator: object, open_as: Open, home_url: str) -> None:
    rival = open_as(P).producer("rival", checker=lambda _: LocalState.COMMIT)
    plain, keyed = rival.prepare_now("orders", b"a"), rival.transaction(key="k").__enter__()
    keyed.prepare()
    both = open_as(P, E)
    both.kernel.checkers.register(rival.group, lambda _: LocalState.COMMIT)
    for _ in range(3):
        run_roles(both)
        Stored(home_url).let_pass(3600)
    run_roles(both)
    found = both.kernel.store.overview.decisions([plain.txid, keyed.txid or 0])
    assert set(found.values()) == {Decision.COMMIT} and len(found) == 2
