"""Overlap hides communication and changes no result."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from diagnose.model.exposed import AXIS_OF_STAGE
from diagnose.pipeline import diagnose_run
from telemetry.errors import UsageError
from telemetry.stages import STAGE_BY_CODE, Stage
from tests.benchmarks.overlap import direct_exposed_s
from tests.trainer.conftest import compared_config
from tests.trainer.jobs import Ended, run_job, small_config
from tests.trainer.recorded import of_stage, spans_of
from trainer.choices import ScheduleName
from trainer.config import OverlapConfig, ParallelConfig, TrainConfig
from ui.cli.readers import open_spool

DELAY_S = 0.02
NUM_STEPS = 3


@pytest.mark.gloo
def test_overlap_along_all_axes_keeps_the_losses_and_records_its_waits(
    grid_config: TrainConfig, trained_on_a_grid: Ended, tmp_path: Path
) -> None:
    overlapped = replace(grid_config, overlap=OverlapConfig.along("all"), num_steps=NUM_STEPS)
    on = run_job(overlapped, tmp_path / "on", comm_delay_s=DELAY_S)
    assert on.losses == pytest.approx(trained_on_a_grid.losses[:NUM_STEPS], abs=1e-6)
    recorded = spans_of(on.out)
    for spans in recorded.values():
        moving = [span for span in spans if STAGE_BY_CODE[int(span["stage"])] in AXIS_OF_STAGE]
        assert min(span["duration_ns"] for span in moving) >= DELAY_S * 1e9
        ends = {int(span["start_ns"] + span["duration_ns"]) for span in of_stage(spans, Stage.COMMUNICATION_WAIT)}
        waited = {STAGE_BY_CODE[int(s["stage"])] for s in moving if int(s["start_ns"] + s["duration_ns"]) in ends}
        assert {AXIS_OF_STAGE[stage] for stage in waited} == {"dp", "pp", "tp"}
    with open_spool(on.out / "spool") as reader:
        figures = diagnose_run(reader, "job", 0).exposed
    for axis, figure in figures.items():
        assert figure.seconds == pytest.approx(direct_exposed_s(recorded, axis, range(NUM_STEPS)), rel=1e-6)


@pytest.mark.gloo
def test_last_backward_of_zero_bubble_reduces_buckets_before_it_ends(tmp_path: Path) -> None:
    config = small_config(num_steps=1, dp=2, pp=2)
    parallel = replace(config.parallel, schedule="zero-bubble")
    ended = run_job(replace(config, parallel=parallel, overlap=OverlapConfig(dp=True)), tmp_path)
    for rank, spans in spans_of(ended.out).items():
        last = max(int(s["start_ns"] + s["duration_ns"]) for s in of_stage(spans, Stage.BACKWARD_COMPUTE))
        issued = of_stage(spans, Stage.GRADS_REDUCE_SCATTER)["start_ns"]
        assert len(issued) == 3, f"rank {rank} has two blocks, and the rest of a stage"
        assert (issued < last).sum() >= 2, f"rank {rank}"


@pytest.mark.gloo
@pytest.mark.long
def test_communication_delay_leaves_the_losses_bit_identical(tmp_path: Path) -> None:
    config = small_config(num_steps=3, dp=2, tp=2)
    plain = run_job(config, tmp_path / "plain")
    assert run_job(config, tmp_path / "delayed", comm_delay_s=0.005).losses == plain.losses


@pytest.mark.gloo
@pytest.mark.long
@pytest.mark.parametrize(("num_chunks", "schedule"), [(2, "1f1b"), (1, "zero-bubble"), (2, "zero-bubble")])
def test_every_schedule_gives_the_losses_of_one_process(
    num_chunks: int, schedule: ScheduleName, trained_alone: Ended, tmp_path: Path
) -> None:
    config = replace(compared_config(dp=2, pp=2, tp=2, num_chunks=num_chunks), num_steps=NUM_STEPS)
    parallel = replace(config.parallel, schedule=schedule)
    overlapped = replace(config, parallel=parallel, overlap=OverlapConfig.along("all"))
    assert run_job(overlapped, tmp_path).losses == pytest.approx(trained_alone.losses[:NUM_STEPS], rel=1e-5)


@pytest.mark.gloo
@pytest.mark.long
@pytest.mark.parametrize(
    "switches",
    [{"block": "serial"}, {"fused_projection": True, "window": 24}, {"recompute": "full"}, {"recompute": "selective"}],
    ids=lambda switches: "-".join(map(str, switches.values())),
)
def test_overlap_keeps_the_losses_with_every_block_variant_and_recomputation(
    switches: dict[str, Any], tmp_path: Path
) -> None:
    config = small_config(num_steps=NUM_STEPS, dp=2, pp=2, tp=2)
    recompute = {name: switches.pop(name) for name in ("recompute",) if name in switches}
    chosen = replace(config, model=replace(config.model, **switches), compute=replace(config.compute, **recompute))
    overlapped = replace(chosen, overlap=OverlapConfig.along("all"))
    off, on = run_job(chosen, tmp_path / "off"), run_job(overlapped, tmp_path / "on")
    assert on.losses == pytest.approx(off.losses, abs=1e-6)


def test_unknown_overlap_axes_and_schedules_are_rejected() -> None:
    assert OverlapConfig.along("dp,tp") == OverlapConfig(dp=True, tp=True)
    assert OverlapConfig.along("none") == OverlapConfig()
    with pytest.raises(UsageError, match="no overlap along 'cp'"):
        OverlapConfig.along("dp,cp")
    with pytest.raises(UsageError, match="no schedule 'gpipe'"):
        ParallelConfig(schedule="gpipe")  # type: ignore[arg-type]
