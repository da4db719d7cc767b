"""Whatever updates a client sends: a view becomes what Iceberg's Java library makes of it, or both refuse alike."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.open_catalog.java_program import java as program
from tests.open_catalog.test_view_metadata import (
    ALLOWED,
    UUID,
    Json,
    add,
    add_schema,
    current,
    limit,
    parsed,
    sql,
    version,
    view,
)
from txsaga.iceberg.refusals import BadUpdate
from txsaga.iceberg.view_metadata import updated

pytestmark = [pytest.mark.spark, pytest.mark.slow]
NOW = 10**12
"""Later than any version here, earlier than Java's clock."""

Java = Callable[[Json, Sequence[Json]], str]


@pytest.fixture(scope="module")
def java() -> Iterator[Java]:
    """Give what Iceberg's Java library answers."""
    with subprocess.Popen(
        program("UpdateView"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as ran:
        assert ran.stdin
        assert ran.stdout
        to_java, from_java = ran.stdin, ran.stdout

        def answered(raw: Json, updates: Sequence[Json]) -> str:
            to_java.write("\t".join(map(json.dumps, [raw, *updates])) + "\n")
            to_java.flush()
            return from_java.readline().strip()

        try:
            yield answered
        finally:
            ran.kill()


QUERIES = st.builds(sql, st.sampled_from("ab"), st.sampled_from(["spark", "spark", "SPARK", "trino"]))
CATALOGS = st.sampled_from(
    [{}, {}, {"default-catalog": None}, {"default-catalog": "prod"}, {"summary": {"user": "me"}}]
)
COLUMNS = st.builds(
    lambda name, kind, required: [{"id": 1, "name": name, "type": kind, "required": required}],
    st.sampled_from("xy"),
    st.sampled_from(["long", "decimal(9,2)", "decimal(9, 2)"]),
    st.booleans(),
)
SCHEMAS = st.builds(
    lambda number, fields: {"type": "struct", "schema-id": number, "fields": fields},
    st.sampled_from([0, 1, 9]),
    COLUMNS,
)


def versions(schemas: st.SearchStrategy[int]) -> st.SearchStrategy[Json]:
    """Make versions that are often the same, or have the id of another."""
    made = st.builds(
        lambda number, queries, schema, at, more: version(number, *queries, schema=schema, at=at) | more,
        st.sampled_from([1, 2, 3]),
        st.lists(QUERIES, min_size=1, max_size=1) | st.lists(QUERIES, min_size=2, max_size=2),
        schemas,
        st.integers(1_000, 2_000),
        CATALOGS,
    )
    return made


SINGLE = st.one_of(
    st.builds(add, versions(st.just(0))),
    st.builds(add, versions(st.sampled_from([0, 1]))),
    st.builds(current, st.sampled_from([1, 1, 2, 2, 3, 4])),
    st.builds(add_schema, SCHEMAS),
    st.builds(limit, st.sampled_from([1, 1, 2, 2, 3, 0])),
    st.sampled_from(["true", "TRUE", "false"]).map(
        lambda word: {"action": "set-properties", "updates": {"replace.drop-dialect.allowed": word}}
    ),
    st.sampled_from([*ALLOWED, "version.history.num-entries", "missing"]).map(
        lambda key: {"action": "remove-properties", "removals": [key]}
    ),
    st.sampled_from(["s3://a", "s3://b", "s3://c", None]).map(
        lambda place: {"action": "set-location", "location": place}
    ),
    st.sampled_from([UUID, UUID, UUID, "other"]).map(lambda uuid: {"action": "assign-uuid", "uuid": uuid}),
)
REPLACE: st.SearchStrategy[Sequence[Json]] = st.builds(
    lambda schema, made: [add_schema(schema), add(made), current()], SCHEMAS, versions(st.just(-1))
) | st.just([])
CHANGES = st.builds(lambda replace, more: [*replace, *more], REPLACE, st.lists(SINGLE, max_size=2))
FIRST = st.sampled_from([{}, ALLOWED, ALLOWED, ALLOWED | {"version.history.num-entries": "2"}])


@pytest.mark.timeout(120)
@settings(deadline=None, max_examples=120)
@given(properties=FIRST, changes=st.lists(CHANGES, min_size=1, max_size=8))
def test_a_view_becomes_what_java_makes_of_it(java: Java, properties: Json, changes: Sequence[Sequence[Json]]) -> None:
    raw = view(properties=properties)
    for updates in changes:
        expected = java(raw, updates)
        # Java takes what is named last for added last only if nothing was the same before, and refuses otherwise.
        if "refused: Cannot set last" in expected:
            continue
        try:
            made = parsed(updated(raw, updates, moment=NOW))
        except BadUpdate as refused:
            assert words(f"refused: {refused}") == words(expected)
            continue
        if made != raw:  # without a change Java writes nothing either
            assert alike(made) == alike(json.loads(expected))
        raw = made


def words(text: str) -> Sequence[str]:
    """Return the words of a text in any order: Java lists dialects in that of their hashes."""
    return sorted(re.findall(r"[\w.]+", text))


def alike(raw: Json) -> Json:
    """Return a view's metadata in the one form of all that mean the same."""
    parts = [{key: value for key, value in each.items() if value is not None} for each in raw["versions"]]
    entries = [each | {"timestamp-ms": min(each["timestamp-ms"], NOW)} for each in raw["version-log"]]
    schemas = json.loads(json.dumps(raw["schemas"]).replace("(9,2)", "(9, 2)"))
    in_order = sorted(parts, key=lambda each: int(each["version-id"]))
    return {"properties": {}, **raw, "schemas": schemas, "versions": in_order, "version-log": entries}
