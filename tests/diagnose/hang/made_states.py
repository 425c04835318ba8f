"""Hand-made state pages of a grid: the open stages and the operation counts of each rank."""

from typing import Any

from telemetry.topology import Topology

GRID = Topology(dp=2, pp=2, tp=2)
NOW_NS = 1_000_000_000_000
SINCE_NS = NOW_NS - 60_000_000_000


def operation(axis: str | None, stage: str | None, issued: int, completed: int, **more: Any) -> dict[str, Any]:
    """A line of the page; it was last issued a minute ago."""
    return {
        "axis": axis, "stage": stage, "peer": -1, "issued": issued, "completed": completed, "issued_ns": SINCE_NS,
        "completed_ns": SINCE_NS - 1, "size_bytes": 4096, **more,
    }  # fmt: skip


def state(rank: int, stage: str, operations: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """The body of kind ``state``; ``stage`` is the innermost open one."""
    return {
        "rank": rank, "host": f"host-{rank // 4}", "pid": 100 + rank, "process": "alive", "died_ns": 0,
        "at_ns": NOW_NS, "step": 7, "step_started_ns": SINCE_NS - 10, "beat_ns": SINCE_NS, "recorded": 900,
        "topology": {"dp": GRID.dp, "pp": GRID.pp, "tp": GRID.tp},
        "open": [{"stage": "step", "since_ns": SINCE_NS - 10}, {"stage": stage, "since_ns": SINCE_NS}],
        "operations": operations, **more,
    }  # fmt: skip


def behind_in_tp(rank: int, **more: Any) -> dict[int, dict[str, Any]]:
    """All ranks of the grid. ``rank`` is in forward-compute, and all others wait for it.

    Its tp peer waits in tp-all-gather #40. The other stage of its replica waits for its activations. The other replica
    waits for its gradients at the end of the step.
    """
    place = GRID.place(rank)
    states = {}
    for other in range(GRID.world_size):
        theirs = GRID.place(other)
        if other == rank:
            stands = state(other, "forward-compute", [operation("tp", "tp-all-gather", 39, 39), _dp(5, 5)], **more)
        elif other in GRID.group(rank, along="tp"):
            stands = state(other, "tp-all-gather", [operation("tp", "tp-all-gather", 40, 39), _dp(5, 5)])
        elif theirs.dp == place.dp:
            recv = operation("pp", "forward-recv", 8, 7, peer=GRID.rank(theirs._replace(pp=place.pp)))
            stands = state(other, "forward-recv", [recv, operation("tp", "tp-all-gather", 20, 20), _dp(5, 5)])
        else:
            stands = state(other, "grads-reduce-scatter", [operation("tp", "tp-all-gather", 80, 80), _dp(6, 5)])
        states[other] = stands
    return states


def _dp(issued: int, completed: int) -> dict[str, Any]:
    return operation("dp", "grads-reduce-scatter", issued, completed)
