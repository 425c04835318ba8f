"""Evidence of a hung job of any size, as agents store it: the state page of each rank.

the stuck rank      never leaves its data loader
its tp group        waits for it in an all-gather
its pipeline        the same replica's other stages wait to receive from their neighbours
other replicas      wait in the reduction of gradients, each for the same place of the stuck rank's replica
"""

import json
from collections.abc import Iterator
from typing import Any

from telemetry.topology import Topology

S = 1_000_000_000
STEP = 12
LOADER = ("next_batch (loader.py:88)", "train (loop.py:140)", "main (run.py:30)")
WAITING = ("wait (distributed_c10d.py:2900)", "train (loop.py:151)", "main (run.py:30)")


def evidence_rows(grid: Topology, stuck: int, taken_ns: int) -> Iterator[dict[str, Any]]:
    """Rows of the table ``evidence``."""
    place = grid.place(stuck)
    for rank in range(grid.world_size):
        here = grid.place(rank)
        waiting, peer = "", -1
        if here.dp != place.dp:
            waiting = "dp"
        elif here.pp != place.pp:
            toward = here.pp + (1 if here.pp < place.pp else -1)
            waiting, peer = "pp", grid.rank(here._replace(pp=toward))
        elif rank != stuck:
            waiting = "tp"
        yield _row(rank, "state", _state(grid, rank, waiting, peer, taken_ns), taken_ns)
        frames = WAITING if waiting else LOADER
        threads = [{"name": "MainThread", "main": True, "frames": list(frames)}]
        yield _row(rank, "stack", {"tool": "py-spy", "threads": threads}, taken_ns)


def _row(rank: int, kind: str, body: dict[str, Any], taken_ns: int) -> dict[str, Any]:
    return {"rank": rank, "at_ns": taken_ns, "kind": kind, "body": json.dumps(body)}


def _state(grid: Topology, rank: int, waiting: str, peer: int, taken_ns: int) -> dict[str, Any]:
    since_ns = taken_ns - 34 * S
    stage = {"": "data-load", "pp": "forward-recv", "tp": "tp-all-gather", "dp": "grads-reduce-scatter"}[waiting]
    return {
        "rank": rank,
        "host": f"gpu-{rank // 8:04d}",
        "pid": 4000 + rank,
        "process": "alive",
        "died_ns": 0,
        "at_ns": taken_ns,
        "step": STEP,
        "step_started_ns": since_ns - S,
        "beat_ns": since_ns,
        "recorded": 4000,
        "topology": {"dp": grid.dp, "pp": grid.pp, "tp": grid.tp},
        "open": [{"stage": "step", "since_ns": since_ns - S}, {"stage": stage, "since_ns": since_ns}],
        "operations": [_operation(axis, waiting == axis, peer, since_ns) for axis in ("tp", "dp", "pp")],
    }


def _operation(axis: str, waits: bool, peer: int, since_ns: int) -> dict[str, Any]:
    """The progress of a rank along an axis."""
    stage, done = {"tp": ("tp-all-gather", 40), "dp": ("grads-reduce-scatter", 8), "pp": ("forward-recv", 11)}[axis]
    done_ns = since_ns - 2 * S
    return {
        "axis": axis,
        "stage": stage,
        "peer": peer if axis == "pp" else -1,
        "issued": done + waits,
        "completed": done,
        "issued_ns": since_ns if waits else done_ns,
        "completed_ns": done_ns,
        "size_bytes": 4096,
    }
