"""W4g: a gate of five expectations on a million staged rows, against one hand-written pass over the same files.

Both read the same staged Parquet files, and both answer the same five questions. `one-pass` is what somebody would
write by hand with Arrow; `import_s` is what a new gate's process takes to load Great Expectations, which happens while
the rows are staged. `read_s` is the part of the gate that reads, `judge_s` all that its process does.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

import txsaga
from tests.bench.home import Home
from tests.bench.report import Row, alternate
from txsaga.gate import expect, process, stop
from txsaga.lake.gates import Subject
from txsaga.lake.storage import local
from txsaga.wiring.connecting import open_store

ROWS = int(os.environ.get("TXSAGA_BENCH_ROWS", "1000000"))
COLUMNS = {"id": "long", "account": "long", "cents": "long", "note": "string", "more": "string"}
STATES = ["PAID", "OPEN", "LATE"]
FIVE = [
    {"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 1}},
    {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "id"}},
    {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "account"}},
    {"type": "expect_column_values_to_be_between", "kwargs": {"column": "cents", "min_value": 0, "max_value": 20_000}},
    {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "note", "value_set": STATES}},
]


def run(home: Home, seconds: float, rounds: int) -> tuple[list[Row], list[str]]:
    url = home.namespace()
    open_store(url).close()
    with tempfile.TemporaryDirectory() as folder:
        options = {"roles": False, "answering": False, "auto_create": True, "env": {}}
        with txsaga.connect(url, warehouse=Path(folder), **options) as broker:  # type: ignore[arg-type]
            with broker.producer("bank", checker=lambda question: None).transaction() as tx:
                written = tx.table("bank.ledger").create(COLUMNS).append(_rows())
            assert written is not None
            return [_measured(broker.kernel.tables.lake.subject(written), rounds)], []


def _measured(subject: Subject, rounds: int) -> Row:
    gate, judged = expect(FIVE), list[float]()

    def ours() -> dict[str, float]:
        begun = time.perf_counter()
        (cast,) = gate.judge(subject)
        assert cast.yes, cast.evidence
        wall, evidence = time.perf_counter() - begun, cast.evidence
        judged.append(wall)
        return {"txsaga": wall, "judge_s": float(str(evidence["seconds"])), "read_s": float(str(evidence["read"]))}

    def one_pass() -> float:
        begun = time.perf_counter()
        _by_hand([str(local(each.file_path)) for each in subject.files])
        return time.perf_counter() - begun

    process.warm()
    ours()
    one_pass()
    row = alternate("5 expectations", rounds, ours, {"one-pass": one_pass})
    row.extra["import_s"] = [judged[0] - min(judged)]
    stop()
    return row


def _by_hand(files: list[str]) -> None:
    """Answer the five questions in one pass."""
    rows = ds.dataset(files, format="parquet").to_table(columns=["id", "account", "cents", "note"])
    assert rows.num_rows >= 1
    assert pc.count_distinct(rows["id"]).as_py() == rows.num_rows
    assert rows["account"].null_count == 0
    edges = pc.min_max(rows["cents"]).as_py()
    assert edges["min"] >= 0 and edges["max"] <= 20_000
    assert pc.all(pc.is_in(rows["note"], value_set=pa.array(STATES))).as_py()


def _rows() -> pa.Table:
    ids = pa.array(range(ROWS), pa.int64())
    note = pa.array([STATES[id % 3] for id in range(ROWS)])
    cents = pa.array([id * 7 % 10_007 for id in range(ROWS)], pa.int64())
    more = pa.array([f"note {id % 97}" for id in range(ROWS)])
    return pa.table({"id": ids, "account": pc.subtract(ids, 1), "cents": cents, "note": note, "more": more})
