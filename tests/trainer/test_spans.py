"""What a run on a grid records, on every rank."""

import itertools
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from telemetry.stages import Stage
from telemetry.stores.queries import Spans
from telemetry.topology import Topology
from tests.scenarios.demo_run import MICROBATCHES, Demo
from tests.trainer.jobs import Ended, run_job, small_config
from tests.trainer.recorded import Records, covered_share, of_stage, samples_of, spans_of
from trainer.config import TrainConfig
from trainer.faults import act
from trainer.faults.inject import Slow
from trainer.recipes import tiny_cpu
from ui.cli.readers import open_reader

pytestmark = pytest.mark.gloo

FIRST, LAST = 1, 4
"""Steps that are checked. Step 0 also sets up torch, so it is left out."""
TOPOLOGY = Topology(dp=2, pp=2, tp=2)
CLOCK_READ_NS, WORK_NS = 10_000_000, 600_000_000
"""The time between two reads of the clock, and the time of the work."""
SENDS = (Stage.FORWARD_SEND, Stage.BACKWARD_SEND)


@pytest.fixture(scope="module")
def recorded(trained_on_a_grid: Ended) -> dict[int, Records]:
    return spans_of(trained_on_a_grid.out)


def per_step(spans: Records, stage: Stage) -> list[int]:
    return [int((of_stage(spans, stage)["step"] == step).sum()) for step in range(FIRST, LAST + 1)]


@pytest.fixture(scope="module")
def spans_of_the_demo(demo_of_a_slow_rank: Demo, tmp_path_factory: pytest.TempPathFactory) -> Records:
    """From a copy: this process, which opens the store, creates files that other users can read."""
    demo = demo_of_a_slow_rank.copied_to(tmp_path_factory.mktemp("spans") / "out")
    run_id = demo.answer["run"]
    with open_reader(f"embedded:{demo.out / 'store'}") as reader:
        table = reader.read(Spans(run_id=run_id, attempt=0, first_step=FIRST, last_step=LAST))
    names = ("rank", "step", "stage", "microbatch", "start_ns", "duration_ns")
    return np.rec.fromarrays([table[name].to_numpy() for name in names], names=names)


def test_demo_has_the_chosen_number_of_microbatches(spans_of_the_demo: Records) -> None:
    forwards = of_stage(spans_of_the_demo, Stage.FORWARD_COMPUTE)
    assert set(forwards["microbatch"]) == set(range(MICROBATCHES))


def test_spans_cover_each_step_of_each_rank(spans_of_the_demo: Records) -> None:
    """The rest is the Python code of the schedule between two spans. Steps of the small model have too little work."""
    shares = [
        [covered_share(spans_of_the_demo[spans_of_the_demo["rank"] == rank], step) for step in range(FIRST, LAST + 1)]
        for rank in range(TOPOLOGY.world_size)
    ]
    assert min(np.median(share) for share in shares) >= 0.95, shares


@pytest.mark.parametrize("stage", [Stage.FORWARD_COMPUTE, Stage.BACKWARD_COMPUTE])
def test_each_microbatch_has_a_compute_span_with_processor_time(
    stage: Stage, recorded: dict[int, Records], grid_config: TrainConfig
) -> None:
    num_microbatches = grid_config.parallel.num_microbatches
    for spans in recorded.values():
        mine = of_stage(spans, stage)
        assert per_step(spans, stage) == [num_microbatches] * LAST
        assert set(mine["microbatch"]) == set(range(num_microbatches))
        assert set(mine["chunk"]) == {0}
        assert (mine["cpu_ns"] > 0).all()


def test_every_rank_records_the_other_stages_in_each_step(recorded: dict[int, Records]) -> None:
    once = (Stage.STEP, Stage.DATA_LOAD, Stage.OPTIMIZER, Stage.OPTIMIZER_CLIP)
    collectives = (
        *(Stage.PARAMS_ALL_GATHER, Stage.GRADS_REDUCE_SCATTER),
        *(Stage.TP_ALL_GATHER, Stage.TP_REDUCE_SCATTER, Stage.TP_ALL_REDUCE),
    )
    for spans in recorded.values():
        assert all(per_step(spans, stage) == [1] * LAST for stage in once)
        assert all(min(per_step(spans, stage)) > 0 for stage in collectives)


