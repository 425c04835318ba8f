"""Traces exported from a store and read back: every span once, exact to the nanosecond, with its arrows."""

import math
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest

from diagnose.findings import StepWindow
from diagnose.trace.choice import choose
from diagnose.trace.export import Format, Written, export_trace
from telemetry.stages import STAGE_BY_CODE, Stage
from telemetry.stores.interface import Store, StoreReader
from telemetry.stores.queries import Spans
from telemetry.topology import Topology
from tests.diagnose.trace.counted import Window, num_collective_arrows, num_spans, num_transfers
from tests.diagnose.trace.opened import Opened, opened_json, opened_protobuf
from tests.diagnose.trace.stored_runs import GRID, WIDE, put_by_hand
from tests.telemetry.made_rows import SECOND_NS, insert, made

OPENERS: dict[Format, Callable[[Path], Opened]] = {Format.JSON: opened_json, Format.PROTOBUF: opened_protobuf}
EACH_FORM = pytest.mark.parametrize("form", list(Format))


def exported(store: Store, run: str, folder: Path, form: Format, **chosen: object) -> tuple[Written, Opened]:
    reader = StoreReader(store)
    choice = choose(reader, run, 0, **chosen)
    path = folder / ("trace.json.gz" if form is Format.JSON else "trace.perfetto-trace")
    written = export_trace(reader, choice, form=form, path=path, note_of=str)
    return written, OPENERS[form](path)


Exports = Callable[[str, Format], tuple[Written, Opened]]


