"""The flight-recorder dumps that the ranks of a simulated NCCL job leave, as files of torch 2.13."""

import pickle
from collections.abc import Collection
from pathlib import Path
from typing import Any

from tests.diagnose.hang.made_sources import group_label
from tests.diagnose.hang.simulated_job import Issued, SimulatedJob, SimulatedRank
from tests.diagnose.hang.simulated_program import Kind


def write_job_dumps(job: SimulatedJob, folder: Path, *, gone: Collection[int] = ()) -> None:
    """One file for each rank, but not for those that are ``gone``."""
    for one in job.ranks:
        if one.rank not in gone:
            (folder / f"nccl_trace_rank_{one.rank}").write_bytes(pickle.dumps(_dump(job, one), protocol=2))


def _dump(job: SimulatedJob, one: SimulatedRank) -> dict[str, Any]:
    own = [at for at, group in enumerate(job.groups) if one.rank in group.members]
    number = {at: local_id for local_id, at in enumerate(own)}
    labels = {at: group_label(job, at) for at in own}
    config = {
        uid: {"name": uid, "desc": desc, "ranks": str(list(job.groups[at].members))}
        for at, (uid, desc) in labels.items()
    }
    entries = []
    for record, issued in enumerate(one.issued):
        group = issued.operation.group
        entries.append(_entry(job, one, issued, record) | {"pg_id": number[group], "process_group": labels[group]})
    return {
        "version": "2.10",
        "pg_config": config,
        "pg_status": {str(local_id): _status(one, at) for at, local_id in number.items()},
        "entries": entries,
    }


def _status(one: SimulatedRank, at: int) -> dict[str, int]:
    own = [it for it in one.issued if it.operation.group == at and it.operation.kind is Kind.COLLECTIVE]
    completed = next((index for index, issued in enumerate(own) if not issued.ended_ns), len(own))
    return {
        "last_enqueued_collective": len(own) or -1,
        "last_started_collective": -1,
        "last_completed_collective": completed or -1,
    }


def _entry(job: SimulatedJob, one: SimulatedRank, issued: Issued, record: int) -> dict[str, Any]:
    operation, members = issued.operation, job.groups[issued.operation.group].members
    is_transfer = operation.kind is not Kind.COLLECTIVE
    name, sizes = operation.name, (operation.size, operation.size)
    if is_transfer:
        arrow = "->" if operation.kind is Kind.SEND else "<-"
        name = f"{name} {members.index(one.rank)}{arrow}{members.index(operation.peer)}"
    elif name in ("all_gather", "reduce_scatter"):
        sizes = (sizes[0], sizes[1] * len(members)) if name == "all_gather" else (sizes[0] * len(members), sizes[1])
    return {
        "record_id": record,
        "profiling_name": f"nccl:{name}",
        "collective_seq_id": 0 if is_transfer else issued.seq,
        "p2p_seq_id": issued.seq if is_transfer else 0,
        "op_id": record,
        "time_created_ns": issued.issued_ns,
        "input_sizes": [[sizes[0]]],
        "output_sizes": [[sizes[1]]],
        "input_dtypes": ["Float"],
        "output_dtypes": ["Float"],
        "state": "completed" if issued.ended_ns else "scheduled",
        "retired": bool(issued.ended_ns),
        "is_p2p": is_transfer,
    }
