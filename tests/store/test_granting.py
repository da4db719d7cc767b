"""Rights are granted, shown, renewed and taken back; the functions behind them are this program's."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from alembic import command
from sqlalchemy import NullPool, create_engine, make_url, text

import txsaga
from tests.scene.stored import Stored
from tests.store import tables
from tests.store.logins import PASSWORD, Logins, logins
from txsaga.errors import ConfigError, RightsMissing
from txsaga.store import doctor, founding, functions, granting, migrate, privileges
from txsaga.store.connection import make_engine, parse_url, transaction
from txsaga.store.right import Right
from txsaga.wiring.connecting import open_store

pytestmark = pytest.mark.postgres

P, C, OP, E = Right.PRODUCER, Right.CONSUMER, Right.OPERATOR, Right.ENGINE

WRITTEN = """
SELECT p.prosrc, p.prosecdef, p.proconfig, p.proowner = n.nspowner,
       EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a WHERE a.grantee = 0)
  FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = :namespace"""


@pytest.fixture
def made(home_url: str) -> Iterator[Logins]:
    open_store(home_url).close()
    with logins(home_url) as made:
        yield made


def migrated(made: Logins) -> None:
    engine = make_engine(*parse_url(made.url))
    migrate.migrate(engine, made.namespace)
    engine.dispose()


def holders(made: Logins) -> set[tuple[str, str, str | None]]:
    engine = make_engine(*parse_url(made.url))
    with transaction(engine) as connection:
        found = granting.holders(connection, made.namespace)
    engine.dispose()
    return {(holder.role, holder.right, holder.through) for holder in found}


def send(url: str, topic: str = "news", group: str = "plain") -> None:
    with txsaga.connect(url, roles=False, env={}) as broker:
        broker.producer(group).send(topic, b"a")


# The table of rights


def test_every_table_sequence_and_function_is_in_the_table_of_rights(made: Logins, stored: Stored) -> None:
    assert set(privileges.TABLES) == {*tables.metadata.tables, *tables.VIEWS, "alembic_version"}
    sequences = "SELECT relname FROM pg_class WHERE relnamespace = :s::regnamespace AND relkind = 'S'"
    of = {"s": made.namespace}
    assert {name for (name,) in stored.rows(sequences.replace(":s::", "CAST(:s AS text)::"), **of)} == set(
        privileges.SEQUENCES
    )
    named = "SELECT proname FROM pg_proc p JOIN pg_namespace n ON n.oid = pronamespace WHERE nspname = :s"
    assert {name for (name,) in stored.rows(named, **of)} == set(privileges.FUNCTIONS)


def test_what_is_granted_is_what_the_table_says(made: Logins, stored: Stored) -> None:
    tables = """
        SELECT table_name, privilege_type FROM information_schema.column_privileges
         WHERE table_schema = :s AND grantee = :who AND table_name !~ '_[0-9]+$'
        UNION SELECT table_name, privilege_type FROM information_schema.table_privileges
         WHERE table_schema = :s AND grantee = :who"""
    for right in Right:
        login = made.new(right)
        common = f"{made.namespace}_{right}"
        got = {(table, what) for table, what in stored.rows(tables, s=made.namespace, who=common)}
        wanted = {
            (table, word)
            for table, needs in privileges.TABLES.items()
            for word in ("SELECT", "INSERT", "UPDATE", "DELETE", "REFERENCES")
            if word in getattr(needs, right)
        }
        assert got == wanted
        assert stored.rows(tables, s=made.namespace, who=login) == []


# The functions


def test_the_functions_are_what_the_program_would_write(made: Logins, stored: Stored) -> None:
    wanted = {function.source for function in functions.functions(f'"{made.namespace}"')}
    found = stored.rows(WRITTEN, namespace=made.namespace)
    assert {row[0] for row in found} == wanted
    assert {tuple(map(str, row[1:])) for row in found} == {
        ("True", "['search_path=pg_catalog, pg_temp']", "True", "False")
    }


def test_migrating_mends_functions_and_drops_those_of_before(made: Logins, stored: Stored) -> None:
    login = made.url_with(P)
    before = {row[0] for row in stored.rows(WRITTEN, namespace=made.namespace)}
    oids = "SELECT oid FROM pg_proc WHERE pronamespace = to_regnamespace(current_schema()) ORDER BY oid"
    same = stored.rows(oids)
    migrated(made)
    assert stored.rows(oids) == same
    made.run("CREATE OR REPLACE FUNCTION mine(int) RETURNS bool LANGUAGE plpgsql AS 'BEGIN RETURN true; END'")
    made.run("DROP FUNCTION decide(int8, int4, bytea, int4, bool, int4)")
    made.run("CREATE FUNCTION decide(int8, int4, bytea, int4, bool, int4) RETURNS int LANGUAGE sql AS 'SELECT 1'")
    made.run(f"CREATE FUNCTION former() RETURNS int LANGUAGE plpgsql AS '{functions.MARK}\nBEGIN RETURN 1; END'")
    made.run("CREATE FUNCTION somebody_s() RETURNS int LANGUAGE sql AS 'SELECT 1'")
    migrated(made)
    made.run("DROP FUNCTION somebody_s()")
    assert {row[0] for row in stored.rows(WRITTEN, namespace=made.namespace)} == before
    with txsaga.connect(made.url, roles=False, env={}) as owner:
        owner.create_topic("orders", "transaction")
    with txsaga.connect(login, roles=False, env={}) as broker:  # it still may call what was dropped and made anew
        producer = broker.producer("shop", checker=lambda _: None)
        producer.commit(producer.prepare_now("orders", b"a"))


def test_migrating_keeps_what_users_built_on_the_functions(made: Logins, stored: Stored) -> None:
    login = made.url_with(P)
    before = {tuple(map(str, row)) for row in stored.rows(WRITTEN, namespace=made.namespace)}
    calls = f"SELECT \"{made.namespace}\".send('shop', 'paid', 'x'), \"{made.namespace}\".join('x')"
    made.run(f"CREATE SCHEMA shop; CREATE VIEW shop.paying AS {calls}")
    try:
        older = "pg_get_functiondef(oid), 'BEGIN', '/* older */ BEGIN'"
        made.run(f"""DO $$ DECLARE each text; BEGIN
            FOR each IN SELECT replace({older}) FROM pg_proc
             WHERE pronamespace = to_regnamespace(current_schema()) AND proname IN ('send', 'join') LOOP EXECUTE each;
            END LOOP; END $$""")
        made.run("GRANT EXECUTE ON FUNCTION join(text) TO PUBLIC")
        migrated(made)
    finally:
        made.run("DROP SCHEMA shop CASCADE")
    assert {tuple(map(str, row)) for row in stored.rows(WRITTEN, namespace=made.namespace)} == before
    with txsaga.connect(made.url, roles=False, env={}) as owner:
        owner.create_topic("paid")
    engine = create_engine(parse_url(login)[0], poolclass=NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"SELECT \"{made.namespace}\".send('shop', 'paid', 'x')")
    engine.dispose()


def test_what_a_caller_puts_into_the_way_is_not_found(made: Logins) -> None:
    login = made.new(P)
    with txsaga.connect(made.url, roles=False, env={}) as owner:
        owner.create_topic("news", queues=1)
        theirs = owner.producer("theirs").group.id
    made.grant(P, made.new(), "theirs")
    engine = create_engine(parse_url(made.url_of(login))[0], poolclass=NullPool)
    lies = """
        CREATE FUNCTION pg_temp.mine(int) RETURNS bool LANGUAGE sql AS 'SELECT true';
        CREATE FUNCTION pg_temp.pg_has_role(name, regrole, text) RETURNS bool LANGUAGE sql AS 'SELECT true';
        CREATE FUNCTION pg_temp.pg_has_role(name, oid, text) RETURNS bool LANGUAGE sql AS 'SELECT true';
        CREATE FUNCTION pg_temp.int4eq(int, int) RETURNS bool LANGUAGE sql AS 'SELECT true';
        CREATE TEMP TABLE producer_group AS SELECT 1 AS id, NULL::text AS role;
        SET search_path = pg_temp, pg_catalog"""
    with engine.begin() as connection:
        connection.exec_driver_sql(lies)
        mine = connection.execute(text(f'SELECT "{made.namespace}".mine({theirs})'))
        assert mine.scalar_one() is False


# Whose a producer group is


def test_a_group_belongs_to_the_login_that_registered_it(made: Logins) -> None:
    with txsaga.connect(made.url, roles=False, env={}) as owner:
        owner.create_topic("news")
    anna, berta = made.new(P), made.new(P)
    send(made.url_of(anna), group="annas")
    with pytest.raises(RightsMissing, match=f"^{berta} may not act for that producer group; grant the right") as told:
        send(made.url_of(berta), group="annas")
    assert "\n" not in str(told.value)
    made.run(f"GRANT {anna} TO {berta}")  # who may be anna may send for her
    send(made.url_of(berta), group="annas")


def test_a_group_of_the_owner_is_every_producer_s_until_it_is_given_away(made: Logins) -> None:
    with txsaga.connect(made.url, roles=False, env={}) as owner:
        owner.create_topic("news")
        owner.producer("plain")
    anna, berta = made.new(P), made.new(P)
    send(made.url_of(anna))
    send(made.url_of(berta))
    made.grant(P, anna, "plain")
    send(made.url_of(anna))
    with pytest.raises(RightsMissing, match="may not act"):
        send(made.url_of(berta))
    send(made.url)
    with pytest.raises(ConfigError, match="'nothing' is not registered yet"):
        made.grant(P, anna, "nothing")


def test_a_group_whose_role_is_gone_is_nobody_s_but_the_owner_s(made: Logins, stored: Stored) -> None:
    with txsaga.connect(made.url, roles=False, env={}) as owner:
        owner.create_topic("news")
    anna = made.new(P)
    send(made.url_of(anna))
    stored.rows("UPDATE producer_group SET role = 'nobody_of_that_name'")
    with pytest.raises(RightsMissing, match="may not act"):
        send(made.url_of(anna))
    send(made.url)


# Granting and taking back


def test_rights_are_a_group_s_and_logins_are_its_members(made: Logins) -> None:
    anna, berta = made.new(P, C), made.new(P)
    common = {right: f"{made.namespace}_{right}" for right in Right}
    assert holders(made) == {
        (common[P], P, None), (common[C], C, None), (anna, P, common[P]), (anna, C, common[C]), (berta, P, common[P]),
    }  # fmt: skip
    made.revoke(P, anna)
    assert (anna, P, common[P]) not in holders(made)
    made.grant(P, anna)
    made.grant(P, anna)
    assert (anna, P, common[P]) in holders(made)
    with pytest.raises(ConfigError, match=f"'{berta}' has no engine right here; see `txsaga db rights`"):
        made.revoke(E, berta)
    with pytest.raises(
        ConfigError,
        match=r"role 'nobody at all' does not exist .*: CREATE ROLE \"nobody at all\" LOGIN",
    ):
        made.grant(P, "nobody at all")


def test_a_right_that_comes_by_somebody_else_s_group_is_taken_there(made: Logins) -> None:
    team, anna = made.new(P, options="NOLOGIN"), made.new()
    made.run(f"GRANT {team} TO {anna}")
    with pytest.raises(ConfigError, match=f"'{anna}' has the producer right as a member of {team}, which may mean"):
        made.revoke(P, anna)
    assert (anna, P, team) in holders(made)
    made.revoke(P, team)
    assert {role for role, _, _ in holders(made)} == {f"{made.namespace}_producer"}


def test_whoever_grants_waits_for_whoever_migrates(made: Logins) -> None:
    engine = make_engine(*parse_url(made.url))
    login = made.new()
    waits = "SELECT pg_try_advisory_xact_lock(hashtextextended(CAST(:name AS text), 0))"
    with transaction(engine) as first, transaction(engine) as second:
        granting.grant(first, made.namespace, P, login, ())
        assert second.execute(text(waits), {"name": f"txsaga migrate {made.namespace}"}).scalar() is False
    engine.dispose()


def test_an_owner_who_may_not_let_into_a_group_grants_to_the_login_itself(poor: Logins) -> None:
    common = f"{poor.namespace}_producer"
    poor.run(f'CREATE ROLE "{common}"')
    poor.run(f'GRANT REFERENCES (producer) ON may TO "{common}"')
    anna = poor.new(P)
    assert (anna, P, None) in holders(poor)


def test_a_group_role_of_that_name_that_means_nothing_here_is_left_alone(made: Logins, stored: Stored) -> None:
    made.run(f'CREATE ROLE "{made.namespace}_producer"')
    anna = made.new(P)
    assert holders(made) == {(anna, P, None)}


@pytest.fixture
def poor(foreign_databases: Callable[[], str]) -> Iterator[Logins]:
    """Give a namespace whose owner may make no roles."""
    url = foreign_databases()
    with logins(url) as admin:
        owner = admin.new()
        admin.run(f'GRANT CREATE ON DATABASE "{make_url(url).database}" TO {owner}')
        own_url = make_url(url).set(username=owner, password=PASSWORD).render_as_string(hide_password=False)
        open_store(own_url).close()
        admin.url = own_url
        yield admin


def test_without_the_right_to_make_roles_the_login_itself_is_granted(poor: Logins) -> None:
    anna = poor.new(P, C, E)
    berta = poor.new(OP)
    assert holders(poor) == {(anna, P, None), (anna, C, None), (anna, E, None), (berta, OP, None)}
    with txsaga.connect(poor.url_of(berta), roles=False, env={}) as operator:
        operator.create_topic("news", queues=1)
    send(poor.url_of(anna))
    with txsaga.connect(poor.url_of(anna), roles=False, env={}) as broker:
        for role in broker.roles():
            role.run_once()
        stream = broker.stream("readers", ["news"])
        assert [message.body for message in stream.messages(wait=0)] == [b"a"]
        stream.close()


def test_taking_one_right_leaves_the_others(poor: Logins) -> None:
    anna = poor.new(P, C)
    with txsaga.connect(poor.url, roles=False, env={}) as owner:
        owner.create_topic("news", queues=1)
    poor.revoke(C, anna)
    assert holders(poor) == {(anna, P, None)}
    send(poor.url_of(anna))
    with txsaga.connect(poor.url_of(anna), roles=False, env={}) as broker, pytest.raises(RightsMissing):
        broker.stream("readers", ["news"])
    poor.revoke(P, anna)
    assert holders(poor) == set()
    with pytest.raises(RightsMissing):
        send(poor.url_of(anna))


def test_a_superuser_who_migrates_does_not_lend_his_rights_to_the_functions(
    poor: Logins, foreign_databases: object
) -> None:
    poor.run("DROP FUNCTION token(int4, int8)")
    url = make_url(poor.url).set(username=poor.admin.url.username, password=poor.admin.url.password)
    open_store(url.render_as_string(hide_password=False)).close()
    found = Stored(poor.url).rows(WRITTEN, namespace=poor.namespace)
    assert len(found) == len(functions.functions("s"))
    assert all(row[3] for row in found)


def test_a_superuser_who_migrates_leaves_nothing_that_is_his(
    foreign_databases: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, upgrade = foreign_databases(), command.upgrade
    with logins(url) as admin:
        owner = admin.new()
        admin.run(f'GRANT CREATE ON DATABASE "{make_url(url).database}" TO {owner}')
        with monkeypatch.context() as before:
            before.setattr(command, "upgrade", lambda config, _: upgrade(config, "0014"))
            before.setattr(functions, "write", lambda *_: False)
            before.setattr(granting, "renew", lambda *_: None)
            before.setattr(founding, "found", lambda *_, **__: None)
            engine = make_engine(*parse_url(admin.url_of(owner)))
            migrate.migrate(engine, admin.namespace)
            engine.dispose()
        open_store(url).close()
        owners = "SELECT DISTINCT relowner::regrole::text FROM pg_class WHERE relnamespace = to_regnamespace(:s)"
        assert Stored(url).rows(owners.replace("::", "\\:\\:"), s=admin.namespace) == [(owner,)]


@pytest.mark.parametrize("blanket", ['GRANT SELECT ON ALL TABLES IN SCHEMA "{s}" TO', "GRANT pg_read_all_data TO"])
def test_who_may_read_everything_has_no_right_by_it(made: Logins, blanket: str) -> None:
    reader = made.new()
    made.run(f"{blanket.format(s=made.namespace)} {reader}")
    made.run(f'GRANT USAGE ON SCHEMA "{made.namespace}" TO {reader}')
    with pytest.raises(RightsMissing, match="db grant"):
        send(made.url_of(reader))
    assert holders(made) == set()
    engine = make_engine(*parse_url(made.url_of(reader)))
    with transaction(engine) as connection:
        assert granting.login(connection, made.namespace).rights == frozenset()
    engine.dispose()


def test_the_owner_is_told_of_groups_of_nobody_and_of_whoever_was_granted_all_tables(
    made: Logins, stored: Stored
) -> None:
    def told() -> str:
        engine = make_engine(*parse_url(made.url))
        with transaction(engine) as connection:
            found = doctor.rights(connection, made.namespace)
        engine.dispose()
        return f"{found.severity} {found.found}"

    assert told().startswith("ok")
    anna = made.new()
    made.run(f'GRANT SELECT ON ALL TABLES IN SCHEMA "{made.namespace}" TO {anna}')
    assert told() == f"warning {anna} was granted ALL TABLES, which is more than any right needs"
    stored.rows("INSERT INTO producer_group (name, transactional, role) VALUES ('shop', true, 'gone')")
    assert told() == "warning producer groups of roles that no longer exist: shop of gone"


def test_whoever_migrates_in_passing_grants_anew_what_changed(made: Logins) -> None:
    with txsaga.connect(made.url, roles=False, env={}) as owner:
        owner.create_topic("news", queues=1)
    anna = made.new(P)
    made.run("DROP FUNCTION publish(int8, bool, int4, int4, int4, int4, int4, int4, bytea)")
    open_store(made.url).close()
    send(made.url_of(anna))


def test_migrating_grants_anew_what_each_has(made: Logins) -> None:
    with txsaga.connect(made.url, roles=False, env={}) as owner:
        owner.create_topic("news", queues=1)
    anna = made.new(P)
    made.run(f'REVOKE ALL ON op, half FROM "{made.namespace}_producer"')
    made.run(f'GRANT TRUNCATE ON log TO "{made.namespace}_producer"')
    made.run('REVOKE ALL ON FUNCTION publish(int8, bool, int4, int4, int4, int4, int4, int4, bytea) '
             f'FROM "{made.namespace}_producer"')  # fmt: skip
    with pytest.raises(RightsMissing, match="permission denied for function publish"):
        send(made.url_of(anna))
    open_store(made.url).close()  # as every program with an embedded database does
    with pytest.raises(RightsMissing):
        send(made.url_of(anna))
    migrated(made)
    send(made.url_of(anna))
    truncates = "SELECT has_table_privilege(CAST(:who AS text), 'log', 'TRUNCATE')"
    assert Stored(made.url).value(truncates, who=anna) is False
