"""
Judge rows by a suite in the gate process: the only module that uses Great Expectations.

The first pass only checks whether each expectation holds, which is cheapest; a second gets details of those that fail.
A missing column is reported in one line, not as one exception per expectation. Any error here counts as a no.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import great_expectations as gx
import pyarrow as pa
import pyarrow.parquet as pq
from great_expectations.expectations.registry import get_expectation_impl

from txsaga.errors import FormatRefused

MOST = 20_000_000
"""The largest number of rows that is read into memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Rows in the form that the suite's engine takes."""

    frame: Any
    engine: str
    count: Callable[[], int]


@contextmanager
def frame(question: Mapping[str, Any]) -> Iterator[Read]:
    """Open the rows of a question."""
    engine = question["engine"]
    if engine == "spark" or (engine == "auto" and (question["count"] or 0) > MOST):
        persisted = _by_spark(question).persist()
        try:
            yield Read(frame=persisted, engine="spark", count=persisted.count)
        finally:
            persisted.unpersist()
        return
    table = _table(question)
    rows = table.num_rows
    yield Read(frame=table.to_pandas(split_blocks=True, self_destruct=True), engine="pandas", count=lambda: rows)


def _columns(question: Mapping[str, Any]) -> list[str]:
    """Return the columns to read: at least one, since without columns no rows are read."""
    known: list[str] = question["columns"]
    if needs_all_columns(question["expectations"]):
        return known
    return [*dict.fromkeys(column for each in question["expectations"] for column in columns_of(each))] or known[:1]


def columns_of(expectation: Mapping[str, Any]) -> Iterator[str]:
    """Yield the columns that an expectation names."""
    kwargs = expectation.get("kwargs") or {}
    for key in ("column", "column_A", "column_B"):
        if isinstance(kwargs.get(key), str):
            yield kwargs[key]
    if not str(expectation["type"]).startswith("expect_table_"):
        yield from kwargs.get("column_list") or ()


