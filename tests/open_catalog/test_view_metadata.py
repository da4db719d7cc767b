"""The metadata of views: what Iceberg's own tests expect of it, and that no JSON ends in anything but a refusal."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.view.metadata import ViewMetadata

from txsaga.iceberg.refusals import BadUpdate, RequirementFailed
from txsaga.iceberg.view_metadata import new_view, require, updated

Json = dict[str, Any]

UUID = "fa6506c3-7681-40c8-86dc-e36561f83385"
X = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "x", "type": "long", "required": True}]}
Y = {"type": "struct", "schema-id": 7, "fields": [{"id": 1, "name": "y", "type": "int", "required": False}]}
ALLOWED = {"replace.drop-dialect.allowed": "true"}


def sql(text: str = "select 1", dialect: str = "spark") -> Json:
    return {"type": "sql", "sql": text, "dialect": dialect}


def version(number: int = 1, *queries: Json, schema: int = 0, at: int = 1_000, **more: Any) -> Json:
    return {
        "version-id": number,
        "schema-id": schema,
        "timestamp-ms": at,
        "summary": {"engine-name": "spark"},
        "default-namespace": ["ns"],
        "representations": list(queries) or [sql()],
        **more,
    }


def view(*queries: Json, properties: Json | None = None, **more: Any) -> Json:
    request = {"name": "v", "schema": X, "view-version": version(1, *queries), "properties": properties or {}, **more}
    return parsed(new_view(request, "s3://house/ns/v", uuid=UUID, moment=500))


def changed(raw: Json, *updates: Json, at: int = 9_000) -> Json:
    return parsed(updated(raw, updates, moment=at))


def parsed(raw: Json) -> Json:
    """Return it once it is known to be JSON that PyIceberg reads."""
    ViewMetadata.model_validate_json(json.dumps(raw), strict=True)
    return raw


def add_schema(schema: Json) -> Json:
    return {"action": "add-schema", "schema": schema}


def add(added: Json) -> Json:
    return {"action": "add-view-version", "view-version": added}


def current(number: int = -1) -> Json:
    return {"action": "set-current-view-version", "view-version-id": number}


def properties(**values: str) -> Json:
    return {"action": "set-properties", "updates": values}


def limit(number: object) -> Json:
    return {"action": "set-properties", "updates": {"version.history.num-entries": str(number)}}


def ids(raw: Json) -> Sequence[int]:
    return [each["version-id"] for each in raw["versions"]]


def log(raw: Json) -> Sequence[tuple[int, int]]:
    return [(each["version-id"], each["timestamp-ms"]) for each in raw["version-log"]]


def test_the_first_metadata_has_version_1_and_schema_0() -> None:
    request = {
        "name": "v",
        "schema": {**Y, "doc": "kept"},
        "view-version": version(23, schema=-1) | {"default-catalog": "prod", "later": [1]},
    }
    assert parsed(new_view(request, "s3://house/ns/v", uuid=UUID, moment=500)) == {
        "view-uuid": UUID,
        "format-version": 1,
        "location": "s3://house/ns/v",
        "schemas": [{**Y, "schema-id": 0, "doc": "kept"}],
        "current-version-id": 1,
        "versions": [version(1, at=500) | {"default-catalog": "prod", "later": [1]}],
        "version-log": [{"timestamp-ms": 500, "version-id": 1}],
        "properties": {},
    }


def test_a_request_names_location_and_properties() -> None:
    made = view(properties={"prop1": "val1"}, location="s3://elsewhere")
    assert (made["location"], made["properties"]) == ("s3://elsewhere", {"prop1": "val1"})
    assert view(location=None)["location"] == "s3://house/ns/v"
    assert view(properties=None)["properties"] == {}


@pytest.mark.parametrize(
    ("request_part", "message"),
    [
        ({"name": None}, "Cannot parse to a string value: name: null"),
        ({"schema": None}, "Cannot parse missing field: schema"),
        ({"schema": {**X, "type": "list"}}, 'Cannot create schema, not a struct type: "list"'),
        ({"view-version": None}, "Cannot parse missing field: view-version"),
        ({"view-version": version() | {"representations": []}}, "Cannot create view without specifying a query"),
        (
            {"view-version": version(1, {"type": "plan"})},
            "Found unsupported view representations: [plan]",
        ),
        (
            {"view-version": version(1, sql(dialect="trino"), sql(dialect="TRINO"))},
            "Invalid view version: Cannot add multiple queries for dialect trino",
        ),
        ({"properties": {"a": 1}}, "Cannot parse to a string value: a: 1"),
        (
            {"properties": {"version.history.num-entries": "0"}},
            "version.history.num-entries must be positive but was 0",
        ),
        (
            {"properties": {"version.history.num-entries": "ten"}},
            'version.history.num-entries must be an integer but was "ten"',
        ),
    ],
)
def test_a_view_that_cannot_be_created_is_refused(request_part: Json, message: str) -> None:
    request = {"name": "v", "schema": X, "view-version": version(), **request_part}
    with pytest.raises(BadUpdate) as refused:
        new_view(request, "s3://house/ns/v", uuid=UUID, moment=500)
    assert str(refused.value) == message


def test_a_replace_adds_schema_and_version_and_logs_it() -> None:
    first = view(sql(dialect="trino"), sql(dialect="spark"), properties=ALLOWED)
    replaced = changed(
        first, add_schema(Y), add(version(2, sql(dialect="trino"), schema=-1, at=2_000)), current(), at=9_000
    )
    assert replaced == {
        **first,
        "schemas": [X, {**Y, "schema-id": 1}],
        "current-version-id": 2,
        "versions": [*first["versions"], version(2, sql(dialect="trino"), schema=1, at=2_000)],
        "version-log": [{"timestamp-ms": 500, "version-id": 1}, {"timestamp-ms": 2_000, "version-id": 2}],
    }


def test_the_version_of_a_slower_replace_gets_the_next_id() -> None:
    first = view(sql(dialect="trino"), properties=ALLOWED)
    spark = version(2, sql("select count(some_id)"), schema=-1)
    trino = version(2, sql("select count(id)", "trino"))
    both = changed(changed(first, add_schema(Y), add(spark), current()), add(trino), current())
    assert (ids(both), both["current-version-id"]) == ([1, 2, 3], 3)
    assert [each["schema-id"] for each in both["versions"]] == [0, 1, 0]


def test_versions_with_one_id_get_an_id_each_and_equal_ones_are_one() -> None:
    queries = ["select a", "select b", "select a", "select b"]
    added = changed(view(), *(add(version(1, sql(each), at=at)) for at, each in enumerate(queries)), current())
    assert (ids(added), added["current-version-id"]) == ([1, 2, 3], 3)
    other = changed(added, add(version(1, sql("select a"), summary={"user": "me"})))
    assert ids(other) == [1, 2, 3, 4]


def test_a_version_that_differs_in_what_nobody_knows_is_another() -> None:
    assert ids(changed(view(), add(version(2, later=True)))) == [1, 2]
    assert ids(changed(view(), add(version(2) | {"default-catalog": None}))) == [1]


def test_schemas_get_their_ids_in_turn_and_equal_ones_are_one() -> None:
    z = {**Y, "fields": [{"id": 1, "name": "z", "type": "long", "required": True, "doc": "a z"}]}
    added = changed(
        view(), *(add_schema({**each, "schema-id": 9}) for each in (Y, z, Y, X)), add(version(2, schema=-1))
    )
    assert added["schemas"] == [X, {**Y, "schema-id": 1}, {**z, "schema-id": 2}]
    assert ids(added) == [1], "the schema that was named last is that of the version that exists"


def test_schemas_differ_by_more_than_their_names() -> None:
    field = X["fields"][0]  # type: ignore[index]
    others = [{**X, "fields": [{**field, **more}]} for more in ({"doc": "d"}, {"required": False}, {"id": 2})]
    more = [{**X, "identifier-field-ids": [1]}, {**X, "fields": []}]
    added = changed(view(), *map(add_schema, [*others, *more, *others, *more]))
    assert [each["schema-id"] for each in added["schemas"]] == [0, 1, 2, 3, 4, 5]


def test_an_old_version_that_is_made_current_is_logged_with_the_time_of_that() -> None:
    two = changed(view(), add(version(2, sql("select 2"), at=2_000)))
    assert log(two) == [(1, 500)]
    back = changed(changed(two, current(2), at=7_000), current(1), at=8_000)
    assert log(back) == [(1, 500), (2, 7_000), (1, 8_000)]
    assert log(changed(back, current(2), current(1), current(2), at=9_000)) == [*log(back), (2, 9_000)]


def test_only_the_last_versions_are_kept_and_the_current_one() -> None:
    added = [add(version(9, sql(f"select {each}"))) for each in "bc"]
    three = changed(view(), limit(2), *added)
    assert (ids(three), log(three)) == ([1, 9, 10], [(1, 500)]), "what one change adds is kept, and what is current"
    assert ids(changed(three, properties(any="thing"))) == [1, 10]
    two = changed(three, current(10))
    assert (ids(two), [entry for entry, _ in log(two)]) == ([9, 10], [10])
    with pytest.raises(BadUpdate) as refused:
        updated(two, [current(1)], moment=9_000)
    assert str(refused.value) == "Cannot set current version to unknown version: 1"


def test_what_changes_nothing_removes_no_version_either() -> None:
    three = changed(view(), limit(1), add(version(2, sql("select 2"))), add(version(3, sql("select 3"))))
    assert changed(three, limit(1)) == three


def test_the_type_of_a_representation_is_written_in_small_letters() -> None:
    made = changed(view(), add(version(2, sql("select 2") | {"type": "SQL"})))
    assert made["versions"][1]["representations"] == [sql("select 2")]


def test_ten_versions_are_kept_unless_said_otherwise() -> None:
    raw = view()
    for number in range(2, 15):
        raw = changed(raw, add(version(number, sql(f"select {number}"))), current())
    assert ids(raw) == [entry for entry, _ in log(raw)] == list(range(5, 15))


def test_the_log_forgets_what_was_before_a_version_that_is_gone() -> None:
    raw = changed(view(), add(version(2, sql("select 2"))), add(version(3, sql("select 3"))))
    for number in (3, 2, 1, 2, 3):
        raw = changed(raw, current(number), at=9_000 + number)
    assert [entry for entry, _ in log(changed(raw, limit(2)))] == [2, 3]


def test_a_dialect_is_lost_only_if_that_is_allowed() -> None:
    both = view(sql(), sql(dialect="Trino"))
    spark = [add(version(2, sql("select 2"))), current()]
    with pytest.raises(BadUpdate) as refused:
        updated(both, spark, moment=9_000)
    assert str(refused.value) == (
        "Cannot replace view due to loss of view dialects (replace.drop-dialect.allowed=false):\n"
        "Previous dialects: [spark, trino]\nNew dialects: [spark]"
    )
    allowed = {"action": "set-properties", "updates": {"replace.drop-dialect.allowed": "TRUE"}}
    assert changed(both, *spark, allowed)["current-version-id"] == 2
    assert changed(both, *spark, current(1))["current-version-id"] == 1, "what was current in between does not count"
    assert changed(view(), add(version(2, sql(), sql(dialect="trino"))), current())["current-version-id"] == 2


def test_properties_and_location_leave_versions_and_log_alone() -> None:
    raw = view(properties={"a": "1", "b": "2"})
    removal = {"action": "remove-properties", "removals": ["a", "missing"]}
    location = {"action": "set-location", "location": "s3://moved"}
    assert changed(raw, removal, properties(c="3"), location) == {
        **raw,
        "properties": {"b": "2", "c": "3"},
        "location": "s3://moved",
    }


def test_what_nobody_knows_stays() -> None:
    raw = {**view(), "later": {"a": [None]}}
    raw["versions"] = [{**raw["versions"][0], "later": 1, "representations": [sql(), {"type": "plan", "bytes": "00"}]}]
    raw["version-log"] = [{**raw["version-log"][0], "later": 2}]
    made = updated(raw, [add(version(2, {**sql("select 2"), "later": 3}, later=4)), current()], moment=9_000)
    assert (made["later"], made["versions"][0], made["version-log"][0]["later"]) == (
        raw["later"],
        raw["versions"][0],
        2,
    )
    assert (made["versions"][1]["later"], made["versions"][1]["representations"][0]["later"]) == (4, 3)


@pytest.mark.parametrize(
    "updates",
    [
        [],
        [{"action": "assign-uuid", "uuid": UUID}, {"action": "upgrade-format-version", "format-version": 1}],
        [{"action": "set-location", "location": "s3://house/ns/v"}, current(1)],
        [properties(), {"action": "remove-properties", "removals": ["missing"]}],
        [add_schema({**X, "schema-id": 5}), add(version(7, schema=-1)), current()],
    ],
)
def test_updates_that_change_nothing_give_what_was_there(updates: Sequence[Json]) -> None:
    raw = view()
    del raw["properties"]
    assert updated(raw, updates, moment=9_000) == raw


@pytest.mark.parametrize(
    ("update", "message"),
    [
        (current(23), "Cannot set current version to unknown version: 23"),
        (current(), "Cannot set last version id: no current version id has been set"),
        (add(version(2, schema=23)), "Cannot add version with unknown schema: 23"),
        (add(version(2, schema=-1)), "Cannot set last added schema: no schema has been added"),
        (
            add(version(2, sql(), sql("select 2", "SpArK"))),
            "Invalid view version: Cannot add multiple queries for dialect spark",
        ),
        ({"action": "assign-uuid", "uuid": UUID[::-1]}, "Cannot reassign uuid"),
        ({"action": "upgrade-format-version", "format-version": 0}, "Cannot downgrade v1 view to v0"),
        ({"action": "upgrade-format-version", "format-version": 23}, "Unsupported format version: 23"),
        ({"action": "set-location", "location": None}, "Cannot parse to a string value: location: null"),
        ({"action": "set-location"}, "Cannot parse missing string: location"),
        ({"action": "add-spec"}, "Cannot apply update add-spec to a view"),
        ({"action": ["add-schema"]}, "Cannot parse to a string value: action: an array"),
        ({}, "Cannot parse missing string: action"),
        ([], "Cannot parse metadata update from a non-object: an array"),
        (limit(-3), "version.history.num-entries must be positive but was -3"),
        (add(version(2) | {"version-id": True}), "Cannot parse to an integer value: version-id: true"),
        (add(version(2) | {"default-catalog": 5}), "Cannot parse to a string value: default-catalog: 5"),
        (add(version(2) | {"timestamp-ms": 2**63}), f"Cannot parse to a long value: timestamp-ms: {2**63}"),
    ],
)
def test_an_update_that_is_invalid_is_refused(update: Json, message: str) -> None:
    with pytest.raises(BadUpdate) as refused:
        updated(view(), [update], moment=9_000)
    assert str(refused.value) == message


def test_the_ids_that_exist_end_somewhere() -> None:
    last = changed(view(), add(version(2**31 - 1, sql("select 2"))))
    with pytest.raises(BadUpdate, match=r"^Cannot assign an id beyond 2147483647$"):
        updated(last, [add(version(2, sql("select 3")))], moment=9_000)


def field_of(kind: object, **more: object) -> Json:
    return {**X, "fields": [{"id": 1, "name": "x", "type": kind, "required": True, **more}]}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (field_of("strong"), "Cannot parse type string to primitive"),
        (field_of("decimal(99,2)"), "Decimals with this precision are not supported: decimal(99,2)"),
        (field_of({"type": "set"}), 'Cannot parse type from json: "set"'),
        (
            field_of({"type": "list", "element": "int", "element-required": True}),
            "Cannot parse missing int: element-id",
        ),
        (field_of("int", id="1"), 'Cannot parse to an integer value: id: "1"'),
        (field_of("int", required=None), "Cannot parse to a boolean value: required: null"),
        ({**X, "fields": [*X["fields"], *Y["fields"], *X["fields"]]}, "Invalid schema: multiple fields with id"),  # type: ignore[misc]
        ({**X, "identifier-field-ids": [2]}, "Cannot add fieldId 2 as an identifier field: field does not exist"),
        ({**X, "identifier-field-ids": ["1"]}, "Cannot parse integer from non-int value in identifier-field-ids"),
        ({"type": "struct"}, "Cannot parse missing field: fields"),
    ],
)
def test_a_schema_that_no_reader_takes_is_refused(schema: Json, message: str) -> None:
    with pytest.raises(BadUpdate) as refused:
        updated(view(), [add_schema(schema)], moment=9_000)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_types_that_are_nested_without_end_are_refused() -> None:
    kind: object = "int"
    for number in range(2_000):
        kind = {"type": "list", "element-id": number + 2, "element": kind, "element-required": False}
    with pytest.raises(BadUpdate, match="nested too deeply"):
        updated(view(), [add_schema(field_of(kind))], moment=9_000)


def test_a_uuid_is_required_in_any_case_of_its_letters() -> None:
    require(view(), [])
    require(None, [])
    require(view(), [{"type": "assert-view-uuid", "uuid": UUID.upper()}])
    with pytest.raises(
        RequirementFailed, match=r"^Requirement failed: view UUID does not match: expected fa65.* != else"
    ):
        require(view(), [{"type": "assert-view-uuid", "uuid": "else"}])
    with pytest.raises(RequirementFailed, match=r"^Requirement failed: view UUID does not match: expected no view"):
        require(None, [{"type": "assert-view-uuid", "uuid": UUID}])


@pytest.mark.parametrize(
    "requirement", [{"type": "assert-create"}, {"type": None}, {}, None, {"type": "assert-view-uuid"}]
)
def test_other_requirements_are_refused(requirement: Any) -> None:
    with pytest.raises(BadUpdate):
        require(view(), [requirement])


STRANGE: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["sql", "struct"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.just("type"), inner, max_size=3)
    ),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Sequence[tuple[Any, ...]]:
    """Return the way to every value inside a JSON value, and to itself."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(deeper for key, each in inside for deeper in places(each, (*path, key)))]


