"""Traces of PyTorch's profiler are imported as steps, compute, collectives and transfers, or refused."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from telemetry.errors import UnreadableError, UsageError
from telemetry.group_names import NO_PEER, peer_of_mask
from telemetry.imports import text_input
from telemetry.imports.interface import ImportedRun, ImportOptions, check_sound
from telemetry.imports.intervals import inside, merged, without
from telemetry.imports.kineto import import_kineto
from telemetry.imports.kineto_file import read_trace
from telemetry.stages import Stage, Stream
from telemetry.topology import Topology
from tests.telemetry.made_profiles import AUTOGRAD, BASE_NS, NCCL, STEP_US, Profile

TP_AND_DP = (
    {"pg_name": "1", "pg_desc": "mesh_tp", "ranks": [0, 1]},
    {"pg_name": "2", "pg_desc": "mesh_dp", "ranks": [0, 2]},
)


def imported(*paths: Path, **options: Any) -> ImportedRun:
    run = import_kineto(paths, ImportOptions(**options))
    check_sound(run)
    return run


def spans(run: ImportedRun, *stages: Stage) -> list[dict[str, int]]:
    """Spans of these stages. Without an argument: of every stage except ``step``."""
    return [row for row in run.spans.to_pylist() if row["stage"] in (stages or set(Stage) - {Stage.STEP})]


def stages(run: ImportedRun) -> list[Stage]:
    return [Stage(row["stage"]) for row in spans(run)]


def micros(row: dict[str, int]) -> tuple[float, float]:
    """Start and duration of a span, in the file's microseconds."""
    return (row["start_ns"] - BASE_NS) / 1000, row["duration_ns"] / 1000


# Compute on a GPU.