@pytest.fixture(scope="module")
def exports(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Exports:
    """A run as it is exported without options. Each run and form is exported and opened once."""
    return cache(lambda run, form: exported(store, run, tmp_path_factory.mktemp(run), form))


def stored(store: Store, run: str, first_step: int, last_step: int) -> pa.Table:
    asked = Spans(run_id=run, attempt=0, first_step=first_step, last_step=last_step)
    return StoreReader(store).read(asked)


def keys(trace: Opened) -> Counter[tuple[object, ...]]:
    """Every slice as rank, stage, start, duration and arguments. Starts count from the earliest start."""
    first = min(one.start_ns for one in trace.slices)
    return Counter(
        (one.pid - 1, one.name, one.start_ns - first, one.duration_ns, tuple(sorted(one.words.items())))
        for one in trace.slices
    )


def expected(rows: pa.Table) -> Counter[tuple[object, ...]]:
    first = min(rows["start_ns"].to_pylist())
    found: Counter[tuple[object, ...]] = Counter()
    for row in rows.to_pylist():
        words = {"step": row["step"]}
        words |= {name: row[name] for name in ("microbatch", "chunk", "peer") if row[name] >= 0}
        words |= {"op_seq": row["op_seq"]} if row["op_seq"] else {}
        words |= {"processor_ns": row["cpu_ns"]} if row["cpu_ns"] >= 0 else {}
        words |= {"bytes": row["size_bytes"]} if row["size_bytes"] else {}
        words |= {"issued_before_ns": row["start_ns"] - row["issue_ns"]} if row["issue_ns"] else {}
        name = STAGE_BY_CODE[row["stage"]].label
        found[row["rank"], name, row["start_ns"] - first, row["duration_ns"], tuple(sorted(words.items()))] += 1
    return found


@EACH_FORM
@pytest.mark.parametrize(("run", "topology"), [("single", GRID), ("chunks", WIDE)])
def test_every_span_is_exported_as_a_slice_exact_to_the_nanosecond(
    store: Store, exports: Exports, run: str, topology: Topology, form: Format
) -> None:
    written, trace = exports(run, form)
    window = Window(run=run, first_step=2, last_step=11)
    assert (written.first_step, written.last_step) == (2, 11)
    assert written.spans == len(trace.slices) == num_spans(store, window)
    assert keys(trace) == expected(stored(store, run, 2, 11))
    trace.check_nesting()


@EACH_FORM
@pytest.mark.parametrize(("run", "topology"), [("single", GRID), ("chunks", WIDE)])
def test_exported_arrows_match_the_counts_of_the_store(
    store: Store, exports: Exports, run: str, topology: Topology, form: Format
) -> None:
    written, trace = exports(run, form)
    window = Window(run=run, first_step=2, last_step=11)
    assert written.transfers == num_transfers(store, window) > 0
    assert written.collectives == num_collective_arrows(store, window, topology) > 0
    assert (len(trace.arrows), written.left_out) == (written.transfers + written.collectives, 0)
    for source, target in trace.arrows.values():
        assert source.words["step"] == target.words["step"]
        if source.name.endswith("-send"):
            assert (source.words["peer"] + 1, target.words["peer"] + 1) == (target.pid, source.pid)
            assert source.words["microbatch"] == target.words["microbatch"]
        else:
            assert (source.name, source.start_ns) == (target.name, max(source.start_ns, target.start_ns))


@EACH_FORM
def test_trace_keeps_wall_time(store: Store, exports: Exports, form: Format) -> None:
    _, trace = exports("single", form)
    first_ns = min(stored(store, "single", 2, 11)["start_ns"].to_pylist())
    begins_ns = {Format.JSON: 0, Format.PROTOBUF: first_ns}
    assert (trace.first_ns, min(one.start_ns for one in trace.slices)) == (first_ns, begins_ns[form])


def test_json_and_protobuf_traces_have_the_same_content(exports: Exports) -> None:
    _, json_trace = exports("single", Format.JSON)
    _, protobuf = exports("single", Format.PROTOBUF)
    assert keys(json_trace) == keys(protobuf)
    assert json_trace.processes == protobuf.processes
    assert json_trace.threads == protobuf.threads
    ends = [{(a.tid, a.words["step"], b.tid) for a, b in one.arrows.values()} for one in (json_trace, protobuf)]
    assert ends[0] == ends[1]
    assert {name: len(values) for name, values in json_trace.counters.items()} == {
        name: len(values) for name, values in protobuf.counters.items()
    }


@EACH_FORM
def test_tracks_are_named_after_ranks_and_streams(exports: Exports, form: Format) -> None:
    _, trace = exports("single", form)
    assert trace.processes[6] == "rank 5 · gpu-000 · dp1 pp0 tp1"
    assert {name for pid, name in trace.threads.values() if pid == 6} >= {"host", "compute", "pp-forward", "dp"}
    categories = {one.name: one.category for one in trace.slices}
    assert (categories["forward-compute"], categories["forward-send"], categories["step"]) == (
        "compute", "communication", "host",
    )  # fmt: skip


@EACH_FORM
def test_samples_are_exported_as_counters_and_a_nan_loss_as_an_instant(
    store: Store, form: Format, tmp_path: Path
) -> None:
    values = [2.5, math.nan, 2.25]
    rows = [
        {"rank": 0, "seq": step, "step": step, "at_ns": 1000 + step, "metric": "loss", "value": value}
        for step, value in enumerate(values)
    ]
    run = f"samples-{form}"
    insert(store, "samples", made("samples", rows), run_id=run)
    put_by_hand(store, run, [(Stage.STEP, 1000 + step, 10, step) for step in range(3)])
    written, trace = exported(store, run, tmp_path, form)
    assert [value for _, value in trace.counters["loss"]] == [2.5, 2.25]
    assert "loss is nan" in {name for _, _, name, _ in trace.instants}
    assert written.samples == 2


@EACH_FORM
def test_marks_are_exported_as_instants_of_their_rank(store: Store, form: Format, tmp_path: Path) -> None:
    run = f"marks-{form}"
    mark = {"rank": 0, "seq": 9, "step": 1, "at_ns": 1005, "name": "restart", "text": 'a "quoted" word\n'}
    insert(store, "marks", made("marks", [mark, mark | {"seq": 10, "step": 7}]), run_id=run)
    put_by_hand(store, run, [(Stage.STEP, 1000 + step, 10, step) for step in range(3)])
    written, trace = exported(store, run, tmp_path, form)
    (found,) = [one for one in trace.instants if one[2] == "restart"]
    assert (found[0], found[3]) == (1, {"step": 1, "text": 'a "quoted" word\n'})
    assert written.marks == 1


@EACH_FORM
def test_overlapping_spans_are_drawn_on_separate_tracks(store: Store, form: Format, tmp_path: Path) -> None:
    run = f"overlaps-{form}"
    put_by_hand(store, run, [(Stage.PARAMS_ALL_GATHER, 0, 100, 0), (Stage.PARAMS_ALL_GATHER, 50, 100, 0)])
    _, trace = exported(store, run, tmp_path, form)
    trace.check_nesting()
    assert sorted(name for _, name in trace.threads.values()) == ["dp", "dp (2)"]
    assert sorted((one.duration_ns, trace.threads[one.tid][1]) for one in trace.slices) == [
        (100, "dp"), (100, "dp (2)"),
    ]  # fmt: skip


@EACH_FORM
def test_zero_length_span_and_stage_of_a_newer_version_are_drawn(store: Store, form: Format, tmp_path: Path) -> None:
    run = f"odd-{form}"
    put_by_hand(store, run, [(Stage.STEP, 0, 100, 0), (Stage.GC, 40, 0, 0), (200, 10, 5, 0)])
    _, trace = exported(store, run, tmp_path, form)
    assert sorted((one.name, one.category, one.duration_ns) for one in trace.slices) == [
        ("gc", "host", 0), ("stage 200", "unknown", 5), ("step", "host", 100),
    ]  # fmt: skip


@EACH_FORM
def test_spans_of_all_hosts_are_drawn_on_one_clock(store: Store, form: Format, tmp_path: Path) -> None:
    """The host clocks are seconds apart.

    In the trace, a receive ends after its send begins, and members of a collective overlap.
    """
    written, trace = exported(store, "apart", tmp_path, form)
    assert (written.alignment.num_hosts, written.alignment.unaligned, written.left_out) == (4, (), 0)
    assert 0 < written.alignment.bound_ns < SECOND_NS // 100
    assert written.transfers + written.collectives == len(trace.arrows) > 0
    assert all(source.start_ns < target.end_ns for source, target in trace.arrows.values())
    across = [(a, b) for a, b in trace.arrows.values() if trace.processes[a.pid][9:16] != trace.processes[b.pid][9:16]]
    apart = max(abs(a.end_ns - b.end_ns) for a, b in across if not a.name.endswith("-send"))
    assert across
    assert apart <= 2 * written.alignment.bound_ns
    trace.check_nesting()


def test_recorded_duration_is_kept_beside_the_duration_corrected_for_clock_drift(store: Store, tmp_path: Path) -> None:
    _, trace = exported(store, "apart", tmp_path, Format.PROTOBUF)
    recorded = sorted(one.words.get("recorded_ns", one.duration_ns) for one in trace.slices)
    assert recorded == sorted(stored(store, "apart", 2, 11)["duration_ns"].to_pylist())
    drifted = [(one.duration_ns, one.words["recorded_ns"]) for one in trace.slices if "recorded_ns" in one.words]
    assert drifted
    assert all(math.isclose(drawn, raw, rel_tol=1e-4, abs_tol=2) for drawn, raw in drifted)


@EACH_FORM
def test_hosts_without_a_clock_estimate_are_reported_and_keep_their_stamps(
    store: Store, form: Format, tmp_path: Path
) -> None:
    written, trace = exported(store, "blind", tmp_path, form)
    assert written.alignment.unaligned == ("gpu-000", "gpu-001", "gpu-002", "gpu-003")
    assert trace.notes == dict.fromkeys(range(1, 9), "clock not aligned")
    window = Window(run="blind", first_step=2, last_step=11)
    counted = num_transfers(store, window) + num_collective_arrows(store, window, GRID)
    assert written.left_out > 0
    assert len(trace.arrows) + written.left_out == counted
    assert keys(trace) == expected(stored(store, "blind", 2, 11))
    ((_, _, _, about),) = [one for one in trace.instants if one[2] == "rankscope"]
    assert (about["run"], about["arrows omitted"]) == ("blind", written.left_out)


def test_clocks_that_no_collector_stored_are_estimated(store: Store, tmp_path: Path) -> None:
    by_collector, _ = exported(store, "apart", tmp_path, Format.JSON)
    estimated, _ = exported(store, "unwatched", tmp_path, Format.JSON)
    assert estimated.alignment == by_collector.alignment
    assert estimated.alignment.unaligned == ()


def test_trace_contains_only_the_chosen_ranks_and_hosts(store: Store, tmp_path: Path) -> None:
    written, trace = exported(store, "apart", tmp_path, Format.JSON, ranks="0-1,6", hosts=["gpu-003"])
    assert written.ranks == [6]
    assert {one.pid for one in trace.slices} == {7}
    assert trace.arrows == {}
    host, _ = exported(store, "blind", tmp_path, Format.JSON, hosts=["gpu-000"])
    assert host.ranks == [0, 1]
    assert (host.alignment.num_hosts, host.alignment.unaligned, host.left_out) == (1, (), 0)


def test_trace_contains_only_the_steps_of_the_window(store: Store, tmp_path: Path) -> None:
    window = StepWindow(first_step=3, last_step=4)
    written, trace = exported(store, "single", tmp_path, Format.JSON, window=window)
    assert {one.words["step"] for one in trace.slices} == {3, 4}
    assert (written.first_step, written.last_step) == (3, 4)


def test_unfinished_step_is_exported_with_the_newest_steps(store: Store, tmp_path: Path) -> None:
    put_by_hand(store, "stuck", [(Stage.STEP, 0, 100, 0), (Stage.FORWARD_COMPUTE, 110, 5, 1)])
    written, trace = exported(store, "stuck", tmp_path, Format.JSON)
    assert (written.last_step, len(trace.slices)) == (1, 2)