@st.composite
def damaged(draw: st.DrawFn, whole: Any) -> Any:
    """Make a JSON value in which a few parts are missing or anything else."""
    found = copy.deepcopy(whole)
    for _ in range(draw(st.integers(1, 3))):
        *way, last = draw(st.sampled_from([path for path in places(found) if path] or [(None,)]))
        if last is None:
            break
        inside = found
        for key in way:
            inside = inside[key]
        if draw(st.booleans()) and isinstance(inside, dict):
            del inside[last]
        else:
            inside[last] = draw(STRANGE)
    return found


LIST = {"type": "list", "element-id": 2, "element": "decimal(9,2)", "element-required": False}
INNER = {"type": "struct", "fields": [{"id": 7, "name": "x", "type": "date", "required": True}]}
MAP = {"type": "map", "key-id": 4, "key": "uuid", "value-id": 5, "value": INNER, "value-required": True}
COLUMNS = [
    {"id": 1, "name": "a", "type": LIST, "required": True, "doc": "d"},
    {"id": 3, "name": "b", "type": MAP, "required": False, "write-default": None},
    {"id": 6, "name": "c", "type": "date", "required": True, "initial-default": "2026-01-01"},
]
DEEP = {"type": "struct", "schema-id": 3, "identifier-field-ids": [6], "fields": COLUMNS}
UPDATES: Sequence[Json] = [
    {"action": "assign-uuid", "uuid": UUID},
    {"action": "upgrade-format-version", "format-version": 1},
    {"action": "set-location", "location": "s3://moved"},
    {"action": "set-properties", "updates": {"version.history.num-entries": "2", **ALLOWED}},
    {"action": "remove-properties", "removals": ["a"]},
    add_schema(DEEP),
    add(version(2, sql("select 2"), schema=-1)),
    current(),
]
REQUEST = {
    "name": "v",
    "location": None,
    "schema": DEEP,
    "view-version": version(1, sql(), sql(dialect="trino")) | {"default-catalog": "prod"},
    "properties": {"version.history.num-entries": "2"},
}


