"""Every foreign format is imported as the run that was written. A slow rank is named if the format allows it."""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest

from diagnose.findings import Kind, Severity
from diagnose.pipeline import diagnose_run
from telemetry.errors import UnreadableError, UsageError
from telemetry.imports.chakra import import_chakra
from telemetry.imports.interface import ImportedRun, Importer, ImportOptions, check_sound
from telemetry.imports.megascan import import_megascan
from telemetry.imports.nccl_inspector import import_nccl_inspector
from telemetry.imports.ndtimeline import import_ndtimeline
from telemetry.imports.nsys import import_nsys
from telemetry.imports.otlp import import_otlp
from telemetry.imports.text_input import find_inputs
from telemetry.imports.torchtitan import import_torchtitan
from telemetry.imports.write import StoreTarget, put_run
from telemetry.stages import Stage
from telemetry.stores.interface import StoreReader
from telemetry.topology import Topology
from tests.memory_store import memory_store
from tests.telemetry import made_formats
from tests.telemetry.made_formats import BASE_NS, FIRST_STEP, MS, RANKS, SLOW_RANK, STEPS, Span, Writer, known_run

COMPUTE = {
    "forward": Stage.FORWARD_COMPUTE,
    "backward": Stage.BACKWARD_COMPUTE,
    "all-reduce": Stage.GRADS_ALL_REDUCE,
    "optimizer": Stage.OPTIMIZER,
}
DATA = {"load": Stage.DATA_LOAD}


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A format, and the parts of the known run that it contains."""

    read: Importer
    write: Writer
    holds: dict[str, Stage]
    has_wall_clock: bool = True
    first_step: int = FIRST_STEP
    names_slow_load: bool = False
    names_slow_compute: bool = True


FORMATS = {
    "torchtitan": Format(
        read=import_torchtitan,
        write=made_formats.write_torchtitan,
        holds={**DATA, "step": Stage.STEP, "optimizer": Stage.OPTIMIZER},
        names_slow_load=True,
        names_slow_compute=False,
    ),
    "ndtimeline log": Format(
        read=import_ndtimeline, write=made_formats.write_ndtimeline_log, holds={**DATA, **COMPUTE}, names_slow_load=True
    ),
    "ndtimeline trace": Format(
        read=import_ndtimeline,
        write=made_formats.write_ndtimeline_trace,
        holds={**DATA, **COMPUTE},
        names_slow_load=True,
    ),
    "megascan": Format(
        read=import_megascan, write=made_formats.write_megascan, holds=COMPUTE, has_wall_clock=False, first_step=0
    ),
    "megascan aggregated": Format(
        read=import_megascan,
        write=made_formats.write_megascan_aggregated,
        holds=COMPUTE,
        has_wall_clock=False,
        first_step=0,
    ),
    "nsys": Format(read=import_nsys, write=made_formats.write_nsys, holds=COMPUTE),
    "nsys of a host": Format(read=import_nsys, write=made_formats.write_nsys_of_a_host, holds=COMPUTE),
    "otlp": Format(
        read=import_otlp,
        write=made_formats.write_otlp,
        holds={"step": Stage.STEP, **DATA, **COMPUTE},
        names_slow_load=True,
    ),
    "chakra": Format(read=import_chakra, write=made_formats.write_chakra, holds=COMPUTE),
    "chakra json": Format(read=import_chakra, write=made_formats.write_chakra_json, holds=COMPUTE),
    "chakra linked": Format(read=import_chakra, write=made_formats.write_chakra_linked, holds=COMPUTE),
}


def imported(form: Format, folder: Path, spans: Sequence[Span]) -> ImportedRun:
    form.write(folder, spans)
    inner = folder / "structured_logs"
    run = form.read([inner if inner.is_dir() else folder], ImportOptions(name="made"))
    check_sound(run)
    return run


def tolerance_ns(form: Format) -> int:
    """Seconds since 1970 as a double have a resolution of 240 ns."""
    return 1000 if form.read in (import_ndtimeline, import_torchtitan) else 0


@pytest.mark.parametrize("name", FORMATS)
def test_every_operation_is_imported_with_its_rank_step_and_times(name: str, tmp_path: Path) -> None:
    form, spans = FORMATS[name], known_run(slow=1.5)
    run = imported(form, tmp_path / "job", spans)
    assert (run.topology, sorted(run.hosts), run.num_steps) == (Topology(dp=RANKS), list(range(RANKS)), STEPS)
    rows = run.spans.to_pylist()
    for part, stage in form.holds.items():
        expected = sorted(
            (span.rank, span.step, span.start_ns, span.duration_ns) for span in spans if span.name == part
        )
        found = sorted(
            (row["rank"], row["step"], row["start_ns"], row["duration_ns"]) for row in rows if row["stage"] == stage
        )
        assert [row[:2] for row in found] == [
            (rank, step - FIRST_STEP + form.first_step) for rank, step, _, _ in expected
        ]
        for (*_, start_ns, duration_ns), (*_, true_start_ns, true_duration_ns) in zip(found, expected, strict=True):
            assert abs(duration_ns - true_duration_ns) <= tolerance_ns(form)
            assert not form.has_wall_clock or abs(start_ns - true_start_ns) <= tolerance_ns(form)


def accused(run: ImportedRun) -> list[tuple[Kind, tuple[int, ...]]]:
    """Findings above info, with the ranks that they name."""
    with memory_store() as store:
        put_run(run, StoreTarget(store))
        report = diagnose_run(StoreReader(store), run.run_id, 0)
    return [
        (finding.kind, tuple(finding.ranks)) for finding in report.findings if finding.severity is not Severity.INFO
    ]


ONE_OF_EACH = ("torchtitan", "ndtimeline log", "megascan", "nsys", "chakra", "otlp")


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_slow_rank_is_named_if_the_format_has_compute_and_a_healthy_run_has_no_findings(
    name: str, tmp_path: Path
) -> None:
    form = FORMATS[name]
    found = accused(imported(form, tmp_path / "slow", known_run(slow=1.5)))
    assert found == ([(Kind.COMPUTE_STRAGGLER, (SLOW_RANK,))] if form.names_slow_compute else [])
    assert accused(imported(form, tmp_path / "healthy", known_run())) == []


@pytest.mark.parametrize("name", [name for name in ONE_OF_EACH if FORMATS[name].names_slow_load])
def test_slow_loader_is_named_if_the_format_has_data_loads(name: str, tmp_path: Path) -> None:
    found = accused(imported(FORMATS[name], tmp_path / "job", known_run(slow_load=10.0)))
    assert found == [(Kind.DATA_STALL, (SLOW_RANK,))]


# Special cases of single formats.


def test_nccl_inspector_log_is_imported_as_one_step_of_collectives_without_findings(tmp_path: Path) -> None:
    spans = known_run(slow=1.5)
    made_formats.write_nccl_inspector(tmp_path, spans)
    run = import_nccl_inspector([tmp_path], ImportOptions(name="made"))
    check_sound(run)
    assert (run.num_steps, run.hosts) == (1, {0: "gpu-0", 1: "gpu-0", 2: "gpu-1", 3: "gpu-1"})
    rows = [row for row in run.spans.to_pylist() if row["stage"] == Stage.GRADS_ALL_REDUCE]
    truth = [(span.rank, span.start_ns, span.duration_ns) for span in spans if span.name == "all-reduce"]
    assert sorted((row["rank"], row["start_ns"], row["duration_ns"]) for row in rows) == sorted(truth)
    assert [row["op_seq"] for row in rows if row["rank"] == 1] == list(range(1, STEPS + 1))
    assert {(row["size_bytes"], row["start_ns"] - row["issue_ns"]) for row in rows} == {(65536, 50_000)}
    assert accused(run) == []


def test_nccl_inspector_log_without_verbose_records_has_exact_durations_and_no_overlap(tmp_path: Path) -> None:
    spans = known_run()
    made_formats.write_nccl_inspector(tmp_path, spans, verbose=False)
    run = import_nccl_inspector([tmp_path], ImportOptions(name="made"))
    rows = [row for row in run.spans.to_pylist() if (row["rank"], row["stage"]) == (1, Stage.GRADS_ALL_REDUCE)]
    assert [row["duration_ns"] for row in rows] == [
        span.duration_ns for span in spans if (span.rank, span.name) == (1, "all-reduce")
    ]
    assert all(before["start_ns"] + before["duration_ns"] <= after["start_ns"] for before, after in pairwise(rows))


def test_chakra_graph_without_start_times_is_one_step_ordered_by_dependencies(tmp_path: Path) -> None:
    spans = [span for span in known_run() if span.name in COMPUTE]
    made_formats.write_chakra_graph(tmp_path, spans)
    run = import_chakra([tmp_path], ImportOptions(name="made"))
    check_sound(run)
    rows = [row for row in run.spans.to_pylist() if row["rank"] == 0 and row["stage"] != Stage.STEP]
    computed_ns = sum(span.duration_ns for span in spans if (span.rank, span.name != "all-reduce") == (0, True))
    assert sum(row["duration_ns"] for row in rows if row["stage"] == Stage.FORWARD_COMPUTE) == computed_ns
    (step,) = (row for row in run.spans.to_pylist() if (row["rank"], row["stage"]) == (0, Stage.STEP))
    assert step["duration_ns"] == sum(span.duration_ns for span in spans if span.rank == 0)
    assert accused(run) == []


def test_chakra_caller_may_depend_on_its_callee_and_a_cycle_is_refused(tmp_path: Path) -> None:
    """As in traces of the converter: start times follow from data dependencies only."""
    common = {"NodeType": 4, "runtime": 100, "is_cpu_op": True}
    called = {"Id": 2, "Name": "aten::mm", "ctrlDeps": [3], "data_deps": [1], **common}
    caller = {"Id": 3, "Name": "aten::linear(1)", "ctrlDeps": [], "data_deps": [2], **common}
    first = {"Id": 1, "Name": "aten::linear(0)", "ctrlDeps": [], "data_deps": [], **common}
    path = tmp_path / "chakra.0.json"
    path.write_text(json.dumps({"workload_graph": [first, called, caller]}))
    (step,) = (row for row in import_chakra([path], ImportOptions()).spans.to_pylist() if row["stage"] == Stage.STEP)
    assert step["duration_ns"] == 200_000, "the caller is no operation of its own"
    for node in (called, caller):
        node["data_deps"] = [2, 3]
    path.write_text(json.dumps({"workload_graph": [first, called, caller]}))
    with pytest.raises(UnreadableError, match="form a cycle"):
        import_chakra([path], ImportOptions())


def test_chakra_execution_trace_without_times_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "chakra.0.json"
    path.write_text(json.dumps({"schema": "1.0.2-chakra.0.0.4", "nodes": [{"id": 1, "name": "aten::mm"}]}))
    with pytest.raises(UnreadableError, match="chakra_trace_link"):
        import_chakra([path], ImportOptions())


def test_nsys_report_is_imported_with_launch_times_and_hosts(tmp_path: Path) -> None:
    run = imported(FORMATS["nsys"], tmp_path, known_run())
    rows = [row for row in run.spans.to_pylist() if row["stage"] == Stage.GRADS_ALL_REDUCE]
    assert {row["start_ns"] - row["issue_ns"] for row in rows} == {made_formats.ISSUE_NS}
    assert run.hosts[3] == "gpu-1"


def test_nccl_kernels_of_an_nsys_report_are_left_out_if_the_mesh_has_several_axes(tmp_path: Path) -> None:
    made_formats.write_nsys(tmp_path, known_run())
    run = import_nsys([tmp_path], ImportOptions(name="made", dp=2, tp=2))
    assert run.meta["exchanges_left_out"] == str(RANKS * STEPS)
    assert not [row for row in run.spans.to_pylist() if row["stage"] == Stage.GRADS_ALL_REDUCE]


def test_ndtimeline_raw_log_of_a_pipeline_gives_its_topology_and_both_transfers(tmp_path: Path) -> None:
    path = tmp_path / "timeline_run0_raw.log"
    path.write_text("".join(_batch(rank) for rank in range(4)))
    run = import_ndtimeline([path], ImportOptions())
    check_sound(run)
    assert str(run.topology) == "pp=2,dp=2,tp=1"
    rows = [row for row in run.spans.to_pylist() if row["rank"] == 1 and row["stage"] != Stage.STEP]
    assert {(Stage(row["stage"]), row["peer"]) for row in rows} == {(Stage.FORWARD_SEND, 3), (Stage.BACKWARD_RECV, 3)}
    assert [row["step"] for row in rows] == [5, 5, 6, 6]


def _batch(rank: int) -> str:
    info = f"rank={rank}, dp_rank={rank % 2}, tp_rank=0, pp_rank={rank // 2}, ip='h', dp_size=2, tp_size=1, pp_size=2"
    return (
        "2026-01-01 00:00:00,000 - metric_name: forward-send-backward-recv, elapsed: 0.2, recent_elapsed_raw_parts: "
        "[0.1, 0.1], recent_since_start_raw_parts: [10.0, 11.5], tags: [{'_inner_global_step': 5}, "
        f"{{'_inner_global_step': 6}}], step_range: range(0, 9), world_info: WorldInfo: TopoInfo({info}) Tr() {{}}\n"
    )


def test_ndtimeline_log_of_two_attempts_is_refused(tmp_path: Path) -> None:
    """The second attempt continues from a checkpoint, so it repeats steps."""
    made_formats.write_ndtimeline_log(tmp_path, known_run())
    (path,) = tmp_path.glob("*_raw.log")
    later = [replace(span, start_ns=span.start_ns + 3600 * 10**9) for span in known_run()]
    made_formats.write_ndtimeline_log(tmp_path / "again", later)
    path.write_text(path.read_text() + (tmp_path / "again" / path.name).read_text())
    with pytest.raises(UnreadableError, match="files are of several attempts"):
        import_ndtimeline([path], ImportOptions())


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"stringValue": "made"', '"stringValue": "other"', "several runs: megatron-lm-made, megatron-lm-other"),
        ('{"key": "dl.rank"', '{"key": "rankscope.attempt", "value": {"intValue": "1"}}, {"key": "dl.rank"',
         "spans of several attempts: 0, 1"),
    ],
)  # fmt: skip
def test_otlp_files_of_several_runs_or_attempts_are_refused_with_their_names(
    old: str, new: str, said: str, tmp_path: Path
) -> None:
    made_formats.write_otlp(tmp_path, known_run())
    text = (tmp_path / "traces.jsonl").read_text()
    (tmp_path / "more.jsonl").write_text(text.replace(old, new))
    with pytest.raises(UnreadableError, match=said):
        import_otlp([tmp_path], ImportOptions())


def test_input_files_are_sorted_by_the_number_in_their_name(tmp_path: Path) -> None:
    for number in (10, 9, 1):
        (tmp_path / f"host{number}.sqlite").touch()
    found = find_inputs([tmp_path], (".sqlite",), "the files")
    assert [path.name for path in found] == ["host1.sqlite", "host9.sqlite", "host10.sqlite"]


def test_nccl_inspector_logs_are_refused_if_communicators_number_ranks_differently(tmp_path: Path) -> None:
    made_formats.write_nccl_inspector(tmp_path, known_run())
    for path in tmp_path.glob("*.log"):
        record = json.loads(path.read_text().splitlines()[0])
        record["header"] |= {"id": "0xother", "rank": RANKS - 1 - record["header"]["rank"]}
        path.write_text(path.read_text() + json.dumps(record) + "\n")
    with pytest.raises(UnreadableError, match="number them differently"):
        import_nccl_inspector([tmp_path], ImportOptions())


def test_very_long_line_is_parsed_in_linear_time(tmp_path: Path) -> None:
    """Quadratic time would take days."""
    path = tmp_path / "timeline_run0_raw.log"
    path.write_text(_batch(0).replace("ip=", "x" * 2_000_000 + "=") + _batch(1) + _batch(2) + _batch(3))
    assert import_ndtimeline([path], ImportOptions()).hosts[0] == ""


def test_torchtitan_import_reads_only_the_training_program_of_several(tmp_path: Path) -> None:
    made_formats.write_torchtitan(tmp_path, known_run())
    other = tmp_path / "structured_logs" / "generator.global_rank_0.20260101-000000-ABCDEF.jsonl"
    record = '{"rank": 0, "source": "generator", "log_type_name": "generate_start", "time_us": 1}\n'
    other.write_text(record)
    run = import_torchtitan([tmp_path / "structured_logs"], ImportOptions())
    assert (run.run_id, len(run.hosts), run.meta["source"]) == (tmp_path.name, RANKS, "training")


def test_truncated_last_line_is_skipped(tmp_path: Path) -> None:
    made_formats.write_torchtitan(tmp_path, known_run())
    for path in (tmp_path / "structured_logs").iterdir():
        path.write_text(path.read_text()[:-30])
    run = import_torchtitan([tmp_path / "structured_logs"], ImportOptions())
    assert run.num_steps >= STEPS - 1


# Bad input.


@pytest.mark.parametrize("name", FORMATS)
def test_a_foreign_file_among_good_ones_is_refused_with_a_hint(name: str, tmp_path: Path) -> None:
    form = FORMATS[name]
    form.write(tmp_path, known_run())
    inner = tmp_path / "structured_logs"
    folder = inner if inner.is_dir() else tmp_path
    for content in ("<html></html>", "[]", '{"a": 1}', "null"):
        sorted(folder.iterdir())[-1].write_text(content)
        with pytest.raises((UsageError, UnreadableError), match="hint: "):
            form.read([folder], ImportOptions())


@pytest.mark.parametrize("name", FORMATS)
def test_empty_folder_is_refused_and_the_error_names_the_missing_file_type(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r" has no (\.\w+|file)"):
        FORMATS[name].read([tmp_path], ImportOptions())


def test_views_and_generated_columns_of_a_report_are_never_read(tmp_path: Path) -> None:
    made_formats.write_nsys(tmp_path, known_run(ranks=1))
    path = tmp_path / "report_rank0.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME TO hidden")
        database.execute("CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT *, randomblob(1000000000) FROM hidden")
    database.close()
    with pytest.raises(UnreadableError, match="has no kernel"):
        import_nsys([path], ImportOptions())
    with sqlite3.connect(path) as database:
        database.execute("DROP VIEW CUPTI_ACTIVITY_KIND_KERNEL")
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT AS (zeroblob(1000000000)))")
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1)")
    database.close()
    with pytest.raises(UnreadableError, match="has no kernel"):
        import_nsys([path], ImportOptions())


def test_nsys_import_does_not_change_the_report(tmp_path: Path) -> None:
    made_formats.write_nsys(tmp_path, known_run(ranks=1))
    before = sorted((path.name, path.read_bytes()) for path in tmp_path.iterdir())
    import_nsys([tmp_path], ImportOptions())
    assert sorted((path.name, path.read_bytes()) for path in tmp_path.iterdir()) == before


def test_operation_with_a_time_out_of_range_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace_step0_1"
    args = {"rank": 0, "step": 0, "tp": 0, "pp": 0}
    event = {"ph": "X", "name": "optimizer", "pid": 0, "ts": BASE_NS * MS, "dur": 1, "args": args}
    path.write_text(json.dumps([event]))
    with pytest.raises(UnreadableError, match="a time of"):
        import_ndtimeline([path], ImportOptions())
