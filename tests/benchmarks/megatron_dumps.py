"""Flight-recorder dumps of a large Megatron job that hangs, as files: version 2.10, one pickle a rank.

    rank = (pp * dp_size + dp) * tp_size + tp          one rank never enters a tensor-parallel all-gather

    its tp group      wait for it in that all-gather, more of the same queued behind
    its pipeline      the other stages of the same replica wait to receive, directly or indirectly
    other replicas    have finished their microbatches, and wait for that replica to reduce the gradients

Ranks know a group by a name (the order in which the job made it) and a number of their own. Nothing has a duration and
everything is ``scheduled``, as it is without timing.
"""

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

WORLD, DATA, MODEL, TENSOR, PIPELINE = range(5)
LOCAL_IDS = (0, 1, 4, 5, 6)
DESCS = (
    *("default_pg", "DATA_PARALLEL_GROUP_WITH_CP", "MODEL_PARALLEL_GROUP"),
    *("TENSOR_MODEL_PARALLEL_GROUP", "PIPELINE_MODEL_PARALLEL_GROUP"),
)
DONE = (163, 286, 12, 39406, 26)
"""Collectives that every rank has completed, by kind of group."""
NUM_TENSOR_QUEUED = 14
NUM_BUCKETS = 12
TRANSFERS = 11980
NOW_NS = 1_758_610_505_592_849_034


@dataclass(frozen=True, slots=True, kw_only=True)
class MegatronJob:
    """The grid of a job, and the rank that is behind."""

    tp: int
    pp: int
    dp: int
    behind: int

    @property
    def world_size(self) -> int:
        return self.tp * self.pp * self.dp

    def place(self, rank: int) -> tuple[int, int, int]:
        """(pp, dp, tp)."""
        return rank // (self.dp * self.tp), rank // self.tp % self.dp, rank % self.tp

    def rank(self, pp: int, dp: int, tp: int) -> int:
        return (pp * self.dp + dp) * self.tp + tp


def write_dumps(job: MegatronJob, folder: Path) -> None:
    """Write one file for each rank, with the file names of torch."""
    for rank in range(job.world_size):
        (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(_dump(job, rank)))


def _dump(job: MegatronJob, rank: int) -> dict[str, Any]:
    groups = [_group(job, rank, kind) for kind in range(5)]
    entries = [_entry(number, *row, groups) for number, row in enumerate(_active(job, rank))]
    enqueued = list(DONE)
    for entry in entries:
        if not entry["is_p2p"]:
            kind = LOCAL_IDS.index(entry["pg_id"])
            enqueued[kind] = max(enqueued[kind], entry["collective_seq_id"])
    return {
        "version": "2.10",
        "pg_config": {group["name"]: group for group in groups},
        "nccl_version": "2.27.5",
        "pg_status": {
            str(local_id): {
                "last_enqueued_collective": enqueued[kind],
                "last_started_collective": -1,
                "last_completed_collective": DONE[kind],
            }
            for kind, local_id in enumerate(LOCAL_IDS)
        },
        "entries": entries,
    }


def _active(job: MegatronJob, rank: int) -> Iterator[tuple[int, str, int]]:
    """Kind of group, operation and number of each operation that the rank has issued and not completed."""
    (pp, dp, tp), (stage, replica, column) = job.place(rank), job.place(job.behind)
    if dp != replica:
        for bucket in range(NUM_BUCKETS):
            yield DATA, "_reduce_scatter_base", DONE[DATA] + 1 + bucket
        return
    if pp == stage and tp == column:
        return
    if pp != stage:
        source = pp - 1 if pp > stage else pp + 1
        yield PIPELINE, f"recv {pp}<-{source}", TRANSFERS + 1
    for number in range(NUM_TENSOR_QUEUED):
        op = "_all_gather_base" if number % 2 == 0 else "_reduce_scatter_base"
        yield TENSOR, op, DONE[TENSOR] + 1 + number


def _entry(number: int, kind: int, op: str, seq: int, groups: list[dict[str, str]]) -> dict[str, Any]:
    transfer = kind == PIPELINE
    created = NOW_NS + number * 310_000
    return {
        "record_id": 90_000 + number,
        "pg_id": LOCAL_IDS[kind],
        "process_group": (groups[kind]["name"], groups[kind]["desc"]),
        "collective_seq_id": DONE[PIPELINE] if transfer else seq,
        "p2p_seq_id": seq if transfer else 0,
        "op_id": 12_000 + number,
        "profiling_name": f"nccl:{op}",
        "time_created_ns": created,
        "input_sizes": [[8192, 1, 5120]],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [[8192, 1, 5120]],
        "output_dtypes": ["BFloat16"],
        "state": "scheduled",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "retired": False,
        "timeout_ms": 180_000,
        "is_p2p": transfer,
        "thread_id": "23456244340032",
        "thread_name": "python3",
    }


def _group(job: MegatronJob, rank: int, kind: int) -> dict[str, str]:
    pp, dp, tp = job.place(rank)
    index = (0, pp * job.tp + tp, dp, pp * job.dp + dp, dp * job.tp + tp)[kind]
    return _named_group(job, kind, index)


def _named_group(job: MegatronJob, kind: int, index: int) -> dict[str, str]:
    counts = (1, job.pp * job.tp, job.dp, job.pp * job.dp, job.dp * job.tp)
    name = str(sum(counts[:kind]) + index)
    return {"name": name, "desc": DESCS[kind], "ranks": _members(job, kind, index)}


@cache
def _members(job: MegatronJob, kind: int, index: int) -> str:
    pps, dps, tps = range(job.pp), range(job.dp), range(job.tp)
    members: list[int] = {
        WORLD: lambda: list(range(job.world_size)),
        DATA: lambda: [job.rank(index // job.tp, dp, index % job.tp) for dp in dps],
        MODEL: lambda: sorted(job.rank(pp, index, tp) for pp in pps for tp in tps),
        TENSOR: lambda: [job.rank(index // job.dp, index % job.dp, tp) for tp in tps],
        PIPELINE: lambda: [job.rank(pp, index // job.tp, index % job.tp) for pp in pps],
    }[kind]()
    return str(members)
