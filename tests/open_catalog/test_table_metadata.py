"""Updates and requirements of a commit, on the raw JSON of a table's metadata."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from tests.open_catalog.metadata_samples import (
    BY_DAY,
    BY_ID,
    CREATE,
    ID,
    NOW,
    POINT,
    SCHEMA,
    TS,
    UUID_1,
    UUID_2,
    add,
    append,
    change,
    field,
    parsed,
    point,
    schema_of,
    snapshot,
    table,
    with_snapshots,
)
from txsaga.iceberg.json_fields import Json
from txsaga.iceberg.refusals import BadUpdate, RequirementFailed
from txsaga.iceberg.table_draft import blank
from txsaga.iceberg.table_metadata import REQUIRED_IDS, new_table, require, updated


class TestNewTable:
    @pytest.mark.parametrize("version", [1, 2, 3])
    def test_ids_are_fresh_level_by_level(self, version: int) -> None:
        kind = {"type": "map", "key-id": 30, "key": "string", "value-id": 31, "value-required": False}
        tags = {"type": "list", "element-id": 32, "element-required": True, "element": "string"}
        schema = schema_of(
            field(0, "id", required=True),
            field(9, "m", {**kind, "value": schema_of(field(40, "a"))}),
            field(5, "tags", tags),
            **{"identifier-field-ids": [0], "schema-id": 12},
        )
        spec = {"spec-id": 4, "fields": [{"source-id": 0, "field-id": 17, "name": "b", "transform": "bucket[8]"}]}
        order: Json = {"order-id": 9, "fields": [{**BY_ID["fields"][0], "source-id": 0, "direction": "DESC"}]}
        raw = table(version, schema=schema, **{"partition-spec": spec, "write-order": order})
        (fresh,) = raw["schemas"]
        assert [each["id"] for each in fresh["fields"]] == [1, 2, 3]
        nested = fresh["fields"][1]["type"]
        assert (nested["key-id"], nested["value-id"], nested["value"]["fields"][0]["id"]) == (4, 5, 6)
        assert fresh["fields"][2]["type"]["element-id"] == 7
        assert (fresh["identifier-field-ids"], fresh["schema-id"], raw["last-column-id"]) == ([1], 0, 7)
        assert raw["partition-specs"] == [
            {"spec-id": 0, "fields": [{"source-id": 1, "field-id": 1000, "name": "b", "transform": "bucket[8]"}]}
        ]
        assert raw["sort-orders"] == [
            {"order-id": 1, "fields": [{**order["fields"][0], "source-id": 1, "direction": "desc"}]}
        ]
        assert (raw["default-sort-order-id"], raw["last-partition-id"]) == (1, 1000)
        assert parsed(raw).format_version == version

    def test_it_is_empty_and_has_the_defaults(self) -> None:
        raw = new_table({"name": "t", "schema": SCHEMA}, "s3://bucket/t/", uuid=UUID_1, moment=NOW)
        assert (raw["format-version"], raw["location"], raw["table-uuid"]) == (2, "s3://bucket/t", UUID_1)
        assert (raw["last-updated-ms"], raw["last-sequence-number"], raw["current-snapshot-id"]) == (NOW, 0, -1)
        assert raw["partition-specs"] == [{"spec-id": 0, "fields": []}]
        assert raw["sort-orders"] == [{"order-id": 0, "fields": []}]
        assert (raw["last-partition-id"], raw["default-sort-order-id"]) == (999, 0)
        assert "name-mapping" not in json.dumps(raw)

    def test_properties_that_say_what_metadata_says_are_not_kept(self) -> None:
        raw = table(3, properties={"uuid": UUID_2, "current-schema": "{}", "owner": "me"})
        assert raw["properties"] == {"owner": "me", "write.parquet.compression-codec": "zstd"}
        assert raw["next-row-id"] == 0

    @pytest.mark.parametrize("version", [1, 3])
    def test_unknown_fields_and_defaults_are_kept(self, version: int) -> None:
        defaults = {"initial-default": 7, "write-default": 8} if version == 3 else {"write-default": 8}
        raw = table(version, schema=schema_of(field(1, "a", "int", **defaults, novel=[1]), novel=True))
        assert raw["schemas"][0]["fields"] == [field(1, "a", "int", **defaults, novel=[1])]
        assert raw["schemas"][0]["novel"] is True

    @pytest.mark.parametrize(
        ("more", "why"),
        [
            ({"schema": None}, "missing field: schema"),
            ({"schema": schema_of(ID, field(1, "b"))}, "multiple fields with id 1"),
            ({"schema": schema_of(ID, field(2, "id"))}, "multiple fields for name"),
            ({"schema": schema_of(field(1, "a", "text"))}, "Cannot parse type string"),
            ({"schema": schema_of(field(1, "a", "decimal(39, 1)"))}, "Decimals"),
            ({"schema": schema_of(field(1, "a", "timestamp_ns"))}, "not supported until v3"),
            ({"schema": schema_of(field(1, "a", **{"initial-default": 1}))}, "not supported until v3"),
            ({"schema": schema_of(field(1, "a", **{"write-default": "x"}))}, "Cannot parse write-default"),
            ({"schema": schema_of(TS, **{"identifier-field-ids": [2]})}, "not a required field"),
            ({"schema": schema_of(TS, **{"identifier-field-ids": [3]})}, "field does not exist"),
            ({"schema": schema_of(POINT, **{"identifier-field-ids": [3]})}, "not a primitive"),
            ({"properties": {"format-version": "4"}}, "Unsupported format version: v4"),
            ({"properties": {"commit.retry.num-retries": "-1"}}, "non negative integer"),
            ({"properties": {"write.metadata.metrics.column.z": "none"}}, "could not find column"),
            ({"partition-spec": {"fields": [{"source-id": 7, "name": "a", "transform": "identity"}]}}, "source column"),
            ({"partition-spec": {"fields": [{"source-id": 3, "name": "a", "transform": "identity"}]}}, "non-primitive"),
            ({"partition-spec": {"fields": [{"source-id": 7, "name": "a", "transform": "void"}]}}, "source column"),
            ({"write-order": {**BY_ID, "fields": [{**BY_ID["fields"][0], "source-id": 7}]}}, "source column"),
        ],
    )
    def test_what_no_engine_could_read_is_refused(self, more: Json, why: str) -> None:
        with pytest.raises(BadUpdate, match=why):
            table(**more)

    def test_a_table_without_location_is_refused(self) -> None:
        with pytest.raises(BadUpdate, match="location"):
            new_table({"schema": SCHEMA}, "", uuid=UUID_1, moment=NOW)


class TestSchemas:
    def test_the_same_schema_is_not_added_twice(self) -> None:
        raw = table()
        same = {"action": "add-schema", "schema": {**raw["schemas"][0], "schema-id": 9}}
        assert change(raw, same, {"action": "set-current-schema", "schema-id": -1}) is raw

    def test_a_new_schema_gets_the_next_id_and_becomes_current(self) -> None:
        wider = schema_of(ID, TS, field(9, "extra", "string", novel=1))
        raw = change(
            table(), {"action": "add-schema", "schema": wider}, {"action": "set-current-schema", "schema-id": -1}
        )
        assert raw["schemas"][1] == {**wider, "schema-id": 1}
        assert (raw["current-schema-id"], raw["last-column-id"]) == (1, 9)

    def test_the_last_column_id_never_falls(self) -> None:
        narrow = {"action": "add-schema", "schema": schema_of(ID), "last-column-id": 1}
        assert change(table(), narrow)["last-column-id"] == 4

    def test_a_snapshot_names_the_schema_that_its_commit_added(self) -> None:
        first = change(table(), {"action": "add-schema", "schema": schema_of(ID, TS)})
        mine = {"action": "add-schema", "schema": schema_of(ID, field(5, "mine"), **{"schema-id": 1})}
        raw = change(first, mine, add(1, **{"schema-id": 1}), point("main", 1))
        assert raw["snapshots"][0]["schema-id"] == raw["schemas"][-1]["schema-id"] == 2

    @pytest.mark.parametrize(
        ("kind", "readable"),
        [("long", True), ("int", False), ("string", False), (schema_of(field(9, "a")), False)],
    )
    def test_a_column_keeps_its_type_or_a_wider_one(self, kind: Any, readable: bool) -> None:
        update = {"action": "add-schema", "schema": schema_of(field(1, "id", kind, required=True))}
        if readable:
            change(with_snapshots(1), update)
            return
        with pytest.raises(BadUpdate, match="another type"):
            change(with_snapshots(1), update)
        change(with_snapshots(1), {"action": "remove-snapshot-ref", "ref-name": "main"}, update)  # replaced as a whole

    def test_an_id_of_a_dropped_column_is_not_given_to_another(self) -> None:
        dropped = change(
            with_snapshots(1),
            {"action": "add-schema", "schema": schema_of(ID)},
            {"action": "set-current-schema", "schema-id": -1},
        )
        with pytest.raises(BadUpdate, match="another type"):
            change(dropped, {"action": "add-schema", "schema": schema_of(ID, field(2, "new", "string"))})
        change(dropped, {"action": "add-schema", "schema": schema_of(ID, TS)})

    @pytest.mark.parametrize(
        ("updates", "why"),
        [
            ([{"action": "set-current-schema", "schema-id": -1}], "no schema has been added"),
            ([{"action": "set-current-schema", "schema-id": 7}], "unknown schema: 7"),
            ([{"action": "remove-schemas", "schema-ids": [0]}], "Cannot remove the current schema"),
            ([{"action": "add-schema", "schema": schema_of(ID, field(1, "b"))}], "multiple fields with id"),
        ],
    )
    def test_refusals(self, updates: Sequence[Json], why: str) -> None:
        with pytest.raises(BadUpdate, match=why):
            change(table(), *updates)

    def test_a_schema_goes_when_no_snapshot_needs_it(self) -> None:
        raw = change(
            with_snapshots(1),
            {"action": "add-schema", "schema": schema_of(ID)},
            {"action": "set-current-schema", "schema-id": -1},
        )
        with pytest.raises(BadUpdate, match="snapshot 1 was written with it"):
            change(raw, {"action": "remove-schemas", "schema-ids": [0]})
        raw = change(
            raw, {"action": "remove-snapshots", "snapshot-ids": [1]}, {"action": "remove-schemas", "schema-ids": [0]}
        )
        assert [each["schema-id"] for each in raw["schemas"]] == [1]


class TestSpecsAndOrders:
    def test_a_spec_is_added_once(self) -> None:
        default = {"action": "set-default-spec", "spec-id": -1}
        raw = change(table(), {"action": "add-spec", "spec": BY_DAY}, default)
        assert (raw["default-spec-id"], raw["last-partition-id"], raw["partition-specs"][1]) == (1, 1000, BY_DAY)
        assert change(raw, {"action": "add-spec", "spec": BY_DAY}, default) is raw

    def test_fields_without_ids_get_those_of_equal_fields_or_the_next(self) -> None:
        raw = change(table(), {"action": "add-spec", "spec": BY_DAY})
        fields = [
            {"source-id": 1, "name": "b", "transform": "bucket[4]"},
            {"source-id": 2, "name": "d", "transform": "day"},
        ]
        raw = change(raw, {"action": "add-spec", "spec": {"fields": fields}})
        assert [each["field-id"] for each in raw["partition-specs"][2]["fields"]] == [1001, 1000]
        assert raw["last-partition-id"] == 1001

    def test_an_order_is_added_once(self) -> None:
        default = {"action": "set-default-sort-order", "sort-order-id": -1}
        raw = change(table(), {"action": "add-sort-order", "sort-order": BY_ID}, default)
        assert (raw["default-sort-order-id"], raw["sort-orders"][1]) == (1, BY_ID)
        assert change(raw, {"action": "add-sort-order", "sort-order": {**BY_ID, "order-id": 8}}, default) is raw
        raw = change(raw, {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}}, default)
        assert (raw["default-sort-order-id"], len(raw["sort-orders"])) == (0, 2)

    def test_a_spec_goes_unless_it_is_the_default(self) -> None:
        raw = change(table(), {"action": "add-spec", "spec": BY_DAY})
        assert len(change(raw, {"action": "remove-partition-specs", "spec-ids": [1]})["partition-specs"]) == 1
        with pytest.raises(BadUpdate, match="default partition spec"):
            change(raw, {"action": "remove-partition-specs", "spec-ids": [0]})

    @pytest.mark.parametrize(
        ("source", "transform", "why"),
        [
            (8, "identity", "Cannot find source column"),
            (3, "identity", "non-primitive"),
            (1, "day", "Invalid source type long"),
            (2, "bucket[0]", "Invalid transform"),
            (2, "truncate[4]", "Invalid source type timestamp"),
        ],
    )
    def test_a_field_needs_a_column_that_it_can_be_derived_from(self, source: int, transform: str, why: str) -> None:
        spec = {"fields": [{"source-id": source, "name": "a", "transform": transform}]}
        order = {"order-id": 1, "fields": [{**BY_ID["fields"][0], "source-id": source, "transform": transform}]}
        for update in ({"action": "add-spec", "spec": spec}, {"action": "add-sort-order", "sort-order": order}):
            with pytest.raises(BadUpdate, match=why):
                change(table(), update)

    @pytest.mark.parametrize(
        ("fields", "why"),
        [
            ([{"source-id": 1, "name": "ts", "transform": "identity"}], "name that exists in schema"),
            ([{"source-id": 1, "name": "", "transform": "identity"}], "empty partition name"),
            (2 * [{"source-id": 1, "name": "a", "transform": "identity"}], "more than once"),
            ([{"source-id": 1, "name": name, "transform": "identity"} for name in "ab"], "redundant"),
            (
                [{"source-id": 2, "name": name, "transform": name, "field-id": 1005} for name in ("year", "hour")],
                "two of its fields have the same id",
            ),
            (
                [{"source-id": 1, "name": "a", "transform": "bucket[3]", "field-id": 1000}],
                "Conflicting partition fields",
            ),
            (
                [{"source-id": 2, "name": "a", "transform": "year", "field-id": 1000}],
                "Conflicting partition fields",
            ),
            (
                [{"source-id": 1, "name": "a", "transform": "void", "field-id": 1000}],
                "Conflicting partition fields",
            ),
        ],
    )
    def test_a_spec_is_free_of_conflicts(self, fields: Sequence[Json], why: str) -> None:
        raw = change(table(), {"action": "add-spec", "spec": BY_DAY})
        with pytest.raises(BadUpdate, match=why):
            change(raw, {"action": "add-spec", "spec": {"fields": list(fields)}})

    def test_the_id_of_a_spec_means_one_thing(self) -> None:
        other = {"spec-id": 0, "fields": [{"source-id": 1, "name": "a", "transform": "identity"}]}
        with pytest.raises(BadUpdate, match="spec 0 already exists"):
            change(table(), {"action": "add-spec", "spec": other})

    def test_version_1_needs_ids_in_order(self) -> None:
        spec: Json = {"fields": [{"source-id": 1, "name": "a", "transform": "identity", "field-id": 1001}]}
        with pytest.raises(BadUpdate, match="sequential"):
            change(table(1), {"action": "add-spec", "spec": spec})
        del spec["fields"][0]["field-id"]
        raw = change(table(1, **{"partition-spec": BY_DAY}), {"action": "add-spec", "spec": spec})
        assert raw["partition-specs"][1]["fields"][0]["field-id"] == 1000

    def test_a_column_in_the_default_spec_or_order_stays(self) -> None:
        raw = table(**{"partition-spec": BY_DAY, "write-order": BY_ID})
        for kept, why in ((ID, "partition field: 1000: ts_day: day"), (TS, "sort field: identity")):
            with pytest.raises(BadUpdate, match=why):
                change(
                    raw,
                    {"action": "add-schema", "schema": schema_of(kept)},
                    {"action": "set-current-schema", "schema-id": -1},
                )

    @pytest.mark.parametrize(
        ("update", "why"),
        [
            ({"action": "set-default-spec", "spec-id": -1}, "no spec has been added"),
            ({"action": "set-default-spec", "spec-id": 5}, "unknown spec: 5"),
            ({"action": "set-default-sort-order", "sort-order-id": -1}, "no sort order has been added"),
            ({"action": "set-default-sort-order", "sort-order-id": 5}, "unknown order: 5"),
            (
                {"action": "add-sort-order", "sort-order": {"fields": [{**BY_ID["fields"][0], "direction": "up"}]}},
                "direction",
            ),
        ],
    )
    def test_refusals(self, update: Json, why: str) -> None:
        with pytest.raises(BadUpdate, match=why):
            change(table(), update)


class TestSnapshots:
    @pytest.mark.parametrize("version", [1, 2, 3])
    def test_an_append(self, version: int) -> None:
        raw = change(table(version), *append(1, version))
        assert raw["snapshots"] == [snapshot(1, version)]
        assert raw["refs"] == {"main": {"snapshot-id": 1, "type": "branch"}}
        assert raw["snapshot-log"] == [{"timestamp-ms": NOW + 1, "snapshot-id": 1}]
        assert raw["metadata-log"] == []  # whoever stores it adds the file before
        assert (raw["current-snapshot-id"], raw["last-updated-ms"]) == (1, NOW + 1)
        assert raw.get("last-sequence-number") == (1 if version > 1 else None)
        assert raw.get("next-row-id") == (10 if version > 2 else None)

    def test_rows_never_get_one_id_twice(self) -> None:
        raw = change(table(3), add(1, 3, **{"first-row-id": 100}))
        assert raw["next-row-id"] == 110

    def test_what_main_was_never_seen_at_is_not_in_its_log(self) -> None:
        raw = change(table(), *append(1), *append(2), *append(3))
        assert raw["snapshot-log"] == [{"timestamp-ms": NOW + 3, "snapshot-id": 3}]
        assert len(raw["snapshots"]) == 3

    def test_a_rollback_is_in_the_log(self) -> None:
        raw = change(with_snapshots(2), point("main", 1))
        assert [each["snapshot-id"] for each in raw["snapshot-log"]] == [1, 2, 1]
        assert raw["snapshot-log"][-1]["timestamp-ms"] == raw["last-updated-ms"] == NOW + 1000

    def test_branches_and_tags(self) -> None:
        ages = {"min-snapshots-to-keep": 2, "max-snapshot-age-ms": 3, "max-ref-age-ms": 4}
        raw = change(with_snapshots(1), point("b", 1, **ages), point("t", 1, "tag", **{"max-ref-age-ms": 5}))
        assert raw["refs"]["b"] == {"snapshot-id": 1, "type": "branch", **ages}
        assert raw["refs"]["t"] == {"snapshot-id": 1, "type": "tag", "max-ref-age-ms": 5}
        assert change(raw, point("b", 1, **ages)) is raw
        assert set(change(raw, {"action": "remove-snapshot-ref", "ref-name": "b"})["refs"]) == {"main", "t"}
        assert change(raw, {"action": "remove-snapshot-ref", "ref-name": "z"}) is raw
        assert change(raw, {"action": "remove-snapshot-ref", "ref-name": "main"})["current-snapshot-id"] == -1

    def test_removed_snapshots_take_what_hangs_on_them(self) -> None:
        files = {"snapshot-id": 2, "statistics-path": "s3://s", "file-size-in-bytes": 9}
        raw = change(
            with_snapshots(3),
            point("t", 2, "tag"),
            {"action": "set-statistics", "statistics": {**files, "file-footer-size-in-bytes": 1, "blob-metadata": []}},
            {"action": "set-partition-statistics", "partition-statistics": files},
        )
        assert len(raw["statistics"]) == len(raw["partition-statistics"]) == 1
        raw = change(raw, {"action": "remove-snapshots", "snapshot-ids": [2, 77]})
        assert [each["snapshot-id"] for each in raw["snapshots"]] == [1, 3]
        assert raw["snapshots"][1]["parent-snapshot-id"] == 2  # an expired parent is legal
        assert [each["snapshot-id"] for each in raw["snapshot-log"]] == [3]  # no gaps
        assert set(raw["refs"]) == {"main"}
        assert raw["statistics"] == raw["partition-statistics"] == []
        assert change(raw, {"action": "remove-snapshots", "snapshot-ids": [77]}) is raw

    @pytest.mark.parametrize(
        ("more", "why"),
        [
            ({"snapshot-id": 1}, "already exists for id: 1"),
            ({"parent-snapshot-id": 2}, "own parent"),
            ({"schema-id": 4}, "unknown schema: 4"),
            ({"manifest-list": None}, "manifest-list"),
            ({"manifest-list": ""}, "manifest-list is empty"),
            ({"timestamp-ms": NOW - 60_001}, "before last snapshot log entry|before the latest"),
            ({"timestamp-ms": -1}, "must not be negative"),
            ({"sequence-number": 0}, "Invalid sequence number of a snapshot: 0"),
            ({"summary": {"operation": "sort"}}, "unknown operation"),
            ({"summary": {"operation": 3}}, "operation"),
        ],
    )
    @pytest.mark.parametrize("version", [2, 3])
    def test_a_snapshot_that_would_corrupt_the_table_is_refused(self, version: int, more: Json, why: str) -> None:
        with pytest.raises(BadUpdate, match=why):
            change(with_snapshots(1, version), add(2, version, **more))

    def test_a_clock_may_differ_by_a_minute(self) -> None:
        assert change(with_snapshots(1), add(2, **{"timestamp-ms": NOW - 50_000}))["last-updated-ms"] == NOW - 50_000

    @pytest.mark.parametrize(
        ("version", "more", "why"),
        [
            (2, {"sequence-number": 2}, "sequence number 2 older than last sequence number 2"),
            (2, {"sequence-number": 1, "parent-snapshot-id": None}, "older than last"),
            (3, {"first-row-id": 19}, "first-row-id is behind table next-row-id: 19 < 20"),
        ],
    )
    def test_a_stale_snapshot_may_be_tried_again(self, version: int, more: Json, why: str) -> None:
        with pytest.raises(RequirementFailed, match=why):
            change(with_snapshots(2, version), add(3, version, **more))

    def test_a_clock_may_not_go_back_step_by_step(self) -> None:
        raw = change(with_snapshots(1), add(2, **{"timestamp-ms": NOW - 50_000}))
        with pytest.raises(BadUpdate, match="before last snapshot log entry at"):
            change(raw, add(3, **{"timestamp-ms": NOW - 100_000}))

    def test_a_replacement_may_share_a_sequence_number_with_what_it_overtook(self) -> None:
        change(with_snapshots(2), add(3, **{"sequence-number": 2, "parent-snapshot-id": None}), point("main", 3))

    def test_version_3_numbers_rows(self) -> None:
        for more in ({"first-row-id": None}, {"added-rows": None}, {"added-rows": -1}, {"added-rows": 2**63 - 1}):
            with pytest.raises(BadUpdate, match=r"first-row-id is null|added-rows"):
                change(with_snapshots(1, 3), add(2, 3, **more))

    def test_version_1_has_no_sequence_and_may_list_manifests(self) -> None:
        with pytest.raises(BadUpdate, match="must be 0 in v1"):
            change(table(1), add(1, 1, **{"sequence-number": 1}))
        listed = {key: value for key, value in snapshot(1, 1).items() if key != "manifest-list"} | {"manifests": ["m"]}
        assert updated(table(1), [{"action": "add-snapshot", "snapshot": listed}], moment=NOW)["snapshots"] == [listed]

    @pytest.mark.parametrize(
        ("update", "why"),
        [
            (point("main", 9), "Cannot set main to unknown snapshot: 9"),
            (point("main", 1, "tag"), "must be a branch"),
            (point("b", 1, "label"), "reference type"),
            (point("b", 1, "tag", **{"min-snapshots-to-keep": 1}), "Tags do not support"),
            (point("b", 1, **{"max-ref-age-ms": 0}), "greater than 0"),
        ],
    )
    def test_a_wrong_ref_is_refused(self, update: Json, why: str) -> None:
        with pytest.raises(BadUpdate, match=why):
            change(with_snapshots(1), update)


class TestTheRest:
    def test_uuid(self) -> None:
        raw = table()
        assert change(raw, {"action": "assign-uuid", "uuid": UUID_1.upper()}) is raw
        with pytest.raises(BadUpdate, match="Cannot change the uuid"):
            change(raw, {"action": "assign-uuid", "uuid": UUID_2})

    def test_an_upgrade(self) -> None:
        raw = change(table(1), {"action": "upgrade-format-version", "format-version": 2})
        assert (raw["format-version"], raw["last-sequence-number"]) == (2, 0)
        assert not {"schema", "partition-spec", "next-row-id"} & set(raw)
        raw = change(raw, {"action": "upgrade-format-version", "format-version": 3})
        assert raw["next-row-id"] == 0
        assert change(raw, {"action": "upgrade-format-version", "format-version": 3}) is raw
        for version, why in ((2, "Cannot downgrade v3 table to v2"), (4, "unsupported format version: v4")):
            with pytest.raises(BadUpdate, match=why):
                change(raw, {"action": "upgrade-format-version", "format-version": version})

    def test_version_1_repeats_its_schema_and_spec(self) -> None:
        raw = change(
            table(1),
            {"action": "add-schema", "schema": schema_of(ID, TS)},
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "add-spec", "spec": BY_DAY},
            {"action": "set-default-spec", "spec-id": -1},
        )
        assert (raw["schema"], raw["partition-spec"]) == (raw["schemas"][1], BY_DAY["fields"])

    def test_old_files_of_version_1_are_completed(self) -> None:
        old = {
            **{
                "format-version": 1,
                "location": "s3://t",
                "last-updated-ms": NOW,
                "last-column-id": 4,
                "schema": SCHEMA,
            },
            **{"partition-spec": [{"source-id": 2, "name": "d", "transform": "day"}], "properties": {}, "novel": 1},
            **{"current-snapshot-id": 1, "snapshots": [snapshot(1, 1)]},
        }
        raw = change(old, {"action": "set-properties", "updates": {"a": "b"}}, point("b", 1))
        assert raw["schemas"] == [SCHEMA]
        assert raw["partition-specs"][0]["fields"][0]["field-id"] == raw["last-partition-id"] == 1000
        assert set(raw["refs"]) == {"main", "b"}
        assert raw["novel"] == 1
        require(old, [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 1}])

    def test_properties(self) -> None:
        raw = change(table(), {"action": "set-properties", "updates": {"a": "1", "uuid": "x", "format-version": "3"}})
        assert (raw["properties"]["a"], raw["format-version"], "uuid" in raw["properties"]) == ("1", 3, False)
        raw = change(raw, {"action": "remove-properties", "removals": ["a", "z"]})
        assert "a" not in raw["properties"]
        for wrong in ({"a": 1}, {"a": None}, {"format-version": "two"}, {"write.metadata.previous-versions-max": "x"}):
            with pytest.raises(BadUpdate):
                change(raw, {"action": "set-properties", "updates": wrong})

    def test_location(self) -> None:
        raw = table()
        assert change(raw, {"action": "set-location", "location": "s3://b/new/"})["location"] == "s3://b/new"
        assert change(raw, {"action": "set-location", "location": "s3://bucket/t"}) is raw
        with pytest.raises(BadUpdate, match="it is empty"):
            change(raw, {"action": "set-location", "location": "/"})

    def test_statistics(self) -> None:
        blob = {
            "type": "apache-datasketches-theta-v1",
            "snapshot-id": 1,
            "sequence-number": 1,
            "fields": [1],
            "properties": {"ndv": "3"},
        }
        size = {"file-size-in-bytes": 9, "file-footer-size-in-bytes": 2, "blob-metadata": [blob], "novel": 1}
        for path in ("s3://one", "s3://two"):
            entry = {"snapshot-id": 1, "statistics-path": path, **size}
            raw = change(with_snapshots(1), {"action": "set-statistics", "statistics": entry})
            assert raw["statistics"] == [entry]
        assert change(raw, {"action": "remove-statistics", "snapshot-id": 1})["statistics"] == []
        assert change(raw, {"action": "remove-statistics", "snapshot-id": 2}) is raw

    def test_partition_statistics(self) -> None:
        entry = {"snapshot-id": 1, "statistics-path": "s3://p", "file-size-in-bytes": 9}
        raw = change(with_snapshots(1), {"action": "set-partition-statistics", "partition-statistics": entry})
        assert raw["partition-statistics"] == [entry]
        assert change(raw, {"action": "remove-partition-statistics", "snapshot-id": 1})["partition-statistics"] == []

    def test_encryption_keys(self) -> None:
        key = {"key-id": "k", "encrypted-key-metadata": "aGk=", "encrypted-by-id": "m", "properties": {}}
        raw = change(table(3), {"action": "add-encryption-key", "encryption-key": key})
        assert raw["encryption-keys"] == [key]
        assert change(raw, {"action": "add-encryption-key", "encryption-key": key}) is raw
        assert change(raw, {"action": "remove-encryption-key", "key-id": "k"})["encryption-keys"] == []

    def test_nothing_changes_nothing(self) -> None:
        raw = with_snapshots(2)
        assert change(raw) is raw
        assert change(raw, {"action": "set-properties", "updates": {}}, point("main", 2)) is raw

    def test_an_unknown_action_is_refused(self) -> None:
        with pytest.raises(BadUpdate, match="add-view-version"):
            change(table(), {"action": "add-view-version"})

    def test_our_clock_never_goes_back(self) -> None:
        raw = change(with_snapshots(1), {"action": "set-properties", "updates": {"a": "b"}}, moment=5)
        assert raw["last-updated-ms"] == NOW + 1


class TestCreateByCommit:
    @pytest.mark.parametrize("version", [1, 2, 3])
    def test_a_table_and_its_first_rows(self, version: int) -> None:
        upgrade = {"action": "upgrade-format-version", "format-version": version}
        raw = change({}, CREATE[0], upgrade, *CREATE[2:], *append(1, version))
        assert (raw["format-version"], raw["table-uuid"], raw["current-snapshot-id"]) == (version, UUID_1, 1)
        assert (raw["default-spec-id"], raw["default-sort-order-id"], raw["last-partition-id"]) == (0, 1, 1000)
        assert raw["metadata-log"] == []

    def test_it_is_what_a_request_makes(self) -> None:
        asked = table(**{"partition-spec": BY_DAY, "write-order": BY_ID})
        made = change({}, *CREATE, {"action": "set-properties", "updates": asked["properties"]}, moment=NOW)
        assert made | {"properties": asked["properties"]} == asked

    def test_it_gets_an_uuid(self) -> None:
        assert UUID(change({}, *CREATE[1:])["table-uuid"])

    @pytest.mark.parametrize(
        ("without", "why"),
        [
            ("add-schema", "no schema has been added|current schema"),
            ("add-spec", "no spec has been added"),
            ("set-default-sort-order", "unknown order: 0"),
            ("set-location", "location is missing"),
        ],
    )
    def test_what_is_missing_is_named(self, without: str, why: str) -> None:
        with pytest.raises(BadUpdate, match=why):
            change({}, *(each for each in CREATE if each["action"] != without))

    def test_a_snapshot_needs_a_schema(self) -> None:
        with pytest.raises(BadUpdate, match="before a schema is added"):
            change({}, *append(1))


class TestRequirements:
    @pytest.mark.parametrize(
        ("requirement", "why"),
        [
            ({"type": "assert-create"}, "table already exists"),
            ({"type": "assert-table-uuid", "uuid": UUID_2}, f"UUID does not match: expected {UUID_1} != {UUID_2}"),
            (
                {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 1},
                "branch main has changed: expected id 1 != 2",
            ),
            (
                {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None},
                "branch main was created concurrently",
            ),
            ({"type": "assert-ref-snapshot-id", "ref": "t", "snapshot-id": 2}, "tag t has changed: expected id 2 != 1"),
            (
                {"type": "assert-ref-snapshot-id", "ref": "gone", "snapshot-id": 2},
                "branch or tag gone is missing, expected 2",
            ),
            (
                {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 3},
                "last assigned field id changed: expected id 3 != 4",
            ),
            (
                {"type": "assert-current-schema-id", "current-schema-id": 3},
                "current schema changed: expected id 3 != 0",
            ),
            (
                {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 3},
                "last assigned partition id changed: expected id 3 != 999",
            ),
            (
                {"type": "assert-default-spec-id", "default-spec-id": 3},
                "default partition spec changed: expected id 3 != 0",
            ),
            (
                {"type": "assert-default-sort-order-id", "default-sort-order-id": 3},
                "default sort order changed: expected id 3 != 0",
            ),
        ],
    )
    def test_each_fails_in_the_words_that_clients_know(self, requirement: Json, why: str) -> None:
        raw = change(with_snapshots(2), point("t", 1, "tag"))
        with pytest.raises(RequirementFailed) as failed:
            require(raw, [requirement])
        assert str(failed.value) == f"Requirement failed: {why}"

    def test_all_hold(self) -> None:
        ids: list[Json] = [{"type": kind, key: table()[known]} for kind, (key, known, _) in REQUIRED_IDS.items()]
        refs: list[Json] = [
            {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 2},
            {"type": "assert-ref-snapshot-id", "ref": "new", "snapshot-id": None},
            {"type": "assert-ref-snapshot-id", "ref": "new"},
        ]
        require(with_snapshots(2), [{"type": "assert-table-uuid", "uuid": UUID_1.upper()}, *ids, *refs])
        require(None, [{"type": "assert-create"}])

    def test_no_table_is_as_required(self) -> None:
        for wrong in (
            {"type": "assert-table-uuid", "uuid": UUID_1},
            {"type": "assert-default-spec-id", "default-spec-id": 0},
        ):
            with pytest.raises(RequirementFailed):
                require(None, [wrong])

    def test_an_unknown_requirement_is_refused(self) -> None:
        with pytest.raises(BadUpdate, match="assert-view-uuid"):
            require(table(), [{"type": "assert-view-uuid", "uuid": UUID_1}])


def test_three_tables_take_a_part_of_the_budget(capsys: pytest.CaptureFixture[str]) -> None:
    raw, taken = with_snapshots(100), []
    updates = [*append(101), {"action": "set-properties", "updates": {"a": "b"}}]
    needs = [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 100}]
    for _ in range(30):
        start = time.perf_counter()
        require(raw, needs)
        updated(raw, updates, moment=NOW + 1000)
        taken.append(time.perf_counter() - start)
    with capsys.disabled():
        print(f"\nthree updates on 100 snapshots: {1000 * sorted(taken)[15]:.2f} ms")
    assert min(taken) < 0.005


def test_a_blank_table_has_what_its_version_needs() -> None:
    assert [set(blank(version)) - set(blank(1)) for version in (2, 3)] == [
        {"last-sequence-number"},
        {"last-sequence-number", "next-row-id"},
    ]
