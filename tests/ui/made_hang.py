"""A stalled job of eight ranks (2x2x2), made by hand: its verdict, and the rows that agents store.

rank 5 hangs in its data loader                   2 --dp--> 6 --pp--> 4 --tp--> 5
"""

import json
from typing import Any

from diagnose.findings import Kind
from diagnose.hang.evidence import Front, Group, HangEvidence, LogLine, Pending, Process, RankEvidence
from diagnose.hang.verdict import HangVerdict, State
from diagnose.hang.waits import Wait, Why
from telemetry.topology import AXES, Axis, Topology

S = 1_000_000_000
STUCK = 5
STEP = 40
LOADER = ("next_batch (loader.py:88)", "train (loop.py:140)", "main (run.py:30)")
WAITING = ("wait (distributed_c10d.py:2900)", "train (loop.py:151)", "main (run.py:30)")
FAULT = "NCCL WARN connect failed: <b>no route</b>"
HEADLINE = "rank 5 is behind: never entered all_gather #41 of tp [4-5]; stopped in data-load (loader.py:88)"
GRID = Topology(dp=2, pp=2, tp=2)


def made_groups(topology: Topology) -> list[tuple[Axis, tuple[int, ...]]]:
    return [(axis, members) for axis in AXES for members in topology.groups(along=axis)]


def made_verdict(taken_ns: int = 1_790_000_000 * S, topology: Topology = GRID) -> HangVerdict:
    """The hang verdict on this job."""
    groups = made_groups(topology)
    tp, forward = groups.index(("tp", (4, 5))), groups.index(("pp", (4, 6)))
    waits = {
        4: Wait(rank=4, on=(5,), group=tp, op="all_gather", seq=41, why=Why.NEVER_ENTERED),
        6: Wait(rank=6, on=(4,), group=forward, op="recv", seq=12, why=Why.NO_PARTNER),
        7: Wait(rank=7, on=(5,), group=groups.index(("pp", (5, 7))), op="recv", seq=12, why=Why.NO_PARTNER),
    } | {
        rank: Wait(
            rank=rank,
            on=(rank + 4,),
            group=groups.index(("dp", (rank, rank + 4))),
            op="reduce_scatter",
            seq=9,
            why=Why.NEVER_ENTERED,
        )
        for rank in range(4)
    }
    ranks = {rank: _rank(rank, waits.get(rank), taken_ns, groups) for rank in range(topology.world_size)}
    evidence = HangEvidence(
        world_size=topology.world_size,
        groups=tuple(Group(name=axis, members=members) for axis, members in groups),
        ranks=ranks,
        topology=topology,
        run_id="stuck",
        taken_ns=taken_ns,
        notes=("rank 3: the flight recorder was cut",),
    )
    return HangVerdict(
        evidence=evidence,
        kind=Kind.HUNG_COLLECTIVE,
        initiating=(STUCK,),
        states=dict.fromkeys(range(topology.world_size), State.WAITING) | {STUCK: State.BEHIND},
        waits=waits,
        headline=HEADLINE,
        next_step="look at the data source of rank 5 on gpu-03",
        confidence=0.93,
    )


def _rank(rank: int, wait: Wait | None, taken_ns: int, groups: list[tuple[Axis, tuple[int, ...]]]) -> RankEvidence:
    done = {"tp": 40, "dp": 8}
    fronts = {
        index: Front(entered=done[axis], completed=done[axis])
        for index, (axis, members) in enumerate(groups)
        if axis in done and rank in members
    }
    since_ns = taken_ns - 34 * S
    if wait is not None and wait.group in fronts:
        fronts[wait.group] = Front(entered=wait.seq, completed=wait.seq - 1)
    pending = wait and Pending(
        group=wait.group, seq=wait.seq, op=wait.op, signature="[4, 256] float32", since_ns=since_ns
    )
    return RankEvidence(
        rank=rank,
        host=f"gpu-{rank // 2 + 1:02d}",
        process=Process.ALIVE,
        step=STEP,
        stage="data-load" if wait is None else "forward-recv",
        stage_since_ns=since_ns,
        fronts=fronts,
        pending=(pending,) if pending else (),
        stack=LOADER if wait is None else WAITING,
        log=(LogLine(at_ns=since_ns, fault="nccl-connect", text=FAULT),) if wait is None else (),
    )


def evidence_rows(taken_ns: int, topology: Topology = GRID, *, in_step_ns: int = S) -> list[dict[str, Any]]:
    """The same as rows of the table ``evidence``. ``in_step_ns``: from the start of the step to the stall."""
    verdict = made_verdict(taken_ns, topology)
    return [
        {"rank": rank, "at_ns": taken_ns, "kind": kind, "body": json.dumps(body)}
        for rank, known in verdict.evidence.ranks.items()
        for kind, body in _bodies(known, verdict, topology, in_step_ns).items()
    ]


def _bodies(known: RankEvidence, verdict: HangVerdict, topology: Topology, in_step_ns: int) -> dict[str, Any]:
    taken_ns = verdict.evidence.taken_ns
    bodies: dict[str, Any] = {
        "state": _state(known, verdict, topology, in_step_ns),
        "stack": {
            "tool": "py-spy",
            "threads": [{"name": "MainThread", "main": True, "frames": list(known.stack)}],
        },
    }
    if known.log:
        line = {"at_ns": taken_ns - 34 * S, "stream": "stderr", "fault": "nccl-connect", "text": FAULT}
        bodies["log"] = [line]
    return bodies


def _state(known: RankEvidence, verdict: HangVerdict, topology: Topology, in_step_ns: int) -> dict[str, Any]:
    taken_ns = verdict.evidence.taken_ns
    began_ns = known.stage_since_ns - in_step_ns
    return {
        "rank": known.rank,
        "host": known.host,
        "pid": 4000 + known.rank,
        "process": "alive",
        "died_ns": 0,
        "at_ns": taken_ns,
        "step": known.step,
        "step_started_ns": began_ns,
        "beat_ns": known.stage_since_ns,
        "recorded": 4000,
        "topology": {"dp": topology.dp, "pp": topology.pp, "tp": topology.tp},
        "open": [
            {"stage": "step", "since_ns": began_ns},
            {"stage": known.stage, "since_ns": known.stage_since_ns},
        ],
        "operations": _operations(known, verdict),
    }


def _operations(known: RankEvidence, verdict: HangVerdict) -> list[dict[str, Any]]:
    """The progress of a rank along each axis."""
    done_ns = verdict.evidence.taken_ns - 36 * S
    wait = verdict.waits.get(known.rank)
    axis_waited = verdict.evidence.groups[wait.group].name if wait else ""
    found = []
    for axis, stage, issued in (("tp", "tp-all-gather", 40), ("dp", "grads-reduce-scatter", 8)):
        waiting = wait is not None and axis == axis_waited
        found.append(
            {"axis": axis, "stage": stage, "peer": -1, "issued": issued + waiting, "completed": issued}
            | {"issued_ns": known.stage_since_ns if waiting else done_ns, "completed_ns": done_ns, "size_bytes": 4096}
        )
    if wait and axis_waited == "pp":
        found.append(
            {"axis": "pp", "stage": "forward-recv", "peer": wait.on[0], "issued": 12, "completed": 11}
            | {"issued_ns": known.stage_since_ns, "completed_ns": done_ns, "size_bytes": 4096}
        )
    return found
