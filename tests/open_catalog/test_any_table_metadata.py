"""Any JSON is answered, and PyIceberg makes the same of valid updates."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableUpdate, update_table_metadata

from tests.open_catalog.metadata_samples import (
    BY_DAY,
    BY_ID,
    CREATE,
    ID,
    NOW,
    SCHEMA,
    TS,
    UUID_1,
    append,
    change,
    field,
    parsed,
    point,
    schema_of,
    table,
    with_snapshots,
)
from txsaga.iceberg.json_fields import Json
from txsaga.iceberg.refusals import BadUpdate, RequirementFailed
from txsaga.iceberg.table_metadata import ACTIONS, REQUIRED_IDS, new_table, require, updated

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**63, -(2**31), 0, 1, -1, 2])
    | st.floats()
    | st.text()
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)
TEMPLATES: Sequence[Json] = [
    *CREATE,
    *append(3),
    point("t", 1, "tag", **{"max-ref-age-ms": 5}),
    {"action": "remove-snapshots", "snapshot-ids": [1]},
    {"action": "remove-snapshot-ref", "ref-name": "main"},
    {"action": "remove-properties", "removals": ["a"]},
    {
        "action": "set-statistics",
        "statistics": {
            **{"snapshot-id": 1, "statistics-path": "s", "file-size-in-bytes": 1, "file-footer-size-in-bytes": 1},
            "blob-metadata": [{"type": "a", "snapshot-id": 1, "sequence-number": 1, "fields": [1]}],
        },
    },
    {"action": "remove-statistics", "snapshot-id": 1},
    {
        "action": "set-partition-statistics",
        "partition-statistics": {"snapshot-id": 1, "statistics-path": "s", "file-size-in-bytes": 1},
    },
    {"action": "remove-partition-statistics", "snapshot-id": 1},
    {"action": "remove-partition-specs", "spec-ids": [1]},
    {"action": "remove-schemas", "schema-ids": [1]},
    {"action": "add-encryption-key", "encryption-key": {"key-id": "k", "encrypted-key-metadata": "x"}},
    {"action": "remove-encryption-key", "key-id": "k"},
]
REQUIREMENTS: Sequence[Json] = [
    {"type": "assert-create"},
    {"type": "assert-table-uuid", "uuid": UUID_1},
    {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 1},
    *({"type": kind, key: 0} for kind, (key, *_) in REQUIRED_IDS.items()),
]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the way to everything in a JSON value."""
    found = [path]
    for key, each in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        found += places(each, (*path, key))
    return found


@st.composite
def spoilt(draw: st.DrawFn, whole: Any) -> Any:
    """Give a JSON value with one thing in it replaced or removed."""
    value = deepcopy(whole)
    path = draw(st.sampled_from(places(value)))
    if not path:
        return draw(JSON)
    owner = value
    for key in path[:-1]:
        owner = owner[key]
    if draw(st.booleans()):
        owner[path[-1]] = draw(JSON)
    else:
        del owner[path[-1]]
    return value


def assert_answers(call: Any) -> None:
    """Call: it succeeds, or refuses in one line."""
    try:
        call()
    except (BadUpdate, RequirementFailed) as wrong:
        assert str(wrong)
        assert len(str(wrong).splitlines()) == 1