def without_unknown_representations(raw: Json) -> Json:
    """Return a view's metadata without what PyIceberg cannot read: representations that are no SQL."""
    kept = [[each for each in one["representations"] if each["type"] == "sql"] for one in raw["versions"]]
    together = zip(raw["versions"], kept, strict=True)
    return {**raw, "versions": [{**one, "representations": representations} for one, representations in together]}


def tried(change: Any, *given_values: Any) -> None:
    """Change, and see that it leaves what it is given, and gives what PyIceberg reads or refuses in one line."""
    before = repr(given_values)
    try:
        made = change(*given_values)
    except BadUpdate as refused:
        text = str(refused)
        assert text
        assert text.splitlines() == [text] or text.startswith("Cannot replace view due to loss of view dialects")
    else:
        parsed(without_unknown_representations(made))
    assert repr(given_values) == before


@given(STRANGE | damaged(REQUEST))
def test_any_request_makes_a_view_or_is_refused(request: Any) -> None:
    tried(lambda given_request: new_view(given_request, "s3://house", uuid=UUID, moment=500), request)


@given(STRANGE | st.lists(STRANGE) | damaged(UPDATES))
def test_any_updates_make_a_view_or_are_refused(updates: Any) -> None:
    tried(lambda raw, given_updates: updated(raw, given_updates, moment=9_000), view(), updates)


@given(STRANGE | damaged(changed(view(properties={"a": "1"}), *UPDATES)))
def test_any_metadata_is_changed_or_refused(raw: Any) -> None:
    tried(lambda given_raw, updates: updated(given_raw, updates, moment=9_000), raw, UPDATES)


@given(STRANGE, STRANGE | damaged([{"type": "assert-view-uuid", "uuid": UUID}]))
def test_any_requirements_hold_or_are_refused(raw: Any, requirements: Any) -> None:
    for given_raw in (raw, view(), {"view-uuid": raw}):
        try:
            require(given_raw, requirements)
        except (BadUpdate, RequirementFailed) as refused:
            assert len(str(refused).splitlines()) == 1