def test_kernel_gets_the_stage_of_the_phase_that_launched_it(tmp_path: Path) -> None:
    profile = Profile().step(0)
    profile.host("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 3000, 1000, AUTOGRAD)
    profile.host("user_annotation", "Optimizer.step#Adam.step", 5000, 1000)
    profile.kernel("gemm", issued=1000, at=20_000, dur=500)
    profile.kernel("gemm", issued=3500, at=30_000, dur=600, thread=AUTOGRAD)
    profile.kernel("adam", issued=5500, at=40_000, dur=700)
    run = imported(profile.save(tmp_path))
    assert stages(run) == [Stage.FORWARD_COMPUTE, Stage.BACKWARD_COMPUTE, Stage.OPTIMIZER]
    assert [micros(row) for row in spans(run)] == [(20_000, 500), (30_000, 600), (40_000, 700)]
    assert [row["issue_ns"] for row in spans(run)] == [BASE_NS + at for at in (1_000_000, 3_500_000, 5_500_000)]


def test_range_named_backward_marks_kernels_of_every_thread_as_backward(tmp_path: Path) -> None:
    profile = Profile().step(0).host("user_annotation", "my-backward", 3000, 1000)
    profile.host("user_annotation", "forward_backward_func", 0, 9000)
    profile.kernel("gemm", issued=1000, at=2000, dur=5).kernel("gemm", issued=3500, at=4000, dur=5, thread=AUTOGRAD)
    assert stages(imported(profile.save(tmp_path))) == [Stage.FORWARD_COMPUTE, Stage.BACKWARD_COMPUTE]


def test_kernel_that_runs_late_belongs_to_the_step_that_launched_it(tmp_path: Path) -> None:
    profile = Profile().step(4).step(5)
    profile.kernel("gemm", issued=4.9 * STEP_US, at=5.5 * STEP_US, dur=10)
    profile.kernel("gemm", issued=9 * STEP_US, at=9.1 * STEP_US, dur=10)
    run = imported(profile.save(tmp_path))
    assert [row["step"] for row in spans(run)] == [4]
    assert [(row["step"], *micros(row)) for row in spans(run, Stage.STEP)] == [
        (4, 4 * STEP_US, STEP_US),
        (5, 5 * STEP_US, STEP_US),
    ]


def test_adjacent_kernels_are_merged_into_one_span_and_a_gap_splits_them(tmp_path: Path) -> None:
    profile = Profile().step(0)
    for at in (1000, 1105, 1150, 1400):
        profile.kernel("gemm", issued=at - 500, at=at, dur=100)
    run = imported(profile.save(tmp_path))
    assert [micros(row) for row in spans(run)] == [(1000, 250), (1400, 100)]
    assert [row["issue_ns"] - BASE_NS for row in spans(run)] == [500_000, 900_000]


def test_memory_copies_and_gpu_annotations_are_not_imported_as_compute(tmp_path: Path) -> None:
    profile = Profile().step(0).kernel("gemm", issued=10, at=20, dur=5)
    profile.host("gpu_memcpy", "Memcpy HtoD", 100, 900).host("gpu_user_annotation", "ProfilerStep#0", 20, 500)
    assert [micros(row) for row in spans(imported(profile.save(tmp_path)))] == [(20, 5)]


# Collectives and transfers on a GPU.


def with_exchange(kernel: str, rank: int = 0, **args: Any) -> Profile:
    profile = Profile(rank=rank, world_size=4, groups=TP_AND_DP).step(0)
    return profile.kernel(kernel, issued=100, at=300, dur=50, stream=NCCL, **args)


def named(group: str, **args: Any) -> dict[str, Any]:
    return {"Process Group Name": group, **args}


@pytest.mark.parametrize(
    ("kernel", "args", "stage"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", named("1"), Stage.TP_ALL_REDUCE),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t", named("1"), Stage.TP_ALL_GATHER),
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", named("2"), Stage.GRADS_ALL_REDUCE),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", named("2"), Stage.GRADS_ALL_REDUCE),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", named("2"), Stage.PARAMS_ALL_GATHER),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)", named("2"), Stage.GRADS_REDUCE_SCATTER),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)", named("1"), Stage.TP_REDUCE_SCATTER),
        ("ncclDevKernel_Generic_4(x)", named("2", **{"Collective name": "_allgather_base"}), Stage.PARAMS_ALL_GATHER),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", {}, Stage.GRADS_ALL_REDUCE),
        (
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)",
            {"Process Group Description": "TENSOR_MODEL_PARALLEL_GROUP"},
            Stage.TP_ALL_REDUCE,
        ),
        (
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)",
            {"Process Group Description": "EMBEDDING_GROUP"},
            Stage.EMBEDDING_GRADS_ALL_REDUCE,
        ),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", {"Process Group Ranks": "[0, 1]"}, Stage.TP_ALL_REDUCE),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", {"Process Group Ranks": "[0, 2]"}, Stage.GRADS_ALL_REDUCE),
    ],
)
def test_collective_gets_the_stage_of_its_kind_and_axis(
    kernel: str, args: dict[str, Any], stage: Stage, tmp_path: Path
) -> None:
    run = imported(with_exchange(kernel, **args).save(tmp_path))
    assert run.topology == Topology(dp=2, tp=2)
    (row,) = spans(run)
    assert (Stage(row["stage"]), micros(row), row["issue_ns"]) == (stage, (300, 50), BASE_NS + 100_000)
    mask = run.topology.mask("tp" if stage.stream is Stream.TP else "dp")
    is_known = args and stage is not Stage.EMBEDDING_GRADS_ALL_REDUCE
    assert row["peer"] == (peer_of_mask(mask) if is_known else NO_PEER)


@pytest.mark.parametrize(
    ("kernel", "group", "stage"),
    [
        ("ncclDevKernel_Broadcast_RING_LL(x)", "1", Stage.BROADCAST),
        ("ncclDevKernel_Broadcast_RING_LL(x)", "0", Stage.BROADCAST),
        ("ncclDevKernel_AllToAll_RING_LL(x)", "0", Stage.EP_ALL_TO_ALL),
    ],
)
def test_broadcasts_and_all_to_alls_are_imported_for_every_group(
    kernel: str, group: str, stage: Stage, tmp_path: Path
) -> None:
    run = imported(with_exchange(kernel, **named(group)).save(tmp_path))
    assert (stages(run), run.meta["exchanges_left_out"]) == ([stage], "0")


def test_file_without_steps_is_imported_as_one_step(tmp_path: Path) -> None:
    profile = Profile().kernel("gemm", issued=100, at=300, dur=50).kernel("gemm", issued=500, at=1000, dur=70)
    run = imported(profile.save(tmp_path))
    assert [(row["step"], *micros(row)) for row in spans(run, Stage.STEP)] == [(0, 100, 970)]
    assert [row["step"] for row in spans(run, Stage.FORWARD_COMPUTE)] == [0, 0]


