"""Dumps made by hand, in the forms that torch has written them."""

import json
import pickle
from pathlib import Path
from typing import Any

Members = dict[str, list[int]]


def entry(group: str, seq: int, record: int, *, op: str = "all_reduce", **more: Any) -> dict[str, Any]:
    """A pending row of the flight recorder."""
    return {
        "record_id": record,
        "pg_id": int(group),
        "process_group": (group, f"group {group}"),
        "collective_seq_id": seq,
        "p2p_seq_id": 0,
        "op_id": seq,
        "profiling_name": f"nccl:{op}",
        "time_created_ns": 1_000_000_000 + record,
        "input_sizes": [[8]],
        "input_dtypes": ["Float"],
        "output_sizes": [[8]],
        "output_dtypes": ["Float"],
        "state": "scheduled",
        "retired": False,
        "is_p2p": False,
        **more,
    }


def dump(
    members: Members, status: dict[str, tuple[int, int]], entries: list[dict[str, Any]], version: str = "2.10"
) -> dict[str, Any]:
    """``status``: by group, what was enqueued and what has completed."""
    return {
        "version": version,
        "pg_config": {
            name: {"name": name, "desc": f"group {name}", "ranks": str(ranks)} for name, ranks in members.items()
        },
        "pg_status": {
            name: {
                "last_enqueued_collective": enqueued,
                "last_started_collective": -1,
                "last_completed_collective": completed,
            }
            for name, (enqueued, completed) in status.items()
        },
        "entries": entries,
    }


def waiting(rank: int, *, behind: int, world: int = 4) -> dict[str, Any]:
    """One of ``world`` ranks in one group, of which ``behind`` has not entered the ninth all-reduce."""
    members = {"0": list(range(world))}
    if rank == behind:
        return dump(members, {"0": (8, 8)}, [])
    return dump(members, {"0": (9, 8)}, [entry("0", 9, 17)])


def write_pickle(folder: Path, rank: int, value: dict[str, Any]) -> None:
    (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(value, protocol=2))


def write_json(folder: Path, rank: int, value: dict[str, Any]) -> None:
    (folder / f"rank{rank}.json").write_text(json.dumps(value))
