"""Traces of a real training with PyTorch's profiler: imported as a run, and exported with the recorded spans."""

import re
from pathlib import Path
from typing import Any

import pytest

from diagnose.trace.choice import choose
from diagnose.trace.export import Format, export_trace
from diagnose.trace.profiles import ProfiledRun
from telemetry.imports.interface import ImportedRun, ImportOptions, check_sound
from telemetry.imports.kineto import import_kineto
from telemetry.imports.spool import store_from_spool
from telemetry.imports.write import StoreTarget, put_run
from telemetry.stages import Stage
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from telemetry.stores.queries import Ranks, Steps
from telemetry.topology import Topology
from tests.diagnose.trace.opened import Opened, opened_json, opened_protobuf
from tests.telemetry.profiled_training import FIRST_RECORDED, FIRST_STEP, NUM_STEPS, RUN
from tests.trainer.launchers import start_forked

WORLD_SIZE = 2
KINETO_ERROR_NS = 20_000
"""Error of Kineto's conversion from the processor's counter to wall-clock time."""


def imported(*paths: Path, **options: Any) -> ImportedRun:
    run = import_kineto(paths, ImportOptions(**options))
    check_sound(run)
    return run


def spans(run: ImportedRun, *stages: Stage) -> list[dict[str, int]]:
    """Spans of these stages. Without an argument: of every stage except ``step``."""
    return [row for row in run.spans.to_pylist() if row["stage"] in (stages or set(Stage) - {Stage.STEP})]


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the traces of two ranks that trained together."""
    folder = tmp_path_factory.mktemp("profiled")
    log = folder.with_suffix(".log")
    work = "tests.telemetry.profiled_training:train"
    ranks = [start_forked(work, str(folder), str(rank), str(WORLD_SIZE), log=log) for rank in range(WORLD_SIZE)]
    assert [rank.wait(timeout=120) for rank in ranks] == [0] * WORLD_SIZE, log.read_text()
    return folder


@pytest.mark.gloo
def test_real_training_is_imported_with_its_steps_compute_and_collectives(profiled: Path) -> None:
    run = imported(profiled)
    assert (run.topology, sorted(run.hosts), run.run_id) == (Topology(dp=2), [0, 1], profiled.name)
    for rank in range(WORLD_SIZE):
        for step in range(FIRST_STEP, FIRST_STEP + NUM_STEPS):
            of = [row for row in run.spans.to_pylist() if (row["rank"], row["step"]) == (rank, step)]
            found = [Stage(row["stage"]) for row in of]
            assert found.count(Stage.STEP) == 1
            assert found.count(Stage.GRADS_ALL_REDUCE) == 4
            assert {Stage.FORWARD_COMPUTE, Stage.BACKWARD_COMPUTE, Stage.OPTIMIZER} < set(found)


@pytest.mark.gloo
def test_real_compute_spans_lie_inside_their_step_and_outside_collectives(profiled: Path) -> None:
    run = imported(profiled)
    for rank in range(WORLD_SIZE):
        mine = [row for row in spans(run) if row["rank"] == rank]
        for step in [row for row in spans(run, Stage.STEP) if row["rank"] == rank]:
            inner = [row for row in mine if row["step"] == step["step"]]
            assert all(step["start_ns"] <= row["start_ns"] for row in inner)
            assert (
                sum(row["duration_ns"] for row in inner if row["stage"] != Stage.GRADS_ALL_REDUCE) < step["duration_ns"]
            )
        numbers = [row["op_seq"] for row in mine if row["stage"] == Stage.GRADS_ALL_REDUCE]
        assert numbers == list(range(1, 4 * NUM_STEPS + 1))


@pytest.mark.gloo
def test_real_stages_start_in_the_order_forward_backward_all_reduce_optimizer(profiled: Path) -> None:
    run = imported(profiled)
    for step in range(FIRST_STEP, FIRST_STEP + NUM_STEPS):
        times = [
            min(row["start_ns"] for row in spans(run, stage) if (row["rank"], row["step"]) == (0, step))
            for stage in (Stage.FORWARD_COMPUTE, Stage.BACKWARD_COMPUTE, Stage.GRADS_ALL_REDUCE, Stage.OPTIMIZER)
        ]
        assert times == sorted(times)


@pytest.mark.gloo
def test_imported_real_training_can_be_stored_and_queried(profiled: Path, embedded: EmbeddedStore) -> None:
    put_run(imported(profiled, name="real"), StoreTarget(embedded))
    reader = StoreReader(embedded)
    steps = reader.read(Steps(run_id="real", attempt=0))
    assert steps["step"].to_pylist() == list(range(FIRST_STEP, FIRST_STEP + NUM_STEPS))
    assert steps["num_ranks"].to_pylist() == [WORLD_SIZE] * NUM_STEPS
    assert all(reader.read(Ranks(run_id="real", attempt=0))["host"].to_pylist())


@pytest.mark.gloo
def test_profiler_steps_contain_the_recorded_spans_of_their_steps(profiled: Path, tmp_path: Path) -> None:
    """torch.profiler counts its steps from 0, so its files are placed by their times."""
    store = store_from_spool(profiled / "spool")
    try:
        run = ProfiledRun(reader=StoreReader(store), run_id=RUN, attempt=0, world_size=WORLD_SIZE)
        profiles = run.from_files([profiled], 100_000)
        choice = choose(run.reader, RUN, 0, window=run.steps_of(profiles))
        for form, opened in ((Format.JSON, opened_json), (Format.PROTOBUF, opened_protobuf)):
            written = export_trace(run.reader, choice, form=form, folder=tmp_path, note_of=str, profiles=profiles)
            assert_steps_agree(opened(written.path))
    finally:
        store.close()


def assert_steps_agree(trace: Opened) -> None:
    recorded = {(each.pid, each.words["step"]): each for each in trace.slices if each.name == "step"}
    annotated = {
        (each.pid, FIRST_RECORDED + int(each.name.partition("#")[2])): each
        for each in trace.slices
        if re.match(r"ProfilerStep#\d", each.name)
    }
    assert len(recorded) == WORLD_SIZE * NUM_STEPS
    assert recorded.keys() == annotated.keys()
    for key, step in recorded.items():
        assert annotated[key].start_ns - KINETO_ERROR_NS <= step.start_ns
        assert step.end_ns <= annotated[key].end_ns + KINETO_ERROR_NS
    assert any((a.name, b.name) == ("aten::addmm", "AddmmBackward0") for a, b in trace.arrows.values())
    trace.check_nesting()
