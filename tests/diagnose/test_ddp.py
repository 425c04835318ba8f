"""Plain DDP on two ranks of a crowded machine, rank 1 slower: recorded steps of real gloo jobs beside busy loops.

DDP waits for its gradient reduction inside backward. Therefore rank 0 is off its core because of rank 1.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from diagnose.detectors.host_contention import detect_host_contention
from diagnose.detectors.late_launch import detect_late_launch
from diagnose.findings import Kind
from diagnose.model.compute_time import compute_time_of
from diagnose.model.operations import operations_of
from diagnose.model.view import RunView, Series
from diagnose.pipeline import diagnose_view
from telemetry.stages import STAGE_BY_LABEL
from telemetry.topology import Topology
from tests.each_case import each_case

RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("recorded_ddp.json").read_text())
COLUMNS = ("step", "rank", "start_ns", "duration_ns", "cpu_ns")
"""Columns of the file. Times are in microseconds."""


def recorded_view(name: str) -> RunView:
    tables = [_table(int(STAGE_BY_LABEL[label]), columns) for label, columns in RECORDED[name]["stages"].items()]
    steps = np.unique(tables[0]["step"].to_numpy())
    operations = operations_of(pa.concat_tables(tables), steps, num_ranks=2)
    own = compute_time_of(operations, {})
    step_ns = np.array(RECORDED[name]["step_us"]) * 1e3
    return RunView(
        run_id=name,
        attempt=0,
        topology=Topology(dp=2),
        hosts=("vm", "vm"),
        steps=steps,
        step_ns=step_ns,
        work=own.work,
        off_cpu=own.off_cpu,
        overlap=own.overlap,
        operations=operations,
        history=Series(steps=steps, values=step_ns),
    )


def _table(stage: int, columns: list[list[int]]) -> pa.Table:
    times = {name: [one if one < 0 else one * 1000 for one in column] for name, column in _named(columns)[2:]}
    rest = {name: [-1] * len(columns[0]) for name in ("microbatch", "chunk", "peer")}
    return pa.table({"stage": [stage] * len(columns[0]), **dict(_named(columns)[:2]), **times, **rest})


def _named(columns: list[list[int]]) -> list[tuple[str, list[int]]]:
    return list(zip(COLUMNS, columns, strict=True))


@each_case("name", RECORDED)
def test_the_slower_rank_is_the_only_finding(name: str) -> None:
    (finding,) = diagnose_view(recorded_view(name)).findings
    assert (finding.kind, finding.ranks) == (Kind.COMPUTE_STRAGGLER, [1])


@each_case("name", RECORDED)
def test_rank_that_waits_in_backward_is_not_reported_as_host_contention(name: str) -> None:
    assert detect_host_contention(recorded_view(name)) == []


def test_no_late_launch_is_reported_when_longer_compute_explains_the_delay() -> None:
    assert detect_late_launch(recorded_view("more work in the backward")) == []