def test_each_microbatch_has_one_forward_and_one_backward_transfer(
    recorded: dict[int, Records], grid_config: TrainConfig
) -> None:
    microbatches = [grid_config.parallel.num_microbatches] * LAST
    for rank, spans in recorded.items():
        first = TOPOLOGY.place(rank).pp == 0
        assert per_step(spans, Stage.FORWARD_SEND if first else Stage.FORWARD_RECV) == microbatches
        assert per_step(spans, Stage.BACKWARD_RECV if first else Stage.BACKWARD_SEND) == microbatches
        assert not len(of_stage(spans, Stage.FORWARD_RECV if first else Stage.FORWARD_SEND)[LAST:])


@pytest.mark.long
def test_interleaved_schedule_records_chunk_and_direction_of_each_send(tmp_path: Path) -> None:
    """Rank 0 holds stages 0 and 2, rank 1 holds stages 1 and 3. Each sends in both directions to its only peer."""
    config = small_config(num_steps=2, pp=2, num_chunks=2)
    run_job(config, tmp_path)
    last_step = {rank: spans[spans["step"] == 1] for rank, spans in spans_of(tmp_path).items()}
    chunks = {(rank, stage): sent_chunks(spans, stage) for rank, spans in last_step.items() for stage in SENDS}
    each = config.parallel.num_microbatches
    assert chunks[0, Stage.FORWARD_SEND] == [0] * each + [1] * each
    assert chunks[1, Stage.FORWARD_SEND] == [0] * each
    assert chunks[0, Stage.BACKWARD_SEND] == [1] * each
    assert chunks[1, Stage.BACKWARD_SEND] == [0] * each + [1] * each


def sent_chunks(spans: Records, stage: Stage) -> list[int]:
    return sorted(of_stage(spans, stage)["chunk"].tolist())


def test_one_rank_samples_loss_gradient_norm_and_throughput_of_each_step(trained_on_a_grid: Ended) -> None:
    of_ranks = [samples_of(trained_on_a_grid.out, rank) for rank in range(TOPOLOGY.world_size)]
    (samples,) = [found for found in of_ranks if "loss" in found]
    assert samples["loss"] == dict(enumerate(trained_on_a_grid.losses))
    assert samples.keys() >= {"gradient-norm", "step-seconds", "tokens-per-second", "mfu"}


@pytest.mark.long
def test_nothing_is_recorded_with_telemetry_off_and_the_loss_is_the_same(tmp_path: Path) -> None:
    config = small_config(num_steps=4, dp=2, tp=2)
    traced, untraced = run_job(config, tmp_path / "on"), run_job(config, tmp_path / "off", telemetry=False)
    assert traced.losses == untraced.losses
    assert not (tmp_path / "off" / "spool").exists()


@pytest.mark.long
def test_slow_rank_uses_more_processor_time_than_its_peer(tmp_path: Path) -> None:
    """Its peer does the same work: the same pipeline stage of the other replica. Other load on the machine changes the
    ratio. The test below checks the exact time."""
    run_job(replace(tiny_cpu(), num_steps=LAST + 1), tmp_path, fault="slow:rank=5,factor=2")
    spent = {}
    for rank, spans in spans_of(tmp_path).items():
        late = spans[spans["step"] >= FIRST]
        spent[rank] = np.median(of_stage(late, Stage.BACKWARD_COMPUTE)["cpu_ns"])
    assert spent[5] / spent[1] > 1.5
    assert spent[4] / spent[0] < 1.3


@pytest.mark.parametrize("factor", [1.1, 3.0])
def test_slow_fault_ends_at_the_first_clock_read_after_factor_times_the_work(
    factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = itertools.count(0, CLOCK_READ_NS)
    monkeypatch.setattr(act, "time", SimpleNamespace(thread_time_ns=now_ns.__next__))
    drag = act.SlowCompute(Slow(rank=0, factor=factor))
    drag.at_step(0)
    begun_ns = drag.begin(Stage.FORWARD_COMPUTE)
    worked_ns = next(value for value in now_ns if value >= begun_ns + WORK_NS) + CLOCK_READ_NS - begun_ns
    drag.end(Stage.FORWARD_COMPUTE, begun_ns)
    last_ns = next(now_ns) - CLOCK_READ_NS
    assert last_ns - CLOCK_READ_NS < begun_ns + factor * worked_ns <= last_ns