@pytest.mark.parametrize(
    ("kernel", "args"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", named("0")),  # of all ranks: no axis of this grid
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL(x)", named("1")),
        ("ncclDevKernel_SendRecv(x)", named("1")),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)", {}),
    ],
)
def test_communication_kernel_without_a_stage_is_left_out_and_counted(
    kernel: str, args: dict[str, Any], tmp_path: Path
) -> None:
    run = imported(with_exchange(kernel, **args).save(tmp_path))
    assert spans(run) == []
    assert run.meta["exchanges_left_out"] == "1"


def test_collective_is_imported_with_its_size_and_sequence_number(tmp_path: Path) -> None:
    profile = with_exchange(
        "ncclDevKernel_AllGather_RING_LL(x)", **named("1"), **{"In msg nelems": 10, "dtype": "Half"}
    )
    for at, seq in ((400, None), (500, 9)):
        told = {} if seq is None else {"Seq": seq}
        profile.kernel("ncclDevKernel_AllGather_RING_LL(x)", issued=at, at=at, dur=1, stream=NCCL, **named("1"), **told)
    found = spans(imported(profile.save(tmp_path)))
    assert [(row["size_bytes"], row["op_seq"]) for row in found] == [(20, 1), (0, 2), (0, 9)]


PIPELINE = ({"pg_name": "3", "pg_desc": "mesh_pp", "ranks": [0, 1, 2, 3]},)


@pytest.mark.parametrize(
    ("rank", "args", "stage", "peer"),
    [
        (1, {"Collective name": "send", "Dst Rank": 2}, Stage.FORWARD_SEND, 2),
        (1, {"Collective name": "send", "Dst Rank": 0}, Stage.BACKWARD_SEND, 0),
        (1, {"Collective name": "recv", "Src Rank": 0}, Stage.FORWARD_RECV, 0),
        (1, {"Collective name": "recv", "Src Rank": 2}, Stage.BACKWARD_RECV, 2),
    ],
)
def test_direction_of_a_transfer_follows_from_its_peer_rank(
    rank: int, args: dict[str, Any], stage: Stage, peer: int, tmp_path: Path
) -> None:
    profile = Profile(rank=rank, world_size=4, groups=PIPELINE).step(0)
    # The kernel has only the id. The details are in the operator that the host recorded.
    profile.host("cpu_op", "record_param_comms", 100, 10, **{"External id": 77}, **named("3"), **args)
    profile.kernel("ncclDevKernel_SendRecv(x)", issued=105, at=300, dur=5, stream=NCCL, **{"External id": 77})
    run = imported(profile.save(tmp_path))
    assert run.topology == Topology(pp=4)
    assert [(Stage(row["stage"]), row["peer"]) for row in spans(run)] == [(stage, peer)]


def test_peer_of_a_transfer_is_inferred_if_the_pipeline_has_two_ranks(tmp_path: Path) -> None:
    groups = ({"pg_name": "3", "pg_desc": "PIPELINE_MODEL_PARALLEL_GROUP", "ranks": [0, 1]},)
    profile = Profile(rank=1, world_size=2, groups=groups).step(0)
    args = named("3", **{"Collective name": "recv"})
    profile.kernel("ncclDevKernel_SendRecv(x)", issued=1, at=3, dur=5, stream=NCCL, **args)
    # A kernel without a direction is left out.
    profile.kernel("ncclDevKernel_SendRecv(x)", issued=10, at=13, dur=5, stream=NCCL, **named("3"))
    run = imported(profile.save(tmp_path))
    (row,) = spans(run)
    assert (Stage(row["stage"]), row["peer"], run.meta["exchanges_left_out"]) == (Stage.FORWARD_RECV, 0, "1")


# Ranks and the topology.


def plain(rank: int, world_size: int = 2, **told: Any) -> Profile:
    return Profile(rank=rank, world_size=world_size, told=told).step(0).kernel("gemm", issued=1, at=2, dur=3)


@pytest.mark.parametrize("name", ["rank{}.json", "trace_rank-{}.json.gz", "profile_{}.json", "worker_{}.pt.trace.json"])
def test_rank_is_read_from_the_file_name_if_the_file_does_not_contain_it(name: str, tmp_path: Path) -> None:
    for rank in (0, 3):
        plain(rank, distributedInfo=None).save(tmp_path, name.format(rank))
    run = imported(tmp_path)
    assert (sorted(run.hosts), run.topology) == ([0, 3], Topology(dp=4))


