"""Traces of the straggler analysis are imported completely and exactly, or refused."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from telemetry.errors import TakenNameError, UnreachableError, UnreadableError, UsageError
from telemetry.imports import straggler_analysis
from telemetry.imports.interface import ImportedRun, ImportOptions, check_sound
from telemetry.imports.straggler_analysis import import_straggler_analysis
from telemetry.imports.write import StoreTarget, put_run, write_run
from telemetry.stages import STAGE_BY_LABEL, Stage
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import Reader, StoreReader
from telemetry.stores.queries import LAST_STEP, Ranks, Runs, Spans
from telemetry.topology import Topology
from tests.each_case import each_case
from tests.telemetry.made_traces import LAYOUT, Op, every_rank, save, table
from tests.telemetry.served import collecting

ROOT = Path(__file__).parents[2]
REAL = Path(os.environ.get("RANKSCOPE_REAL_DATA", ROOT.parent / "shared" / "data")) / "straggler-analysis"
needs_real_trace = pytest.mark.skipif(
    not (REAL / "trace-ST.parquet").is_file(), reason=f"no trace-ST.parquet in {REAL}; RANKSCOPE_REAL_DATA says where"
)


def imported(path: Path, **options: object) -> ImportedRun:
    run = import_straggler_analysis([path], ImportOptions(**options))  # type: ignore[arg-type]
    check_sound(run)
    return run


def rows(run: ImportedRun, *stages: Stage) -> list[dict[str, int]]:
    """Spans of these stages. Without an argument: of every stage except ``step``."""
    chosen = [row for row in run.spans.to_pylist() if row["stage"] in (stages or set(Stage) - {Stage.STEP})]
    assert chosen
    return chosen


def column(run: ImportedRun, name: str, *stages: Stage) -> list[int]:
    return [row[name] for row in rows(run, *stages)]


def stored(reader: Reader, run_id: str) -> pa.Table:
    return reader.read(Spans(run_id=run_id, attempt=0, first_step=0, last_step=LAST_STEP))


# Rows and spans.


def test_row_is_imported_as_a_span_of_its_stage(tmp_path: Path) -> None:
    op = Op(optype="grads-reduce-scatter", dp_rank=1, stage=1, step=7, duration=0.5, seq_id=2, mc=1)
    (row,) = rows(imported(save(tmp_path, [op])))
    assert (row["rank"], row["stage"], row["stream"]) == (3, Stage.GRADS_REDUCE_SCATTER, 2)
    assert (row["step"], row["microbatch"], row["chunk"], row["op_seq"]) == (7, -1, 1, 3)
    assert (row["duration_ns"], row["cpu_ns"], row["issue_ns"], row["peer"]) == (500_000_000, -1, 0, -1)


@each_case("label", sorted(set(STAGE_BY_LABEL) - {"step"}))
def test_every_stage_name_is_imported_as_its_stage(label: str, tmp_path: Path) -> None:
    assert column(imported(save(tmp_path, [Op(optype=label)])), "stage") == [STAGE_BY_LABEL[label]]


def test_compute_span_has_its_microbatch_and_chunk_and_no_collective_number(tmp_path: Path) -> None:
    (row,) = rows(imported(save(tmp_path, [Op(seq_id=5, mc=1, mb_id=4)])))
    assert (row["microbatch"], row["chunk"], row["op_seq"]) == (4, 1, 0)


@pytest.mark.parametrize(
    ("optype", "peers"),
    [
        ("forward-send", [1, 2, 0, 4, 5, 3]),
        ("forward-recv", [2, 0, 1, 5, 3, 4]),
        ("backward-send", [2, 0, 1, 5, 3, 4]),
        ("backward-recv", [1, 2, 0, 4, 5, 3]),
    ],
)
def test_peer_of_a_transfer_is_the_neighbour_rank_in_the_pipeline_ring(
    optype: str, peers: list[int], tmp_path: Path
) -> None:
    ops = [Op(optype=optype, dp_rank=rank // 3, stage=rank % 3, rank=rank) for rank in range(6)]
    run = imported(save(tmp_path, ops, layout=LAYOUT.replace("pp_size: 2", "pp_size: 3")))
    assert column(run, "peer") == peers


def test_transfer_has_no_peer_if_the_pipeline_has_one_stage(tmp_path: Path) -> None:
    layout = LAYOUT.replace("pp_size: 2", "pp_size: 1")
    assert column(imported(save(tmp_path, [Op(optype="forward-send")], layout=layout)), "peer") == [-1]


# Time.


def test_times_keep_the_full_precision_of_float32(tmp_path: Path) -> None:
    starts = np.linspace(0, 90, 1000, dtype=np.float32)
    run = imported(save(tmp_path, [Op(start_ts=float(start), duration=float(start) / 7) for start in starts]))
    begin = np.array(column(run, "start_ns"))
    assert np.array_equal(((begin - begin[0]) / 1e9).astype(np.float32), starts)
    assert np.array_equal((np.array(column(run, "duration_ns")) / 1e9).astype(np.float32), starts / np.float32(7))


def test_steps_do_not_overlap(tmp_path: Path) -> None:
    run = imported(save(tmp_path, every_rank(steps=(9, 3, 300))))
    assert sorted(set(column(run, "step", Stage.STEP))) == [3, 9, 300]
    ends = {}
    for row in rows(run):
        first, last = ends.get(row["step"], (row["start_ns"], 0))
        ends[row["step"]] = min(first, row["start_ns"]), max(last, row["start_ns"] + row["duration_ns"])
    assert ends[3][1] < ends[9][0] < ends[9][1] < ends[300][0]


def test_step_lasts_from_the_first_start_to_the_last_end_over_all_ranks(tmp_path: Path) -> None:
    ops = [Op(start_ts=-0.5, duration=1.0), Op(dp_rank=1, start_ts=1.0, duration=2.0), Op(dp_rank=1, stage=1)]
    run = imported(save(tmp_path, ops))
    steps = rows(run, Stage.STEP)
    assert [row["rank"] for row in steps] == [0, 2, 3]
    assert {row["duration_ns"] for row in steps} == {3_500_000_000}
    assert {row["start_ns"] for row in steps} == {min(column(run, "start_ns"))}


def test_run_ends_at_the_modification_time_of_the_file(tmp_path: Path) -> None:
    path = save(tmp_path, every_rank())
    os.utime(path, ns=(0, 1_700_000_000_000_000_000))
    run = imported(path)
    assert max(row["start_ns"] + row["duration_ns"] for row in rows(run)) == 1_700_000_000_000_000_000
    assert run.started_ns == min(column(run, "start_ns"))


def test_operations_are_numbered_by_time_then_sequence_then_stage_then_file_order(tmp_path: Path) -> None:
    ops = [
        Op(start_ts=1.0, seq_id=1, mb_id=9),
        Op(start_ts=1.0, seq_id=0, optype="optimizer"),
        Op(start_ts=1.0, seq_id=0, optype="gc", duration=0.0, mb_id=1),
        Op(start_ts=1.0, seq_id=0, optype="gc", duration=0.0, mb_id=2),
        Op(start_ts=0.5, seq_id=2, mb_id=8),
    ]
    run = imported(save(tmp_path, ops))
    found = [(row["seq"], Stage(row["stage"]).label, row["microbatch"]) for row in rows(run)]
    expected = ["forward-compute", "gc", "gc", "optimizer", "forward-compute"]
    assert found == list(zip(range(5), expected, [8, 1, 2, -1, 9], strict=True))
    assert column(run, "seq", Stage.STEP) == [5]


# The topology.


def test_topology_has_dp_and_pp_and_ignores_tp(tmp_path: Path) -> None:
    run = imported(save(tmp_path, every_rank(), layout=LAYOUT.replace("tp_size: 1", "tp_size: 8")))
    assert run.topology == Topology(dp=2, pp=2)
    assert run.run_id == "made"
    assert sorted(run.hosts) == [0, 1, 2, 3]


def test_rank_without_operations_is_left_out_and_the_topology_is_unchanged(tmp_path: Path) -> None:
    run = imported(save(tmp_path, [op for op in every_rank() if (op.dp_rank, op.stage) != (0, 1)]))
    assert (run.topology, sorted(run.hosts)) == (Topology(dp=2, pp=2), [0, 2, 3])


def test_ranks_of_a_host_are_numbered_from_0(tmp_path: Path) -> None:
    placed = replace(imported(save(tmp_path, every_rank())), hosts={0: "a", 1: "b", 2: "a", 3: ""})
    assert placed.ranks()["local_rank"].to_pylist() == [0, 0, 1, 0]


def test_rank_numbers_are_correct_for_400_replicas(tmp_path: Path) -> None:
    ops = [Op(dp_rank=dp_rank, stage=1) for dp_rank in range(400)]
    run = imported(save(tmp_path, ops, layout=LAYOUT.replace("dp_size: 2", "dp_size: 400")))
    assert column(run, "rank") == [2 * dp_rank + 1 for dp_rank in range(400)]


@pytest.mark.parametrize(
    ("places", "dp"),
    [
        ([(0, 0), (1, 1)], 2),  # only the first rank of each sequence
        ([(0, 0), (1, 1), (2, 2), (3, 3)], 4),  # all ranks, dp_rank continues to count
        ([(0, 0), (0, 1), (1, 2), (1, 3)], 4),  # all ranks, distinguished by rank
    ],
)
def test_ranks_that_share_a_sequence_are_imported_as_replicas(
    places: list[tuple[int, int]], dp: int, tmp_path: Path
) -> None:
    layout = LAYOUT.replace("dsp_size: 1", "dsp_size: 2").replace("pp_size: 2", "pp_size: 1")
    run = imported(save(tmp_path, [Op(dp_rank=dp_rank, rank=rank) for dp_rank, rank in places], layout=layout))
    assert (run.topology, column(run, "rank")) == (Topology(dp=dp), list(range(len(places))))


# Invalid input.

SPOILT: dict[str, tuple[Callable[[pa.Table], pa.Table], str]] = {
    "a missing column": (lambda rows: rows.drop_columns(["seq_id", "mc"]), "no column seq_id, mc"),
    "no row": (lambda rows: rows.slice(0, 0), "no operation"),
    "text for a time": (lambda rows: _with(rows, "start_ts", pa.array(["x"] * len(rows))), "start_ts is of type"),
    "a number for an optype": (lambda rows: _with(rows, "optype", pa.array([1] * len(rows))), "optype is of type"),
    "halves of ranks": (lambda rows: _with(rows, "dp_rank", pa.array([0.5] * len(rows))), "dp_rank is of type"),
    "NaN": (lambda rows: _with(rows, "start_ts", pa.array([0.0, np.nan] + [1.0] * (len(rows) - 2))), "nan in row 1"),
    "infinity": (lambda rows: _with(rows, "duration", pa.array([np.inf] * len(rows))), "duration is inf"),
    "a negative duration": (lambda rows: _with(rows, "duration", pa.array([-0.5] * len(rows))), "duration is -0.5"),
    "a missing value": (lambda rows: _with(rows, "step", pa.array([None] * len(rows), pa.int64())), "without step"),
    "a negative step": (lambda rows: _with(rows, "step", pa.array([-1] * len(rows))), "step is -1"),
    "a rank beyond the layout": (lambda rows: _with(rows, "dp_rank", _first(rows, "dp_rank", 2)), "2 x 2"),
    "a stage beyond the layout": (lambda rows: _with(rows, "stage", _first(rows, "stage", 2)), "2 x 2"),
    "ranks of one place": (
        lambda rows: _with(rows, "stage", pa.array([0] * len(rows))),
        "2 ranks have the same dp_rank",
    ),
    "unknown stages": (lambda rows: _with(rows, "optype", pa.array(["a-b", "c-d"] * (len(rows) // 2))), "a-b, c-d"),
    "steps of their own": (lambda rows: _with(rows, "optype", pa.array(["step"] * len(rows))), "unknown optype step"),
}


def _with(rows: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return rows.set_column(rows.column_names.index(name), name, values)


def _first(rows: pa.Table, name: str, value: int) -> pa.Array:
    """The column with another value in its first row."""
    return pa.array([value, *rows[name].to_pylist()[1:]])


@each_case("what", SPOILT)
def test_invalid_trace_is_refused_with_a_hint(what: str, tmp_path: Path) -> None:
    spoil, words = SPOILT[what]
    with pytest.raises(UnreadableError, match=words) as refused:
        imported(save(tmp_path, spoil(table(every_rank()))))
    assert refused.value.hint


@pytest.mark.parametrize(
    "content",
    [b"", b"PAR1", b"<!DOCTYPE html><html></html>", b"dp_rank,stage\n0,0\n"],
    ids=["empty", "stub", "html", "csv"],
)
def test_a_foreign_file_is_refused(content: bytes, tmp_path: Path) -> None:
    path = save(tmp_path, every_rank())
    path.write_bytes(content)
    with pytest.raises(UnreadableError, match="not a complete parquet file"):
        imported(path)


@pytest.mark.parametrize("kept", [0.2, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_refused(kept: float, tmp_path: Path) -> None:
    path = save(tmp_path, every_rank())
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept)])
    with pytest.raises(UnreadableError, match="not a complete parquet file"):
        imported(path)


@each_case(
    ("layout", "words"),
    [
        ("- 1\n- 2\n", "no lines"),
        ("", "no lines"),
        ("a: [1, 2\n", "not YAML"),
        ("trial_name: x\npp_size: 2\n", "has no dp_size"),
        (LAYOUT.replace("dp_size: 2", "dp_size: 0"), "dp_size is '0'"),
        (LAYOUT.replace("pp_size: 2", "pp_size: two"), "pp_size is 'two'"),
        (LAYOUT.replace("pp_size: 2", "pp_size: 1.5"), "pp_size is '1.5'"),
    ],
)
def test_layout_without_valid_degrees_is_refused(layout: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match=words):
        imported(save(tmp_path, every_rank(), layout=layout))


def test_trace_without_a_layout_is_refused_unless_meta_gives_one(tmp_path: Path) -> None:
    path = save(tmp_path, every_rank())
    elsewhere = (tmp_path / "meta-made.yaml").rename(tmp_path / "elsewhere.yaml")
    with pytest.raises(UsageError, match="--meta"):
        imported(path)
    assert imported(path, meta=elsewhere).run_id == "made"


def test_folder_is_imported_only_if_it_has_exactly_one_trace(tmp_path: Path) -> None:
    path = save(tmp_path, every_rank())
    assert imported(tmp_path).spans.equals(imported(path).spans)
    save(tmp_path, every_rank(), name="other")
    with pytest.raises(UsageError, match=r"trace-made\.parquet, trace-other\.parquet"):
        imported(tmp_path)


def test_several_paths_and_degrees_are_refused(tmp_path: Path) -> None:
    path = save(tmp_path, every_rank())
    with pytest.raises(UsageError, match="2 paths"):
        import_straggler_analysis([path, path], ImportOptions())
    with pytest.raises(UsageError, match="does not accept --dp"):
        imported(path, dp=2)


# Storing.


class _BreakingTarget(StoreTarget):
    """A store that becomes unreachable after ``num_puts`` small blocks."""

    def __init__(self, store: EmbeddedStore, num_puts: int, max_rows: int = 4) -> None:
        super().__init__(store)
        self.max_rows = max_rows
        self._left = num_puts

    def put(self, table: str, rows: pa.Table, run: ImportedRun) -> None:
        if not self._left:
            raise UnreachableError("gone", hint="again")
        self._left -= 1
        super().put(table, rows, run)


def break_off(run: ImportedRun, store: EmbeddedStore, num_puts: int, max_rows: int = 4) -> bool:
    """Store a run in a target that fails after so many blocks. Return whether it failed."""
    try:
        put_run(run, _BreakingTarget(store, num_puts, max_rows))
    except UnreachableError:
        return True
    return False


def test_repeated_import_completes_an_import_interrupted_after_any_block(
    embedded: EmbeddedStore, tmp_path: Path
) -> None:
    made, reader = imported(save(tmp_path, every_rank(steps=(1,)))), StoreReader(embedded)
    for num_puts in range(100):
        run = replace(made, run_id=f"made-{num_puts}")
        broke_off = break_off(run, embedded, num_puts, max_rows=10)  # ends within a rank
        if broke_off:
            put_run(run, StoreTarget(embedded))
        spans = stored(reader, run.run_id)
        assert pc.sum(spans["duration_ns"]) == pc.sum(run.spans["duration_ns"])
        assert spans.sort_by([("rank", "ascending"), ("seq", "ascending")]) == run.spans
        assert reader.read(Ranks(run_id=run.run_id, attempt=0)).num_rows == 4
        if not broke_off:
            break
    assert num_puts > 3


def test_run_is_not_listed_before_all_operations_are_stored(embedded: EmbeddedStore, tmp_path: Path) -> None:
    run = imported(save(tmp_path, every_rank()))
    num_operations = len(rows(run))
    for _ in range(num_operations):
        if len(stored(StoreReader(embedded), "made")) == num_operations:
            break
        assert break_off(run, embedded, 1, max_rows=8)
        assert StoreReader(embedded).read(Runs()).num_rows == 0
    assert len(stored(StoreReader(embedded), "made")) == num_operations


def test_import_into_the_interrupted_import_of_another_run_is_refused(embedded: EmbeddedStore, tmp_path: Path) -> None:
    assert break_off(imported(save(tmp_path, every_rank())), embedded, 2)
    before = stored(StoreReader(embedded), "made")
    for other in (every_rank(slow=2.0), every_rank(steps=(1,)), every_rank(steps=(1, 2, 3))[:4]):
        with pytest.raises(TakenNameError, match="part of another import"):
            put_run(imported(save(tmp_path / "other", other)), StoreTarget(embedded))
    assert stored(StoreReader(embedded), "made") == before


def test_import_under_a_stored_run_name_is_refused(embedded: EmbeddedStore, tmp_path: Path) -> None:
    path = save(tmp_path, every_rank())
    put_run(imported(path), StoreTarget(embedded))
    with pytest.raises(TakenNameError, match="--name"):
        put_run(imported(path), StoreTarget(embedded))
    put_run(imported(path, name="again"), StoreTarget(embedded))
    assert stored(StoreReader(embedded), "again") == stored(StoreReader(embedded), "made")


@pytest.mark.parametrize("name", ["", "  ", "x" * 257])
def test_invalid_run_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a valid run name"):
        imported(save(tmp_path, every_rank(), layout="dp_size: 2\npp_size: 2\n"), name=name or " ")


def test_import_through_a_collector_equals_a_direct_import(embedded: EmbeddedStore, tmp_path: Path) -> None:
    path = save(tmp_path, every_rank(steps=range(1, 30)))
    put_run(imported(path, name="at-hand"), StoreTarget(embedded))
    with collecting(embedded) as client:
        write_run(imported(path, name="posted"), client.url)
        with pytest.raises(TakenNameError, match="--name"):
            write_run(imported(path, name="posted"), client.url)
        assert stored(client, "posted") == stored(client, "at-hand")
        posted, at_hand = (client.read(Ranks(run_id=name, attempt=0)) for name in ("posted", "at-hand"))
        assert posted == at_hand


def test_collector_completes_an_interrupted_import(embedded: EmbeddedStore, tmp_path: Path) -> None:
    run = imported(save(tmp_path, every_rank()))
    assert break_off(run, embedded, 3)
    with collecting(embedded) as client:
        write_run(run, client.url)
        assert len(stored(client, "made")) == run.spans.num_rows


# The published trace.


@needs_real_trace
def test_published_trace_is_imported_completely() -> None:
    run = imported(REAL)
    trace = pq.read_table(REAL / "trace-ST.parquet")
    assert (run.run_id, run.topology, run.num_steps) == ("ST", Topology(dp=2, pp=4), 32)
    assert len(rows(run)) == trace.num_rows == 6784
    assert sum(column(run, "duration_ns")) == pytest.approx(pc.sum(trace["duration"]).as_py() * 1e9, rel=1e-6)
    assert column(run, "rank", Stage.STEP) == [rank for rank in range(8) for _ in range(32)]


@needs_real_trace
def test_step_durations_of_the_published_trace_equal_the_published_values() -> None:
    steps = {row["step"]: row["duration_ns"] for row in rows(imported(REAL), Stage.STEP)}
    assert steps[23] == pytest.approx(2.3816521e9, abs=1e4)
    assert steps[25] == pytest.approx(2.3754515e9, abs=1e4)


def _order(values: Sequence[int]) -> list[int]:
    return sorted(range(len(values)), key=values.__getitem__)


@needs_real_trace
def test_equal_operations_of_the_published_trace_keep_their_order() -> None:
    run = imported(REAL)
    for stage in (Stage.FORWARD_SEND, Stage.BACKWARD_RECV):
        mine = [row for row in rows(run, stage) if (row["rank"], row["step"]) == (1, 23)]
        assert [row["op_seq"] for row in mine] == [1, 2, 3, 4]
        assert _order([row["start_ns"] for row in mine]) == [0, 1, 2, 3]


def test_file_with_more_rows_than_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(straggler_analysis, "MAX_ROWS", 3)
    with pytest.raises(UnreadableError, match="more than 3"):
        import_straggler_analysis([save(tmp_path, every_rank())], ImportOptions())