class TestAnyJson:
    def test_every_action_has_a_template(self) -> None:
        assert {each["action"] for each in TEMPLATES} == set(ACTIONS)

    @settings(max_examples=200, deadline=None)
    @given(st.data(), st.sampled_from([1, 2, 3]), st.sampled_from(TEMPLATES))
    def test_of_an_update(self, data: st.DataObject, version: int, template: Json) -> None:
        update = data.draw(spoilt(template))
        base = data.draw(st.sampled_from([{}, with_snapshots(2, version)]))
        before = deepcopy(update)

        def call() -> None:
            updated(base, [update, *CREATE] if not base else [update], moment=NOW)

        assert_answers(call)
        assert repr(update) == repr(before)

    @settings(max_examples=150, deadline=None)
    @given(st.data(), st.sampled_from(REQUIREMENTS), st.booleans())
    def test_of_a_requirement(self, data: st.DataObject, template: Json, exists: bool) -> None:
        requirement = data.draw(spoilt(template))
        assert_answers(lambda: require(table() if exists else None, [requirement]))

    @settings(max_examples=150, deadline=None)
    @given(
        spoilt(
            {"schema": SCHEMA, "partition-spec": BY_DAY, "write-order": BY_ID, "properties": {"format-version": "3"}}
        )
    )
    def test_of_a_request(self, request: Any) -> None:
        assert_answers(lambda: new_table(request, "s3://t", uuid=UUID_1, moment=NOW))

    @settings(max_examples=200, deadline=None)
    @given(st.data(), st.sampled_from([1, 2, 3]), st.sampled_from(TEMPLATES))
    def test_of_stored_metadata(self, data: st.DataObject, version: int, template: Json) -> None:
        raw = data.draw(spoilt(with_snapshots(2, version)))
        assert_answers(lambda: updated(raw, [template], moment=NOW))

    @example([])
    @example(None)
    @settings(max_examples=100, deadline=None)
    @given(JSON)
    def test_of_lists(self, value: Any) -> None:
        assert_answers(lambda: updated(table(), value, moment=NOW))
        assert_answers(lambda: require(table(), value))

    def test_types_are_not_nested_without_end(self) -> None:
        kind: Any = "long"
        for number in range(400):
            kind = {"type": "list", "element-id": 1000 - number, "element-required": False, "element": kind}
        with pytest.raises(BadUpdate, match="too deeply"):
            table(schema=schema_of(field(1, "deep", kind)))


@st.composite
def commits(draw: st.DrawFn) -> tuple[int, list[list[Json]]]:
    """Give commits that are valid one after the other, of which PyIceberg and Java think the same."""
    version = draw(st.sampled_from([1, 2, 3]))
    last_snapshot, last_column, schemas, found = 0, 4, 0, list[list[Json]]()
    for _ in range(draw(st.integers(1, 5))):
        updates: list[Json] = []
        for kind in draw(
            st.lists(st.sampled_from(["append", "tag", "column", "property", "location"]), max_size=4, unique=True)
        ):
            match kind:
                case "append":
                    last_snapshot += 1
                    updates += append(last_snapshot, version)
                case "tag" if last_snapshot:
                    number = draw(st.integers(1, last_snapshot))
                    updates.append(
                        point(draw(st.sampled_from("abc")), number, draw(st.sampled_from(["tag", "branch"])))
                    )
                case "column":
                    last_column, schemas = last_column + 1, schemas + 1
                    wider = schema_of(ID, TS, field(last_column, f"c{last_column}", "string"), **{"schema-id": schemas})
                    updates.append({"action": "add-schema", "schema": wider})
                    updates.append({"action": "set-current-schema", "schema-id": -1})
                case "property":
                    updates.append({"action": "set-properties", "updates": {"a": draw(st.sampled_from("xyz"))}})
                case "location":
                    updates.append({"action": "set-location", "location": f"s3://b/{len(found)}"})
        found.append(updates)
    return version, found


class TestOracle:
    @settings(max_examples=80, deadline=None)
    @given(commits())
    def test_pyiceberg_makes_the_same_of_it(self, made: tuple[int, list[list[Json]]]) -> None:
        version, asked = made
        raw = table(version)
        for number, updates in enumerate(asked):
            theirs = update_table_metadata(
                parsed(raw),
                tuple(TypeAdapter(list[TableUpdate]).validate_python(deepcopy(updates))),
            )
            raw = change(raw, *updates, moment=NOW + 1000 + number)
            appended = any(each["action"] == "add-snapshot" for each in updates)
            assert compared(parsed(raw), appended) == compared(theirs, appended)


def compared(metadata: TableMetadata, appended: bool) -> Json:
    """Return what must agree: without what PyIceberg takes from its clock, or leaves as it was in version 1."""
    found = metadata.model_dump()
    for key in ("schema", "partition-spec", *(() if appended else ("last-updated-ms",))):
        found.pop(key, None)
    return found