def test_process_id_in_a_file_name_is_not_used_as_rank_but_its_host_name_is_used(tmp_path: Path) -> None:
    names = ("gpu-17_4321.1700000000.pt.trace.json", "gpu-17_4322.1700000000.pt.trace.json.gz")
    paths = [plain(0, distributedInfo=None, host_name=None).save(tmp_path, name) for name in names]
    assert imported(paths[0]).hosts == {0: "gpu-17"}
    with pytest.raises(UnreadableError, match="does not contain its rank"):
        imported(tmp_path)


def test_missing_rank_does_not_change_the_topology(tmp_path: Path) -> None:
    run = imported(*(plain(rank, 4).save(tmp_path) for rank in (0, 2)))
    assert (run.hosts, run.topology) == ({0: "node-0", 2: "node-1"}, Topology(dp=4))


@pytest.mark.parametrize(
    ("told", "grid"),
    [
        ({"tp": 2}, Topology(dp=2, tp=2)),
        ({"pp": 4}, Topology(pp=4)),
        ({"dp": 2, "tp": 2}, Topology(dp=2, tp=2)),
        ({"dp": 4}, Topology(dp=4)),
    ],
)
def test_degrees_given_by_the_user_set_the_topology(told: dict[str, int], grid: Topology, tmp_path: Path) -> None:
    assert imported(plain(0, 4).save(tmp_path), **told).topology == grid