def needs_all_columns(expectations: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether any expectation may read columns that it does not name."""
    return any(
        (each.get("kwargs") or {}).get("row_condition") is not None
        or not (next(columns_of(each), None) or each["type"].startswith("expect_table_row_count"))
        for each in expectations
    )


def _table(question: Mapping[str, Any], *files: Any) -> pa.Table:
    """Read rows of a file, or of a table's files as Iceberg does: columns by their ids, or else by mapped names."""
    if "table" not in question:
        return pq.read_table(question["rows"], columns=_columns(question))
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    table, schema = question["table"], question["table"].schema().select(*_columns(question))
    return ArrowScan(table, question["io"], schema, AlwaysTrue()).to_table(files or question["files"])


def _by_spark(question: Mapping[str, Any]) -> Any:
    """Read like `_table`, by Spark: copies of files without ids, and of all if it can't find each column by its id."""
    from txsaga.spark import session
    from txsaga.spark.tables import BY_ID, with_ids

    reader = session(app="txsaga gate", conf={BY_ID: "true"}).read.option("recursiveFileLookup", "true")
    if "table" not in question:
        return reader.parquet(question["rows"])
    schema, mapped = question["table"].schema().select(*_columns(question)), question["table"].name_mapping()
    try:
        reader, copied = reader.schema(with_ids(question["about"], schema)), False
    except FormatRefused:
        copied = True
    paths = [file.file.file_path for file in question["files"]]
    for at, path in enumerate(paths):
        if copied or (mapped and not _has_ids(question["io"].new_input(path))):
            paths[at] = f"{question['folder']}/{at}.parquet"
            pq.write_table(_table(question, question["files"][at]).cast(schema.as_arrow()), paths[at])
    return reader.parquet(*paths)


def _has_ids(file: Any) -> bool:
    with file.open() as stream:
        return any(b"PARQUET:field_id" in (each.metadata or {}) for each in pq.read_schema(stream))


BOOLEAN, DETAILS = "BOOLEAN_ONLY", "SUMMARY"
CRITICAL = "critical"
SHORT = 300
"""The number of characters of an error message that is kept."""
EXAMPLES = 3
DROPPED = ("partial_unexpected_index_list", "partial_unexpected_counts")


def answer(question: Mapping[str, Any]) -> dict[str, Any]:
    """Answer a question; an error is returned as a no."""
    begun = time.monotonic()
    try:
        found = _judged(question)
    except Exception as error:  # noqa: BLE001  # any error is a no
        said = f"{type(error).__name__}: {_short(error)}"
        found = {"error": said, "why": said, "rows": question.get("count")}
    return {**found, "seconds": round(time.monotonic() - begun, 3), "great_expectations": gx.__version__}


def _judged(question: Mapping[str, Any]) -> dict[str, Any]:
    expectations: Sequence[Mapping[str, Any]] = question["expectations"]
    for each in expectations:
        for column in columns_of(each):
            if column not in question["columns"]:
                raise LookupError(f"the rows have no column {column!r}, only {', '.join(question['columns'])}")
    for each in expectations:
        get_expectation_impl(each["type"])  # raises for an unknown type; a suite would drop it silently
    begun = time.monotonic()
    with frame(question) as read:
        took = round(time.monotonic() - begun, 3)
        batch = _batch(read)
        results = _results(batch, expectations)
        rows = read.count()
    if len(results) != len(expectations):
        raise LookupError(f"{len(expectations)} expectations gave {len(results)} results")
    failed = [each for each in results if not each["success"] and each["severity"] == CRITICAL]
    why = "; ".join(each["why"] for each in failed)
    told = {"rows": rows, "engine": read.engine, "read": took, "results": results}
    return {**told, "why": why} if why else told


def _batch(read: Read) -> Any:
    context: Any = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    sources = context.data_sources
    source: Any = sources.add_spark("staged") if read.engine == "spark" else sources.add_pandas("staged")
    whole = source.add_dataframe_asset("rows").add_batch_definition_whole_dataframe("all")
    return whole.get_batch(batch_parameters={"dataframe": read.frame})


def _results(batch: Any, expectations: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one result per expectation, with details for those that fail."""
    quick = _validated(batch, expectations, BOOLEAN)
    found = [_result(each) for each in quick]
    if wrong := [at for at, each in enumerate(quick) if not each.success]:
        again = [{key: found[at][key] for key in ("type", "kwargs", "severity")} for at in wrong]
        details = {_key(each): _result(each) for each in _validated(batch, again, DETAILS)}
        for at in wrong:
            found[at] = details.get(_key(quick[at]), found[at])
    return found


def _validated(batch: Any, expectations: Sequence[Mapping[str, Any]], detail: str) -> list[Any]:
    suite = gx.ExpectationSuite(name="staged", expectations=[dict(each) for each in expectations])
    return list(batch.validate(suite, result_format=detail).results)


def _key(result: Any) -> str:
    config = result.expectation_config
    return json.dumps([config.type, config.kwargs], sort_keys=True, default=str)


def _result(result: Any) -> dict[str, Any]:
    said = result.to_json_dict()
    config, details = said["expectation_config"], said.get("result") or {}
    kwargs = {key: value for key, value in config["kwargs"].items() if key != "batch_id"}
    found = {
        "type": config["type"],
        "kwargs": kwargs,
        "success": bool(said["success"]),
        "severity": config.get("severity") or CRITICAL,
        "result": {key: value for key, value in details.items() if key not in DROPPED},
    }
    if not said["success"]:
        found["why"] = _why(found, said.get("exception_info") or {})
    return found


def _why(found: Mapping[str, Any], raised: Mapping[str, Any]) -> str:
    about = ", ".join(columns_of(found)) or "the rows"
    details = found["result"]
    text = f"{found['type']} of {about}"
    if "unexpected_count" in details:
        like = ", ".join(map(repr, (details.get("partial_unexpected_list") or [])[:EXAMPLES]))
        return f"{text}: {details['unexpected_count']:,} of {details['element_count']:,} rows" + (
            f", like {like}" if like else ""
        )
    if "observed_value" in details:
        return f"{text}: found {details['observed_value']}"
    message = _raised(raised)
    return f"{text}: {message}" if message else f"{text} does not hold"


def _raised(info: Mapping[str, Any]) -> str:
    """Return the message of what an expectation, or one of its metrics, raised."""
    if "raised_exception" in info:
        return _short(info.get("exception_message") or "") if info["raised_exception"] else ""
    return next((_short(each.get("exception_message") or "") for each in info.values() if isinstance(each, dict)), "")


def _short(error: object) -> str:
    return " ".join(str(error).split())[:SHORT] or "no reason given"
