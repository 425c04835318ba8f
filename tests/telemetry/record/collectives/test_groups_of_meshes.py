"""Every operation of a real job is recorded with its stage and its axes, on several meshes."""

from pathlib import Path

import pytest

from telemetry.stages import STAGE_BY_CODE, Stage
from tests.telemetry.grid_training import CONTEXT, MEGATRON, PLAIN, TORCHTITAN, Job, train_grid
from tests.telemetry.recording import Recorded, recorded

pytestmark = pytest.mark.gloo
TENSOR = {("tp-all-gather", ("tp",)), ("tp-reduce-scatter", ("tp",))}


def _operations(found: Recorded, job: Job) -> set[tuple[str, object]]:
    """Stage and axes of each collective. Stage and peer rank of each transfer."""
    spans = found.spans[found.spans["op_seq"] > 0]
    return {(STAGE_BY_CODE[int(span["stage"])].label, _other_side(int(span["peer"]), job)) for span in spans}


def _other_side(peer: int, job: Job) -> object:
    return peer if peer >= 0 else job.mesh.axes_of(-2 - peer)


def test_operations_of_a_pipelined_job_have_their_stages_and_axes(grid: list[Recorded]) -> None:
    assert_operations_of_a_pipeline(grid, PLAIN, shards="dp")


@pytest.mark.long
@pytest.mark.parametrize(("job", "shards"), [(TORCHTITAN, "dp_shard"), (MEGATRON, "dp")])
def test_operations_have_the_same_stages_on_other_meshes(tmp_path: Path, job: Job, shards: str) -> None:
    """``tests/telemetry/record/test_mesh_learning.py`` has the names that frameworks give to groups."""
    train_grid(tmp_path, traced=True, job=job)
    assert_operations_of_a_pipeline([recorded(tmp_path, rank) for rank in range(8)], job, shards=shards)


def assert_operations_of_a_pipeline(ranks: list[Recorded], job: Job, *, shards: str) -> None:
    stages = {"params-all-gather", "grads-reduce-scatter"}
    expected = TENSOR | {(stage, (shards,)) for stage in stages}
    for first, last in job.mesh.groups(along="pp"):
        for rank, other, transfers in (
            (first, last, (Stage.FORWARD_SEND, Stage.BACKWARD_RECV)),
            (last, first, (Stage.FORWARD_RECV, Stage.BACKWARD_SEND)),
        ):
            found = ranks[rank]
            assert _operations(found, job) == expected | {(stage.label, other) for stage in transfers}
            assert _axes_without_stage(found, job) == [tuple(name for name, _ in job.mesh.mesh)]


@pytest.mark.long
def test_operations_of_a_job_with_context_and_expert_parallelism_have_stages_and_axes(tmp_path: Path) -> None:
    train_grid(tmp_path, traced=True, job=CONTEXT)
    for rank in range(8):
        found, replicas = recorded(tmp_path, rank), ("dp", "cp")
        assert _operations(found, CONTEXT) == TENSOR | {
            ("params-all-gather", replicas),
            ("grads-reduce-scatter", replicas),
            ("cp-all-gather", ("cp",)),
            ("cp-all-to-all", ("cp",)),
            ("cp-send-recv", rank ^ 2),
            ("ep-all-to-all", replicas),
        }
        assert _axes_without_stage(found, CONTEXT) == [("dp", "cp", "tp")]


def _axes_without_stage(found: Recorded, job: Job) -> list[tuple[str, ...]]:
    """Axes of the groups whose last operation has no stage. Only the group of all ranks is expected."""
    page = found.reader.live().operations
    assert all(shown.issued == shown.completed for shown in page)
    return [job.mesh.axes_of(shown.mask) for shown in page if shown.stage is None]