@pytest.mark.parametrize("told", [{"tp": 3}, {"dp": 2}, {"dp": 3, "pp": 1, "tp": 1}])
def test_degrees_that_do_not_match_the_number_of_ranks_are_refused(told: dict[str, int], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not give the 4 ranks"):
        imported(plain(0, 4).save(tmp_path), **told)


def test_groups_that_contradict_the_rank_order_are_refused_unless_the_user_gives_a_mesh(tmp_path: Path) -> None:
    groups = ({"pg_name": "1", "pg_desc": "mesh_pp", "ranks": [0, 2]},)
    path = Profile(world_size=4, groups=groups).step(0).save(tmp_path)
    with pytest.raises(UsageError, match=r"the pp group \[0, 2\]"):
        imported(path)
    assert imported(path, dp=4).topology == Topology(dp=4)
    mesh = Topology.parse("pp=2,dp_shard=2")
    assert imported(path, mesh=mesh).topology == mesh
    with pytest.raises(UsageError, match="does not give the 4 ranks"):
        imported(path, mesh=Topology.parse("pp=2,dp_shard=4"))


MESH_OF_FOUR_AXES = (
    {"pg_name": "1", "pg_desc": "mesh_tp", "ranks": [8, 9]},
    {"pg_name": "2", "pg_desc": "mesh_cp", "ranks": [8, 10]},
    {"pg_name": "3", "pg_desc": "mesh_fsdp", "ranks": [8, 10, 12, 14]},
    {"pg_name": "4", "pg_desc": "mesh_pp", "ranks": [0, 8]},
    {"pg_name": "5", "pg_desc": "mesh_ep", "ranks": [8, 9, 10, 11]},
    {"pg_name": "6", "pg_desc": "mesh_etp", "ranks": [8, 10]},
    {"pg_name": "7", "pg_desc": "undefined", "ranks": [8, 10]},
)


@pytest.mark.parametrize(
    ("group", "operation", "stage", "axes"),
    [
        ("1", "all_to_allv", Stage.TP_ALL_TO_ALL, ("tp",)),
        ("2", "all_gather_into_tensor", Stage.CP_ALL_GATHER, ("cp",)),
        ("2", "all_to_all", Stage.CP_ALL_TO_ALL, ("cp",)),
        ("3", "reduce_scatter_tensor", Stage.GRADS_REDUCE_SCATTER, ("dp_shard", "cp")),
        ("3", "all_to_allv", Stage.EP_ALL_TO_ALL, ("dp_shard", "cp")),
        ("5", "all_to_allv", Stage.EP_ALL_TO_ALL, ("cp", "tp")),
        ("6", "all_gather_into_tensor", Stage.CP_ALL_GATHER, ("cp",)),
    ],
)
def test_mesh_is_learned_from_the_groups_and_each_group_gets_its_stages(
    group: str, operation: str, stage: Stage, axes: tuple[str, ...], tmp_path: Path
) -> None:
    profile = Profile(rank=8, world_size=16, groups=MESH_OF_FOUR_AXES).step(0)
    told = named(group, **{"Collective name": operation})
    run = imported(profile.kernel("ncclDevKernel_x(y)", issued=1, at=3, dur=5, stream=NCCL, **told).save(tmp_path))
    assert run.topology == Topology.parse("pp=2,dp_shard=2,cp=2,tp=2")
    (row,) = spans(run)
    assert (Stage(row["stage"]), row["peer"]) == (stage, peer_of_mask(run.topology.mask(*axes)))


def test_size_of_an_all_to_all_is_the_size_that_the_rank_received(tmp_path: Path) -> None:
    profile = Profile(rank=8, world_size=16, groups=MESH_OF_FOUR_AXES).step(0)
    sizes = {"In msg nelems": 100, "Out msg nelems": 300, "dtype": "BFloat16"}
    told = named("5", **{"Collective name": "all_to_allv", **sizes})
    (row,) = spans(
        imported(profile.kernel("ncclDevKernel_x(y)", issued=1, at=3, dur=5, stream=NCCL, **told).save(tmp_path))
    )
    assert row["size_bytes"] == 600


@pytest.mark.parametrize("group", ["2", "7"])
def test_context_parallel_transfer_gets_the_stage_cp_send_recv_and_its_peer(group: str, tmp_path: Path) -> None:
    """The axis of a group without a description follows from the mesh."""
    profile = Profile(rank=8, world_size=16, groups=MESH_OF_FOUR_AXES).step(0)
    told = named(group, **{"Collective name": "send", "Dst Rank": 10})
    profile.kernel("ncclDevKernel_SendRecv(y)", issued=1, at=3, dur=5, stream=NCCL, **told)
    run = imported(profile.save(tmp_path))
    (row,) = spans(run)
    assert (Stage(row["stage"]), row["peer"]) == (Stage.CP_SEND_RECV, 10)


def test_old_file_with_absolute_times_is_imported(tmp_path: Path) -> None:
    profile = Profile(told={"baseTimeNanoseconds": None})
    profile.host("Operator", "ProfilerStep#3", BASE_NS / 1000, 1000)
    profile.host("Runtime", "cudaLaunchKernel", BASE_NS / 1000 + 10, 1, correlation=1)
    profile.host("Kernel", "gemm", BASE_NS / 1000 + 100, 50, correlation=1)
    (row,) = spans(imported(profile.save(tmp_path)))
    assert (row["step"], row["start_ns"], row["issue_ns"]) == (3, BASE_NS + 100_000, BASE_NS + 10_000)


# Invalid input.


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not complete JSON"),
        (b"<!DOCTYPE html><html>not found</html>", "not complete JSON"),
        (b"\x00\x01\x02\xff", "not complete JSON"),
        (b"[" * 100_000, "not complete JSON"),
        (b"[]", "no traceEvents"),
        (b'{"a": 1}', "no traceEvents"),
        (b'{"traceEvents": {}}', "no traceEvents"),
        (b'{"traceEvents": []}', "no operation"),
        (b'{"traceEvents": [1, null, "x", {"ph": "X"}]}', "no operation"),
        (gzip.compress(b"x" * 1000, mtime=0)[:-20], "damaged"),
        (gzip.compress(b"{}", mtime=0)[:10] + b"\xff" * 40, "damaged"),
    ],
)
def test_a_foreign_or_broken_file_is_refused(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    path.write_bytes(content)
    with pytest.raises(UnreadableError, match=words) as refused:
        imported(path)
    assert refused.value.hint


@pytest.mark.parametrize("name", ["rank0.json", "rank0.json.gz"])
@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9])
def test_a_truncated_file_is_refused(name: str, kept: float, tmp_path: Path) -> None:
    path = plain(0).save(tmp_path, name)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept)])
    with pytest.raises(UnreadableError, match=r"damaged|not complete JSON"):
        imported(path)


@pytest.mark.parametrize("times", [("x", 1), (None, 1), (-5.0, 1), (1.0, -1), (float("nan"), 1), (1e300, 1), (True, 1)])
def test_invalid_time_is_refused(times: tuple[Any, Any], tmp_path: Path) -> None:
    profile = Profile().step(0).host("kernel", "gemm", *times)
    with pytest.raises(UnreadableError, match="'gemm' has invalid times"):
        imported(profile.save(tmp_path))


def test_two_files_of_a_rank_are_refused(tmp_path: Path) -> None:
    paths = [plain(1).save(tmp_path, "a.json"), plain(1).save(tmp_path, "b.json")]
    with pytest.raises(UnreadableError, match=r"a\.json and .*b\.json are both of rank 1"):
        imported(*paths)


def test_files_of_several_jobs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match=r"rank0\.json of 2 ranks, rank1\.json of 4 ranks"):
        imported(plain(0, 2).save(tmp_path), plain(1, 4).save(tmp_path))


def test_files_without_a_step_in_common_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="no step is in every file"):
        imported(plain(0).save(tmp_path), Profile(rank=1, world_size=2).step(9).save(tmp_path))


def test_rank_number_above_the_world_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is of rank 5"):
        imported(plain(5, 2).save(tmp_path))


def test_a_step_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="ProfilerStep#1 is out of range or occurs twice"):
        imported(Profile().step(1).step(1).save(tmp_path))


def test_invalid_paths_and_the_meta_option_are_refused(tmp_path: Path) -> None:
    path = plain(0).save(tmp_path / "run")
    (tmp_path / "empty").mkdir()
    for paths, words in (
        ([tmp_path / "empty"], "has no .json"),
        ([tmp_path / "missing.json"], "No such file"),
        ([path, path.parent], "given twice"),
    ):
        with pytest.raises(UsageError, match=words):
            imported(*paths)
    with pytest.raises(UsageError, match="does not accept --meta"):
        imported(path, meta=path)


def test_file_with_malformed_fields_is_imported(tmp_path: Path) -> None:
    profile = plain(
        0, distributedInfo={"rank": "0", "world_size": 1, "pg_config": [7, {"pg_name": None, "ranks": "[0, ...]"}]}
    )
    profile.events.append({"ph": "X", "cat": "kernel", "name": None, "ts": 50, "dur": 1, "args": "none", "tid": [1]})
    profile.kernel(
        "ncclDevKernel_AllReduce(x)", issued=5, at=6, dur=1, **{"In msg nelems": "many", "Seq": -1, "dtype": 3}
    )
    run = imported(profile.save(tmp_path))
    assert json.loads(json.dumps(dict(run.meta)))["exchanges_left_out"] == "0"
    assert len(spans(run, Stage.FORWARD_COMPUTE)) == 2


# Intervals of time.


def of(*pairs: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    begin, end = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return begin, end


@pytest.mark.parametrize("seed", range(20))
def test_merging_and_subtracting_intervals_equals_set_operations_on_points(seed: int) -> None:
    random = np.random.default_rng(seed)

    def some() -> tuple[np.ndarray, np.ndarray]:
        begin = random.integers(0, 60, size=random.integers(0, 8))
        return begin, begin + random.integers(0, 12, size=len(begin))

    def moments(stretches: tuple[np.ndarray, np.ndarray]) -> set[int]:
        return {at for first, last in zip(*stretches, strict=True) for at in range(first, last)}

    one, other = some(), some()
    at = np.arange(80)
    assert moments(merged(*one)) == moments(one)
    assert moments(without(*one, *other)) == moments(one) - moments(other)
    assert set(at[inside(at, *one)].tolist()) == moments(one)


def test_merging_intervals_closes_small_gaps_and_keeps_larger_ones() -> None:
    begin, end = merged(*of((30, 40), (0, 10), (15, 20)), gap_ns=5)
    assert (begin.tolist(), end.tolist()) == ([0, 30], [20, 40])


@pytest.mark.parametrize(
    "told",
    [
        {"baseTimeNanoseconds": 10**400},
        {"host_name": "\ud800"},
    ],
    ids=["a time beyond all bounds", "half a character"],
)
def test_values_that_no_profiler_writes_are_refused_with_a_hint(tmp_path: Path, told: dict[str, object]) -> None:
    step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "ts": 1.0, "dur": 5.0, "pid": 1, "tid": 1}
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"traceEvents": [step], **told}))
    with pytest.raises(UsageError, match="hint"):
        import_kineto([path], ImportOptions())


def test_file_larger_than_the_limit_after_decompression_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_input, "MAX_BYTES", 2**20)
    bomb = tmp_path / "bomb.json.gz"
    bomb.write_bytes(gzip.compress(b'{"traceEvents": ["' + b"a" * 2**24))
    with pytest.raises(UnreadableError, match="longer than"):
        read_trace(bomb)
